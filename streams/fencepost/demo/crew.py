"""The demo's workers: real `fencepost worker` processes, each with a name, a log file and a TMPDIR of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import psutil

from fencepost.broker.keeper import Keeper
from fencepost.demo.shop import WITNESS_VARIABLE
from fencepost.settings import ENV_PREFIX

END_LIMIT_S = 15.0
STOP_LIMIT_S = 10.0


class Crew:
    """Starts workers, does to them what the demo is about, and leaves none behind: also if this process is killed."""

    def __init__(self, folder: Path, bootstrap: str, namespace: str) -> None:
        self._folder = folder
        self._bootstrap, self._namespace = bootstrap, namespace
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._families: list[psutil.Process] = []  # guards and runners of workers that got a signal
        self._told: set[str] = set()  # workers that were killed or told to stop
        self._keeper = Keeper()
        self.witness = folder / "witness"
        self.witness.mkdir(exist_ok=True)

    def start(self, name: str) -> int:
        """Start a worker; returns its process ID."""
        home = self._folder / "workers" / name
        home.mkdir(parents=True)
        # The demo's own settings only: what the caller's environment or working directory set is for other workers.
        env = {key: value for key, value in os.environ.items() if not key.startswith(ENV_PREFIX)}
        env |= {"TMPDIR": str(home), WITNESS_VARIABLE: str(self.witness), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "fencepost.cli.main", "worker", "--app", "fencepost.demo.shop:app"]
        command += ["--bootstrap", self._bootstrap, "--namespace", self._namespace, "--profile", "quick"]
        command += ["--stop-limit", f"{STOP_LIMIT_S:g}", "--allow", sys.executable, "--log-format", "text"]
        with self.log_file(name).open("wb") as log:
            # A session of its own: Ctrl-C is for the demo, which then ends its workers itself.
            worker = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=home,
                start_new_session=True,
            )
        self._workers[name] = worker
        self._keeper.keep(worker.pid)
        return worker.pid

    def log_file(self, name: str) -> Path:
        return self._folder / f"worker-{name}.log"

    def pid(self, name: str) -> int:
        return self._workers[name].pid

    def kill(self, name: str) -> int:
        """SIGKILL. Returns CLOCK_BOOTTIME in ns, read right before."""
        return self._signal(name, signal.SIGKILL)

    def freeze(self, name: str) -> int:
        """SIGSTOP for the worker's main process, the one that holds the leases. Returns as `kill`."""
        return self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> int:
        return self._signal(name, signal.SIGCONT)

    def ask_to_stop(self, name: str) -> int:
        """SIGTERM."""
        return self._signal(name, signal.SIGTERM)

    def exit_code(self, name: str) -> int | None:
        """None while it runs."""
        return self._workers[name].poll()

    def ended_early(self) -> list[str]:
        """Workers that ended although nobody told them to."""
        return [name for name, worker in self._workers.items() if name not in self._told and worker.poll() is not None]

    def tails(self, lines: int = 15) -> list[tuple[Path, list[str]]]:
        """The last lines each worker printed."""
        found = []
        for name in self._workers:
            path = self.log_file(name)
            with path.open(encoding="utf-8", errors="replace") as log:
                found.append((path, [line.rstrip("\n") for line in deque(log, lines)]))
        return found

    def end(self) -> list[str]:
        """End every worker, orderly where it can be, and make sure that nothing of them is left.

        Returns what had to be killed, or would not go.
        """
        running = [name for name, worker in self._workers.items() if worker.poll() is None]
        for name in running:
            self._signal(name, signal.SIGTERM)
            self._signal(name, signal.SIGCONT)
        until_s = time.monotonic() + END_LIMIT_S
        killed = []
        for name in running:
            worker = self._workers[name]
            try:
                worker.wait(max(0.1, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                killed.append(f"{name} did not stop within {END_LIMIT_S:g} s and was killed")
        self._keeper.close()  # kills what still runs
        for worker in self._workers.values():
            worker.wait()
        _, left = psutil.wait_procs(self._families, timeout=5.0)
        return killed + [f"process {process.pid} ({process.name()}) is still there" for process in left]

    def _signal(self, name: str, number: signal.Signals) -> int:
        worker = self._workers[name]
        if number is not signal.SIGCONT:
            # Guard and runners must go with it, which is looked at in the end.
            self._families += psutil.Process(worker.pid).children(recursive=True)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._told.add(name)
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        worker.send_signal(number)
        return now_ns

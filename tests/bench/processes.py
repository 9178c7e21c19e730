"""Programs the benchmark starts, and the certainty that none of them outlives it.

Everything started here carries a token in its environment, which what it starts inherits. A small process, the sweeper,
holds the other end of a pipe: when the benchmark ends, however it ends, it kills what it was told of, every process
with that token too, and removes the work folder if the benchmark was killed before it could. (Being told matters: a
program that writes its own title, as redis-server does, writes over the environment that others see.)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

TOKEN_VARIABLE = "BENCH_TOKEN"
_SWEEPER = """
import os, shutil, signal, sys, time
parent = os.getppid()
signal.signal(signal.SIGINT, signal.SIG_IGN)
token = sys.argv[1].encode()
handles = []
for line in sys.stdin:
    handles.append(os.pidfd_open(int(line)))
    os.write(1, b"k")
for handle in handles:
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
for _ in range(50):
    left = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    ours = token in file.read()
                with open(f"/proc/{name}/stat", "rb") as file:  # a name in there may be any bytes
                    ours = ours and file.read().rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])
            except OSError:
                continue  # gone meanwhile, or not ours to read
            if ours:
                left += 1
                try:
                    os.kill(int(name), signal.SIGKILL)
                except ProcessLookupError:
                    pass
    if not left:
        break
    time.sleep(0.1)
if os.getppid() != parent:  # it did not live to clear up
    for _ in range(20):
        shutil.rmtree(sys.argv[2], ignore_errors=True)
        if not os.path.exists(sys.argv[2]):
            break
        time.sleep(0.5)  # the broker is being ended as well
"""


class BenchError(Exception):
    """A measurement cannot be made or did not come out; the message says why."""


class Processes:
    """Starts programs with the token; a context that leaves none behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._token = f"fencepost-bench-{uuid.uuid4().hex}"
        self._sweeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Processes:
        self._sweeper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SWEEPER, self._token, str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={},
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._sweeper is not None
        assert self._sweeper.stdin is not None
        self._sweeper.stdin.close()
        self._sweeper.wait(30)
        if self._sweeper.stdout is not None:
            self._sweeper.stdout.close()

    def start(
        self, name: str, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Program:
        """Starts a program; what it prints goes to NAME.log in the work folder."""
        log = self._folder / f"{name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {}), TOKEN_VARIABLE: self._token},
                cwd=cwd or self._folder,
                start_new_session=True,
            )
        self._tell_sweeper(process.pid)
        return Program(name, process, log)

    def _tell_sweeper(self, pid: int) -> None:
        """It holds a handle of the process from then on, so that an ID used again is no danger."""
        assert self._sweeper is not None
        assert self._sweeper.stdin is not None
        assert self._sweeper.stdout is not None
        self._sweeper.stdin.write(f"{pid}\n".encode())
        self._sweeper.stdin.flush()
        if self._sweeper.stdout.read(1) != b"k":
            raise BenchError("the process that ends what the benchmark started is gone")

    def run(
        self, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, timeout_s: float = 300.0
    ) -> str:
        """Runs a program to its end and returns what it printed. Raises BenchError if it fails."""
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, **(env or {}), TOKEN_VARIABLE: self._token},
            cwd=self._folder,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            said = done.stderr.strip()[-2000:]
            raise BenchError(f"{' '.join(map(str, command))} ended with {done.returncode}: {said}")
        return done.stdout

    def ours(self) -> Iterator[psutil.Process]:
        """Every process alive that carries the token."""
        for process in psutil.process_iter():
            try:
                if process.environ().get(TOKEN_VARIABLE) == self._token:
                    yield process
            except (psutil.Error, OSError):
                continue  # ended meanwhile, or not ours to read


class Program:
    """One program that was started."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> float:
        """SIGKILL. Returns the time (CLOCK_MONOTONIC, s) just before it."""
        at_s = time.monotonic()
        self._process.kill()
        return at_s

    def terminate(self) -> float:
        """SIGTERM. Returns the time (CLOCK_MONOTONIC, s) just before it."""
        at_s = time.monotonic()
        self._process.terminate()
        return at_s

    def wait(self, timeout_s: float) -> int:
        return self._process.wait(timeout_s)

    def stop(self, timeout_s: float = 20.0) -> None:
        """SIGTERM, then SIGKILL for it and its session."""
        if not self.ended:
            self.terminate()
            try:
                self.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill_all()
                self.wait(timeout_s)

    def kill_all(self) -> None:
        """SIGKILL for the program and what is in its session's first group."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # all of it has ended

    def check(self) -> None:
        """Raises BenchError with the end of its log if it has ended."""
        if self.ended:
            raise BenchError(f"{self.name} ended with {self._process.returncode}:\n{tail(self.log)}")


@contextmanager
def running(program: Program, timeout_s: float = 20.0) -> Iterator[Program]:
    """The program, stopped at the end."""
    try:
        yield program
    finally:
        program.stop(timeout_s)


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def wait_until(
    done: Callable[[], bool], timeout_s: float, what: str, every_s: float = 0.02, programs: Sequence[Program] = ()
) -> None:
    """Polls until `done`. Raises BenchError when the time is up, or one of the programs has ended."""
    until_s = time.monotonic() + timeout_s
    while not done():
        for program in programs:
            program.check()
        if time.monotonic() > until_s:
            logs = "\n".join(f"--- {program.log}\n{tail(program.log)}" for program in programs)
            raise BenchError(f"waited {timeout_s:g} s in vain for {what}\n{logs}")
        time.sleep(every_s)

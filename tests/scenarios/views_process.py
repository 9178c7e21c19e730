"""Processes of `fencepost rules` and `fencepost views` beside a stage's workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fencepost.broker.keeper import Keeper
from tests.kafka.lane.harness import wait_until
from tests.scenarios.stage import ROOT, Stage


class ViewsProcess:
    """One such process; its log is `log_file`."""

    def __init__(self, process: subprocess.Popen[bytes], log_file: Path) -> None:
        self._process, self.log_file = process, log_file

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        return [entry for entry in map(_entry, lines) if entry.get("event") == event]

    def wait_ready(self) -> None:
        wait_until(f"{self.log_file.name} is ready", self._ready, 60.0)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self._process.send_signal(number)
        return self._process.wait(60)

    def wait_end(self) -> int:
        return self._process.wait(90)

    def page(self, path: str) -> tuple[int, bytes]:
        (serving,) = self.said("serving HTTP")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{serving['port']}{path}", timeout=5) as answer:
                return answer.status, answer.read()
        except OSError:
            return 0, b""

    def _ready(self) -> bool:
        assert self.exit_code is None, self.log_file.read_text()
        return bool(self.said("serving HTTP")) and self.page("/readyz")[0] == 200


@contextmanager
def started(
    stage: Stage, name: str, *arguments: str, module: str = "fencepost.cli.main", cwd: Path | None = None
) -> Iterator[ViewsProcess]:
    """`fencepost` with these arguments; its last lines are printed, and it is killed if it still runs."""
    log_file = stage.folder / f"{name}.log"
    env = {key: value for key, value in os.environ.items() if not key.startswith("FENCEPOST_")}
    env |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'streams'}", "PYTHONUNBUFFERED": "1"}
    command = [
        sys.executable,
        "-m",
        module,
        *arguments,
        "--log-format",
        "json",
        "--http-port",
        "0",
        "--profile",
        "quick",
    ]
    command += ["--bootstrap", stage.world.bootstrap, "--namespace", stage.world.settings.namespace]
    keeper = Keeper()
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
            cwd=cwd,
        )
    keeper.keep(process.pid)
    made = ViewsProcess(process, log_file)
    try:
        yield made
    finally:
        keeper.close()
        process.wait()
        print(f"--- the end of {log_file} (exit code {made.exit_code})")
        print("\n".join(log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]))


def _entry(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}

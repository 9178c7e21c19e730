"""Lanes in processes of their own, to be killed and frozen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kafka.lane.harness import World, wait_until

ROOT = Path(__file__).parents[3]


class LaneProcess:
    """A context manager: the process is gone at its end, whatever happened."""

    def __init__(self, world: World, folder: Path, *, worker: str, at_once: bool = False, static: bool = True) -> None:
        self._wanted = {
            "bootstrap": world.bootstrap,
            "namespace": world.settings.namespace,
            "worker": worker,
            "at_once": at_once,
            "static": static,
        }
        self._errors = folder / f"{worker}.err"
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.kafka.lane.one_lane", json.dumps(self._wanted)]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'streams'}"}
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, env=env)
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(20)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def read(self) -> None:
        """Take in what it said since. Raises where it ended by itself."""
        assert self._process is not None
        assert self._process.stdout is not None
        self._rest += self._process.stdout.read() or b""
        *lines, self._rest = self._rest.split(b"\n")
        self.events += [json.loads(line) for line in lines]
        if not self.alive():
            raise AssertionError(f"the lane's process ended: {self._errors.read_text()[-2000:]}")

    def events_of(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]

    @property
    def launched(self) -> list[tuple[str, int]]:
        return [(event["task"], event["epoch"]) for event in self.events_of("launched")]

    def wait_for_runs(self, count: int) -> None:
        self.wait(f"{count} runs", lambda: len(self.launched) >= count)

    def wait(self, what: str, condition: Callable[[], Any], limit_s: float = 30.0) -> Any:
        def looked() -> Any:
            self.read()
            return condition()

        return wait_until(what, looked, limit_s)

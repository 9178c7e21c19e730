"""What the runners' tests share: orders, waiting for reports, witnesses of life."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

from fencepost.core.task import CommandHandler, Isolation, PythonHandler
from fencepost.worker.guard import linux
from fencepost.worker.guard.client import GuardedRunners
from fencepost.worker.guard.settings import RunnerSettings
from fencepost.worker.orders import Refused, RunEnded, RunOrder, RunOutput, RunReport

APP = "tests.worker.sample_app:app"
PATIENCE_S = 30.0  # how long a test waits for a signal before it fails; never a measure of speed


def settings(**changes: Any) -> RunnerSettings:
    defaults: dict[str, Any] = {"app": APP, "slots": 20, "margin_s": 0.5, "beat_ttl_s": 60.0, "strict_stop": False}
    return RunnerSettings(**(defaults | changes))


def order(task: str, target: str | tuple[str, ...], epoch: int = 1, **changes: Any) -> RunOrder:
    """A run of a function, or of a command where `target` is its argv."""
    handler = PythonHandler(target) if isinstance(target, str) else CommandHandler(target)
    defaults: dict[str, Any] = {
        "task": task,
        "epoch": epoch,
        "attempt": 1,
        "partition": 0,
        "nonce": "n1",
        "lease_ttl_s": 60.0,
        "handler": handler,
        "payload": None,
        "headers": None,
        "scheduled_for_ms": None,
        "idempotency_key": f"{task}/1",
        "checkpoint": None,
        "timeout_s": None,
        "grace_s": 0.2,
        "isolation": Isolation.SHARED,
        "strict_stop": False,
    }
    return RunOrder(**(defaults | changes))


class Bench:
    """Runners with one long lease, and everything they reported."""

    def __init__(self, runners: GuardedRunners) -> None:
        self.runners = runners
        self.reports: list[RunReport] = []
        runners.lease(0, "n1", linux.boot_s())

    def until(self, done: Callable[[], Any]) -> None:
        """Take reports until this is so. Fails loudly if it never is."""
        end = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < end, f"waited {PATIENCE_S} s in vain; last reports: {self.reports[-8:]}"
            self.runners.wait(0.1)
            self.reports += self.runners.take()

    def run(self, *orders: RunOrder) -> list[RunEnded | Refused]:
        """Launch these and wait for their ends, in the order of the orders."""
        self.runners.launch(orders)
        return [self.end_of(each.task, each.epoch) for each in orders]

    def run_for(self, seconds: float) -> None:
        """Take reports for so long: for tests that something does not happen."""
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0:
            self.runners.wait(left_s)
            self.reports += self.runners.take()

    def end_of(self, task: str, epoch: int = 1) -> RunEnded | Refused:
        self.until(lambda: self.ends(task, epoch))
        (end,) = self.ends(task, epoch)
        return end

    def ended(self, task: str, epoch: int = 1) -> RunEnded:
        end = self.end_of(task, epoch)
        assert isinstance(end, RunEnded), end
        return end

    def ends(self, task: str, epoch: int = 1) -> list[RunEnded | Refused]:
        return [r for r in self.reports if isinstance(r, RunEnded | Refused) and (r.task, r.epoch) == (task, epoch)]

    def start(self, *orders: RunOrder) -> None:
        """Launch these and wait until each has said that it is under way."""
        self.runners.launch(orders)
        for each in orders:
            self.until(lambda task=each.task: "ready" in self.output(task))  # type: ignore[misc]

    def output(self, task: str, stream: str | None = None) -> str:
        lines = [r for r in self.reports if isinstance(r, RunOutput) and r.task == task]
        return "".join(r.text for r in lines if stream in (None, r.stream))


class Witness:
    """A FIFO: its end is seen once every process that holds its other side is gone."""

    def __init__(self, folder: Path, name: str = "witness") -> None:
        self.path = str(folder / name)
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    def all_gone(self) -> bool:
        """Wait until nobody holds it. Only to be called after somebody has opened it."""
        poll = select.poll()
        poll.register(self._fd, 0)
        return bool(poll.poll(PATIENCE_S * 1000))

    def held(self) -> bool:
        poll = select.poll()
        poll.register(self._fd, 0)
        return not poll.poll(0)

    def close(self) -> None:
        os.close(self._fd)


def ended_processes(pids: Iterable[int]) -> bool:
    """Wait until all of these are gone or zombies of somebody else."""
    end = time.monotonic() + PATIENCE_S
    left = set(pids)
    while left and time.monotonic() < end:
        left = {pid for pid in left if _alive(pid)}
        if left:
            time.sleep(0.01)
    return not left


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def family(pid: int) -> list[psutil.Process]:
    """The process and all below it; nothing if it is gone."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def named(guard_pid: int, name: str) -> list[psutil.Process]:
    """Those of a guard's family that bear this name."""
    found = []
    for process in family(guard_pid):
        with contextlib.suppress(psutil.NoSuchProcess):  # a runner on its way
            if process.name() == name:
                found.append(process)
    return found

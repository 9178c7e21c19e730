"""Signals to workers, guards and runs; frozen control groups; a run that is short of memory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from urllib.parse import quote

from tests.faults import cgroups
from tests.faults.arena import Arena
from tests.faults.checker import Line
from tests.faults.fault import PREPARE_LIMIT_S, Fault, Target, Unsuitable

OOM_LIMIT_BYTES = 8 << 20  # what a run may take in beyond what it had when it was put into the group


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """In this order. Who is gone already is left out."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


class WorkerKilled(Fault):
    name, target, owner_lost, weight = "worker: SIGKILL", Target.WORKER, True, 3

    def inject(self) -> None:
        self.arena.remember(self.worker)
        self.worker.told = True
        self.worker.process.kill()

    def heal(self) -> None:
        self.worker.process.wait(30)


class _Frozen(Fault):
    """Processes stopped by signals. A guard that is stopped for longer than a lease dies, and its worker with it."""

    target, owner_lost = Target.WORKER, True

    def freeze_order(self) -> list[int]:
        raise NotImplementedError

    def thaw_order(self) -> list[int]:
        return self._stopped

    def inject(self) -> None:
        self.arena.remember(self.worker)
        self.worker.told = True
        self._stopped = self.freeze_order()
        send(signal.SIGSTOP, self._stopped)

    def heal(self) -> None:
        send(signal.SIGCONT, self.thaw_order())


class WorkerFrozen(_Frozen):
    name, weight = "worker: SIGSTOP, SIGCONT", 2

    def freeze_order(self) -> list[int]:
        return [self.worker.pid]


class WorkerAndGuardFrozen(_Frozen):
    name = "worker and guard: SIGSTOP, SIGCONT"

    def freeze_order(self) -> list[int]:
        return [self.worker.pid, *filter(None, [self.worker.guard])]


class AllFrozenInTheWorstOrder(_Frozen):
    """Who could end the runs is stopped first and thawed last."""

    name = "all processes of a worker: SIGSTOP, SIGCONT, runs thawed first"

    def freeze_order(self) -> list[int]:
        family = self.worker.family()
        last = [pid for pid, its in family.items() if its not in ("fencepost-guard", "fencepost-init")]
        first = [pid for pid in family if pid not in last]
        return [*first, self.worker.pid, *last]

    def thaw_order(self) -> list[int]:
        return self._stopped[::-1]


class GuardFrozen(_Frozen):
    name = "guard: SIGSTOP, SIGCONT"

    def freeze_order(self) -> list[int]:
        return [*filter(None, [self.worker.guard])]


class WorkerAndGuardKilled(Fault):
    name, target, owner_lost = "worker and guard: SIGKILL", Target.WORKER, True

    def inject(self) -> None:
        self.arena.remember(self.worker)
        self.worker.told = True
        send(signal.SIGKILL, [self.worker.pid, *filter(None, [self.worker.guard])])

    def heal(self) -> None:
        self.worker.process.wait(30)


class GuardKilled(Fault):
    """While a command is on whose children ignore SIGTERM and have left their session."""

    name, target, owner_lost = "guard: SIGKILL, with setsid and double-forked children", Target.WORKER, True

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        return None if arena.setting.commands else "this arena has no commands"

    def prepare(self) -> None:
        _await_live(self, "command/")

    def inject(self) -> None:
        self.arena.remember(self.worker)
        self.worker.told = True
        send(signal.SIGKILL, filter(None, [self.worker.guard]))

    def heal(self) -> None:
        self.worker.process.wait(60)  # without a guard a worker ends by itself


class _OfARun(Fault):
    target = Target.RUN

    def prepare(self) -> None:
        live = _await_live(self, "long/")
        self.task = self.dice.choice(sorted(live))
        self.line: Line = live[self.task]
        self.detail = f"{self.task}, epoch {self.line.epoch}"
        pid = self.worker.runner_of(self.line)
        if pid is None:
            raise Unsuitable(f"the run {self.detail} has ended")
        self.pid = pid


class RunKilled(_OfARun):
    name = "run: SIGKILL"

    def inject(self) -> None:
        send(signal.SIGKILL, [self.pid])

    def heal(self) -> None:
        return


class RunFrozen(_OfARun):
    name = "run: SIGSTOP, SIGCONT"

    def inject(self) -> None:
        send(signal.SIGSTOP, [self.pid])

    def heal(self) -> None:
        send(signal.SIGCONT, [self.pid])


class RunOutOfMemory(_OfARun):
    """The kernel kills it: its process is put into a group whose memory ends, and made to take more."""

    name = "run: out of memory"

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        return cgroups.why_not(cgroups.MEMORY)

    def inject(self) -> None:
        self.group = cgroups.Group(cgroups.MEMORY, f"oom{self.pid}")
        self.group.limit_memory(OOM_LIMIT_BYTES)
        try:
            self.group.procs.write_text(str(self.pid))
        except ProcessLookupError:
            self.detail += "; it had ended"
        self.file = self.arena.greedy / quote(self.task, safe="")
        self.file.touch()
        until_s = time.monotonic() + 5
        while self.group.pids() and time.monotonic() < until_s:
            time.sleep(0.02)  # between two looks
        self.kills = self.group.oom_kills()
        self.file.unlink()

    def heal(self) -> None:
        send(signal.SIGKILL, self.group.pids())
        self.group.remove()

    def check(self) -> str | None:
        ended = "had ended" in self.detail or self.arena.ended(self.task, self.line.epoch)
        return None if self.kills or ended else f"{self}: the kernel killed nothing"


class GroupFrozenV2(Fault):
    name, target, owner_lost = "control group v2: frozen and thawed", Target.WORKER, True
    root, version = cgroups.V2, 2

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        if arena.setting.freezer != cls.version:
            return f"the workers of this arena are in groups of version {arena.setting.freezer}"
        return cgroups.why_not(cls.root)

    def inject(self) -> None:
        self.arena.remember(self.worker)
        self.worker.told = True
        assert self.worker.freezer is not None
        self.worker.freezer.freeze()

    def heal(self) -> None:
        assert self.worker.freezer is not None
        self.worker.freezer.thaw()


class GroupFrozenV1(GroupFrozenV2):
    """As `docker pause` does on older machines: a signal that kills waits until the group is thawed."""

    name = "control group v1: frozen and thawed"
    root, version = cgroups.V1, 1
    weight = 2


def _await_live(fault: Fault, prefix: str) -> dict[str, Line]:
    until_s = time.monotonic() + PREPARE_LIMIT_S
    while not (live := fault.arena.live_of(fault.worker, prefix)):
        if time.monotonic() > until_s:
            raise Unsuitable(f"{fault.worker.name} has no run of {prefix}*")
        time.sleep(0.05)  # between two looks
    return live


PROCESS_FAULTS: list[type[Fault]] = [
    WorkerKilled,
    WorkerFrozen,
    WorkerAndGuardFrozen,
    AllFrozenInTheWorstOrder,
    GuardFrozen,
    WorkerAndGuardKilled,
    GuardKilled,
    RunKilled,
    RunFrozen,
    RunOutOfMemory,
    GroupFrozenV2,
    GroupFrozenV1,
]

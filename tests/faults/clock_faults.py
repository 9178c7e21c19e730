"""Clocks: a broker's and a worker's wall clock stepped, and a worker whose boot clock shows another time.

No fault changes the machine's own clock. Rates cannot be changed here (no fault makes a second longer).
"""

from __future__ import annotations

import shutil
import time

from tests.faults.arena import Arena
from tests.faults.bent import step
from tests.faults.fault import Fault, Target
from tests.faults.process_faults import WorkerKilled

BOOT_SHIFTS_S = (-2000, -600, 600, 86_400)


class _BrokerClock(Fault):
    target = Target.BROKER
    sign = 1

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        return arena.no_clock_shim

    def prepare(self) -> None:
        self.node = self.dice.choice(self.arena.cluster.node_ids)
        self.seconds = self.sign * self.dice.choice([2, 20, 70])
        self.detail = f"broker {self.node}, {self.seconds:+d} s"
        self.brief_s = self.dice.uniform(3.0, 10.0)

    def inject(self) -> None:
        step(self.arena.clock_file(f"b{self.node}"), self.seconds)

    def heal(self) -> None:
        step(self.arena.clock_file(f"b{self.node}"), 0)


class BrokerClockForward(_BrokerClock):
    name = "clock of a broker: forward, and back again"


class BrokerClockBack(_BrokerClock):
    name, sign = "clock of a broker: back, and forward again", -1


class _WorkerClock(Fault):
    target = Target.BROKER  # alone in its round: what it does to slots must be its own doing
    sign = 1

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        return None if any(worker.bent for worker in arena.workers.values()) else "no worker has a clock to step"

    def prepare(self) -> None:
        self.slot = next(worker.slot for worker in self.arena.workers.values() if worker.bent)
        self.seconds = self.sign * self.dice.choice([2, 20, 70])
        self.detail = f"{self.slot}, {self.seconds:+d} s"
        self.brief_s = self.dice.uniform(3.0, 10.0)

    def inject(self) -> None:
        step(self.arena.clock_file(self.slot), self.seconds)

    def heal(self) -> None:
        step(self.arena.clock_file(self.slot), 0)


class WorkerClockForward(_WorkerClock):
    name = "clock of a worker: forward, and back again"


class WorkerClockBack(_WorkerClock):
    name, sign = "clock of a worker: back, and forward again", -1


class OtherBootClock(WorkerKilled):
    """A worker dies and comes back with a boot clock that shows another time: leases must not compare them."""

    name, weight = "boot clock of a worker: another time (time namespace)", 1

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        return None if shutil.which("unshare") else "`unshare` is not installed"

    def prepare(self) -> None:
        since_boot_s = int(time.clock_gettime(time.CLOCK_BOOTTIME))
        # A clock cannot show a time before the machine's start.
        self.seconds = max(self.dice.choice(BOOT_SHIFTS_S), -since_boot_s // 2)
        self.detail = f"{self.seconds:+d} s"

    def heal(self) -> None:
        super().heal()
        self.worker.exits.append(self.worker.process.returncode)
        self.arena.start_worker(self.worker.slot, prefix=["unshare", "--time", "--boottime", str(self.seconds)])


CLOCK_FAULTS: list[type[Fault]] = [
    BrokerClockForward,
    BrokerClockBack,
    WorkerClockForward,
    WorkerClockBack,
    OtherBootClock,
]

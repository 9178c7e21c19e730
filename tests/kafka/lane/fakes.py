"""Runners without processes: what a guard would do with leases, orders and stops, in memory and at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fencepost.core.task import Cause, Outcome
from fencepost.worker.orders import Refused, RunEnded, RunOrder, RunReport


def boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Life:
    """One run as the guard had it: from its launch to its end, which its deadline may be."""

    order: RunOrder
    nonce: str
    began_s: float
    ended_s: float | None = None


@dataclass(slots=True)
class FakeRunners:
    """A scripted guard. `at_once`: the end of a run that ends as soon as it starts; None: tests end runs by `finish`.

    It keeps the guard's rules: nothing starts without a proven lease, no (task, epoch) twice, and a run whose lease
    ended is dead from its deadline on, whether or not the lane's thread comes round to hear of it.
    """

    margin_s: float = 0.5
    capacity: int = 64
    at_once: Callable[[RunOrder], RunEnded | None] | None = None
    obeys_stops: bool = True
    launched: list[RunOrder] = field(default_factory=list)
    lives: dict[tuple[str, int], Life] = field(default_factory=dict)
    renewals: list[tuple[int, str, float]] = field(default_factory=list)
    rebound: list[tuple[int, str, str]] = field(default_factory=list)
    stopped: list[tuple[str, int, str, Cause | None]] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    beats: int = 0
    _leases: dict[tuple[int, str], float] = field(default_factory=dict)
    _reports: list[RunReport] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))

    # -- what a lane calls --------------------------------------------------------------------------------------------

    def lease(self, partition: int, nonce: str, began_boot_s: float) -> None:
        with self._changed:
            self._expire()  # a guard has ended by now what was over; a renewal that is heard of late revives nothing
            self._leases[partition, nonce] = began_boot_s
            self.renewals.append((partition, nonce, began_boot_s))

    def launch(self, orders: Sequence[RunOrder]) -> None:
        with self._changed:
            for order in orders:
                self._launch(order)
            self._changed.notify_all()

    def stop(self, task: str, epoch: int, reason: str, cause: Cause | None, grace_s: float) -> None:
        with self._changed:
            self.stopped.append((task, epoch, reason, cause))
            if self.obeys_stops and self._on(task, epoch):
                outcome = Outcome.INTERRUPTED if reason == "interrupted" else Outcome(reason)
                self._end(RunEnded(task, epoch, outcome, cause if outcome is Outcome.INTERRUPTED else None), boot_s())
            self._changed.notify_all()

    def rebind(self, partition: int, old_nonce: str, new_nonce: str) -> None:
        with self._changed:
            self._expire()
            self.rebound.append((partition, old_nonce, new_nonce))
            for life in self.lives.values():
                if life.order.partition == partition and life.nonce == old_nonce and life.ended_s is None:
                    # The deadline stays where the old lease put it until a renewal under the new nonce is proven.
                    self._leases.setdefault((partition, new_nonce), self._leases[partition, old_nonce])
                    life.nonce = new_nonce

    def holds(self, task: str, epoch: int) -> bool:
        with self._changed:
            self._expire()
            return self._on(task, epoch)

    def beat(self) -> None:
        self.beats += 1

    def wait(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._reports), timeout_s)

    def take(self) -> list[RunReport]:
        with self._changed:
            self._expire()
            reports, self._reports = self._reports, []
            return reports

    def in_flight(self) -> int:
        with self._changed:
            return sum(life.ended_s is None for life in self.lives.values())

    def room(self) -> int:
        return max(0, self.capacity - self.in_flight())

    def close(self, grace_s: float) -> None:
        with self._changed:
            for (task, epoch), life in self.lives.items():
                if life.ended_s is None:
                    self._end(RunEnded(task, epoch, Outcome.INTERRUPTED, Cause.STOPPED), boot_s())

    # -- what tests call ----------------------------------------------------------------------------------------------

    def finish(self, task: str, outcome: Outcome = Outcome.SUCCEEDED, result: object = None) -> None:
        """The run of this task that is on ends by itself."""
        with self._changed:
            self._expire()
            epoch = next(epoch for (name, epoch), life in self.lives.items() if name == task and life.ended_s is None)
            self._end(RunEnded(task, epoch, outcome, None, result), boot_s())
            self._changed.notify_all()

    def starts_of(self, task: str) -> list[int]:
        """The epochs of this task that were started, in their order."""
        with self._changed:
            return [order.epoch for order in self.launched if order.task == task]

    def intervals(self, task: str) -> list[tuple[float, float]]:
        """When runs of the task lived, by the boot clock; one that is on ends at its deadline as it stands."""
        with self._changed:
            return [
                (life.began_s, life.ended_s if life.ended_s is not None else self._deadline_s(life))
                for (name, _epoch), life in self.lives.items()
                if name == task
            ]

    # -- inside -----------------------------------------------------------------------------------------------------

    def _launch(self, order: RunOrder) -> None:
        now_s = boot_s()
        if (order.task, order.epoch) in self.lives:
            self._refuse(order, repeated=True)
            return
        life = Life(order, order.nonce, now_s)
        if (order.partition, order.nonce) not in self._leases or self._deadline_s(life) <= now_s:
            self._refuse(order, repeated=False)
            return
        self.launched.append(order)
        self.lives[order.task, order.epoch] = life
        end = self.at_once(order) if self.at_once is not None else None
        if end is not None:
            self._end(end, now_s)

    def _refuse(self, order: RunOrder, *, repeated: bool) -> None:
        refusal = Refused(order.task, order.epoch, repeated)
        self.refused.append(refusal)
        self._reports.append(refusal)

    def _on(self, task: str, epoch: int) -> bool:
        life = self.lives.get((task, epoch))
        return life is not None and life.ended_s is None

    def _end(self, report: RunEnded, at_s: float) -> None:
        self.lives[report.task, report.epoch].ended_s = at_s
        self._reports.append(report)

    def _deadline_s(self, life: Life) -> float:
        began_s = self._leases[life.order.partition, life.nonce]
        return began_s + life.order.lease_ttl_s - self.margin_s

    def _expire(self) -> None:
        for (task, epoch), life in self.lives.items():
            if life.ended_s is None and self._deadline_s(life) <= boot_s():
                self._end(RunEnded(task, epoch, Outcome.INTERRUPTED, Cause.FENCED), self._deadline_s(life))


def succeed(order: RunOrder) -> RunEnded:
    """For `at_once`: every run succeeds as soon as it starts."""
    return RunEnded(order.task, order.epoch, Outcome.SUCCEEDED)


def overlaps(*runners: FakeRunners, task: str) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Pairs of runs of one task, of whatever lane, that lived at the same time."""
    lives = sorted(life for each in runners for life in each.intervals(task))
    return [(one, other) for one, other in pairwise(lives) if other[0] < one[1]]

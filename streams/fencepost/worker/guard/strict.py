"""The strict stop: the runner holds a kernel timer of its own, so that it cannot run on after it was frozen and thawed.

A thread re-arms it as the leases in the table move. Code that holds the interpreter lock longer than a lease is killed.
"""

from __future__ import annotations

import threading
from collections.abc import Set

from fencepost.worker.guard import linux
from fencepost.worker.guard.deadlines import DIE_EARLY_S
from fencepost.worker.guard.page import LeaseTable

_SOONEST_S = 0.02
_NEVER = float("inf")


class StrictStop:
    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        self._timer = linux.KillTimer()
        self._held: Set[tuple[int, float]] = frozenset()  # slot and life_s of the leases that runs here are under
        self._wake_at = 0.0  # when the thread will look again
        self._changed = threading.Condition()
        threading.Thread(target=self._keep, name="fencepost-strict", daemon=True).start()

    def hold(self, leases: Set[tuple[int, float]]) -> None:
        """Call before the first instruction of a run under these: the timer stands when this returns. Empty: disarm."""
        with self._changed:
            self._held = leases
            if self._look_at(self._arm()) < self._wake_at:
                self._changed.notify()  # not at every batch: the thread looks by itself several times within a lease

    def _arm(self) -> float:
        if not self._held:
            self._timer.disarm()
            return _NEVER
        at = min(self._table.get(slot) + life_s for slot, life_s in self._held) - DIE_EARLY_S
        self._timer.arm(at)
        return at

    def _look_at(self, at: float) -> float:
        """Half of what is left from now: a renewal comes several times within a lease."""
        now = linux.boot_s()
        return now + max(_SOONEST_S, (at - now) / 2)

    def _keep(self) -> None:
        with self._changed:
            while True:
                self._wake_at = self._look_at(self._arm())
                self._changed.wait(None if self._wake_at == _NEVER else self._wake_at - linux.boot_s())

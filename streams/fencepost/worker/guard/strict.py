"""The strict stop: the runner holds a kernel timer of its own, so that it cannot run on after it was frozen and thawed.

A thread re-arms it as the leases in the table move. Code that holds the interpreter lock longer than a lease is killed.
"""

from __future__ import annotations

import threading

from fencepost.worker.guard import linux
from fencepost.worker.guard.deadlines import DIE_EARLY_S
from fencepost.worker.guard.page import LeaseTable

_SOONEST_S = 0.02


class StrictStop:
    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        self._timer = linux.KillTimer()
        self._runs: dict[int, tuple[int, float]] = {}  # token -> slot, life_s
        self._changed = threading.Condition()
        threading.Thread(target=self._keep, name="fencepost-strict", daemon=True).start()

    def begin(self, token: int, slot: int, life_s: float) -> None:
        """Call before the run's first instruction: the timer stands when this returns."""
        with self._changed:
            self._runs[token] = slot, life_s
            self._arm()
            self._changed.notify()

    def end(self, token: int) -> None:
        with self._changed:
            self._runs.pop(token, None)
            self._arm()

    def _arm(self) -> float | None:
        if not self._runs:
            self._timer.disarm()
            return None
        at = min(self._table.get(slot) + life_s for slot, life_s in self._runs.values()) - DIE_EARLY_S
        self._timer.arm(at)
        return at

    def _keep(self) -> None:
        with self._changed:
            while True:
                at = self._arm()
                # Half of what is left: a renewal comes several times within a lease.
                self._changed.wait(None if at is None else max(_SOONEST_S, (at - linux.boot_s()) / 2))

"""Several schedules of one task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from fencepost.core.schedule.adjusted import Adjusted
from fencepost.core.schedule.cron import Cron
from fencepost.core.schedule.errors import ScheduleError
from fencepost.core.schedule.every import Every
from fencepost.core.schedule.layers import count_one_by_one
from fencepost.core.schedule.once import Once

MOST: Final = 32
_COUNTED_ONE_BY_ONE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Several:
    """The slots of all `schedules`, two to 32 of them; a time that several have is one slot. Raises ScheduleError."""

    schedules: tuple[Cron | Every | Once | Adjusted, ...]

    def __post_init__(self) -> None:
        if not 2 <= len(self.schedules) <= MOST:
            raise ScheduleError("schedule", f"has {len(self.schedules)} schedules; allowed: 1 to {MOST}")
        for place, one in enumerate(self.schedules, start=1):
            if not isinstance(one, Cron | Every | Once | Adjusted):
                raise ScheduleError("schedule", f"number {place} is a {type(one).__name__}; allowed: Cron, Every, Once")

    @property
    def needs_task(self) -> bool:
        return any(one.needs_task for one in self.schedules)

    @property
    def one_shot(self) -> bool:
        return False  # what is armed for a time that is past would hold up the others

    @property
    def zone(self) -> str:
        zones = {one.zone for one in self.schedules}
        return zones.pop() if len(zones) == 1 else "UTC"

    @property
    def countable(self) -> int:
        return _COUNTED_ONE_BY_ONE

    @property
    def fingerprint(self) -> str:
        return " + ".join(sorted({one.fingerprint for one in self.schedules}))

    def for_task(self, task: str) -> Several:
        schedules = tuple(one.for_task(task) for one in self.schedules)
        same = all(one is other for one, other in zip(schedules, self.schedules, strict=True))
        return self if same else Several(schedules)

    def next_after(self, after_ms: int) -> int | None:
        slots = [one.next_after(after_ms) for one in self.schedules]
        return min((slot_ms for slot_ms in slots if slot_ms is not None), default=None)

    def latest_at_or_before(self, at_ms: int, not_before_ms: int) -> int | None:
        slots = [one.latest_at_or_before(at_ms, not_before_ms) for one in self.schedules]
        return max((slot_ms for slot_ms in slots if slot_ms is not None), default=None)

    def count(self, after_ms: int, until_ms: int, limit: int) -> int:
        """At most `countable` steps, unless the slots are all of one schedule."""
        counts = [count for one in self.schedules if (count := one.count(after_ms, until_ms, limit))]
        if len(counts) < 2:
            return counts[0] if counts else 0
        return count_one_by_one(self, after_ms, until_ms, limit)

    def to_json(self) -> list[dict[str, Any]]:
        """The objects of the schedules, in a list."""
        return [one.to_json() for one in self.schedules]


def several(schedules: Iterable[Cron | Every | Once | Adjusted]) -> Cron | Every | Once | Adjusted | Several:
    """The schedules as one; a single one is itself. Raises ScheduleError."""
    found = tuple(schedules)
    return found[0] if len(found) == 1 else Several(found)

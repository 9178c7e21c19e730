"""The next slots of a schedule, for people to look at."""

from __future__ import annotations

from fencepost.core.schedule.form import Schedule

MAX_COUNT = 10_000


def upcoming(schedule: Schedule, after_ms: int, count: int) -> list[int]:
    """The next `count` slots strictly after `after_ms`, in milliseconds; fewer where the schedule ends.

    Raises ValueError for a count outside 1 to 10,000.
    """
    if not 1 <= count <= MAX_COUNT:
        raise ValueError(f"count: {count!r} is not allowed; allowed: 1 to {MAX_COUNT}")
    slots: list[int] = []
    while len(slots) < count and (slot_ms := schedule.next_after(after_ms)) is not None:
        slots.append(slot_ms)
        after_ms = slot_ms
    return slots

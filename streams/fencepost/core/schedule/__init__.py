"""Schedules: when a task's slots are.

A `Schedule` is a frozen record: `Cron`, `Every` or `Once`; `Adjusted`, which is one of these between bounds, on the
open days of a calendar or with jitter; or `Several` of all these. They have the same methods:

- `next_after(after_ms)`: the first slot strictly after, or None when none is left;
- `latest_at_or_before(at_ms, not_before_ms)`: the newest slot in (not_before_ms, at_ms], or None;
- `count(after_ms, until_ms, limit)`: how many slots lie in (after_ms, until_ms], at most `limit`;
- `for_task(task)`: the schedule as the task with this ID has it, where slots depend on the ID (`H` in cron), else
  itself; `needs_task`: whether they do and no ID is given yet;
- `countable`: up to how many `count` is bounded work; more is to be told as "at least";
- `one_shot`: whether it has one slot, which counts even if it was past when the schedule came;
- `zone`: in which zone people would want to see its slots;
- `fingerprint`: a text that is the same for schedules with the same slots by the same rule, to notice a changed one;
- `to_json()` and `from_json()`: plain dicts, as they stand in records and files.

Slots lie within the years 1970 to 9999. The work of each call does not grow with the number of slots in between,
nor with the distance of the next one.
A schedule that cannot be accepted, or that would never have a slot, raises `ScheduleError` when it is made.
"""

from __future__ import annotations

from fencepost.core.schedule.adjusted import Adjusted
from fencepost.core.schedule.cron import Cron
from fencepost.core.schedule.errors import ScheduleError
from fencepost.core.schedule.every import Every
from fencepost.core.schedule.form import Schedule, schedule_from_json
from fencepost.core.schedule.once import Once
from fencepost.core.schedule.several import Several, several
from fencepost.core.schedule.upcoming import upcoming
from fencepost.core.schedule.work_calendar import Calendar, OnClosed

__all__ = [
    "Adjusted",
    "Calendar",
    "Cron",
    "Every",
    "OnClosed",
    "Once",
    "Schedule",
    "ScheduleError",
    "Several",
    "schedule_from_json",
    "several",
    "upcoming",
]

"""A schedule between bounds, on the open days of a calendar, and later by a time that the task's ID chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.core.schedule.cron import Cron
from fencepost.core.schedule.cron_hash import number_of
from fencepost.core.schedule.errors import ScheduleError
from fencepost.core.schedule.every import Every
from fencepost.core.schedule.layers import Between, Later, Slots
from fencepost.core.schedule.once import Once
from fencepost.core.schedule.open_days import MovedDays, OpenDays, WallDays
from fencepost.core.schedule.work_calendar import Calendar, OnClosed
from fencepost.core.schedule.zone_clock import zone_clock
from fencepost.core.times import MAX_MS, format_ms, parse_duration, parse_rfc3339, shown

KEYS: Final = ("start", "end", "jitter_s", "calendar")
LONGEST_JITTER_S: Final = 7 * 86_400.0
_COUNTED_ONE_BY_ONE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Adjusted:
    """`schedule` with what is given of the others, in this order.

    calendar: slots on closed days are left out, or move to an open one. start_ms, end_ms: only slots from `start_ms` on
    and before `end_ms`. jitter_s: every slot comes later by one time from 0 to below `jitter_s`, which the task's ID
    chooses (in whole seconds where `jitter_s` is); the same for all slots of the task, so that they stay apart and in
    order. The slot's time is the later one. task: that ID; `for_task` gives it. Without one nothing is added.

    Raises ScheduleError, also where no slot is left.
    """

    schedule: Cron | Every | Once
    start_ms: int | None = None
    end_ms: int | None = None
    jitter_s: float = 0.0
    calendar: Calendar | None = None
    task: str | None = None
    _slots: Slots = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Cron | Every | Once):
            raise ScheduleError("schedule", f"must be Cron, Every or Once, not {type(self.schedule).__name__}")
        for name in ("start", "end"):
            value = getattr(self, f"{name}_ms")
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_MS
            ):
                raise ScheduleError(name, f"{shown(value)} is no time from 1970 to 9999 in whole milliseconds")
        if self.start_ms is not None and self.end_ms is not None and self.start_ms >= self.end_ms:
            raise ScheduleError("end", f"{format_ms(self.end_ms)} is not after start, {format_ms(self.start_ms)}")
        _check_jitter(self.jitter_s)
        if self.calendar is not None and not isinstance(self.calendar, Calendar):
            raise ScheduleError("calendar", f"must be a Calendar, not {type(self.calendar).__name__}")
        if self.task is not None:
            object.__setattr__(self, "schedule", self.schedule.for_task(self.task))
        object.__setattr__(self, "_slots", self._layers())
        if self.next_after(-1) is None:
            raise ScheduleError("schedule", "never fires: no slot is left by start, end and calendar")

    @property
    def needs_task(self) -> bool:
        return self.task is None and (self.jitter_s > 0 or self.schedule.needs_task)

    @property
    def one_shot(self) -> bool:
        return self.schedule.one_shot

    @property
    def zone(self) -> str:
        return self.schedule.zone

    @property
    def countable(self) -> int:
        moves = self.calendar is not None and self.calendar.on_closed is not OnClosed.SKIP
        return _COUNTED_ONE_BY_ONE if moves else self.schedule.countable

    @property
    def fingerprint(self) -> str:
        bounds = f"{'' if self.start_ms is None else self.start_ms}..{'' if self.end_ms is None else self.end_ms}"
        calendar = "" if self.calendar is None else f" on {self.calendar.fingerprint}"
        return f"{self.schedule.fingerprint} in {bounds} later {self._later_ms()}{calendar}"

    def for_task(self, task: str) -> Adjusted:
        if self.jitter_s == 0 and self.schedule.for_task(task) is self.schedule:
            return self
        return Adjusted(self.schedule, self.start_ms, self.end_ms, self.jitter_s, self.calendar, task)

    def next_after(self, after_ms: int) -> int | None:
        return self._slots.next_after(after_ms)

    def latest_at_or_before(self, at_ms: int, not_before_ms: int) -> int | None:
        return self._slots.latest_at_or_before(at_ms, not_before_ms)

    def count(self, after_ms: int, until_ms: int, limit: int) -> int:
        return self._slots.count(after_ms, until_ms, limit)

    def to_json(self) -> dict[str, Any]:
        """The schedule's own object, and what is given of `start`, `end`, `jitter_s` and `calendar`."""
        body = self.schedule.to_json()
        if self.start_ms is not None:
            body["start"] = format_ms(self.start_ms)
        if self.end_ms is not None:
            body["end"] = format_ms(self.end_ms)
        if self.jitter_s:
            body["jitter_s"] = int(self.jitter_s) if self.jitter_s == int(self.jitter_s) else self.jitter_s
        if self.calendar is not None:
            body["calendar"] = self.calendar.to_json()
        return body

    def _layers(self) -> Slots:
        slots: Slots = self.schedule
        if self.calendar is not None:
            days = WallDays(zone_clock(self.calendar.time_zone or self.schedule.zone))
            layer = OpenDays if self.calendar.on_closed is OnClosed.SKIP else MovedDays
            slots = layer(slots, self.calendar, days)
        if self.start_ms is not None or self.end_ms is not None:
            slots = Between(slots, self.start_ms or 0, MAX_MS + 1 if self.end_ms is None else self.end_ms)
        return Later(slots, later_ms) if (later_ms := self._later_ms()) else slots

    def _later_ms(self) -> int:
        if self.task is None or not self.jitter_s:
            return 0
        below_ms = round(self.jitter_s * 1000)
        unit_ms = 1000 if below_ms % 1000 == 0 else 1
        return number_of(self.task, "jitter") % (below_ms // unit_ms) * unit_ms


def adjusted_from_json(schedule: Cron | Every | Once, body: Mapping[str, Any]) -> Adjusted:
    """`schedule` with the keys of `KEYS` that `body` has. Raises ScheduleError."""
    start, end, jitter_s, calendar = (body.get(name) for name in KEYS)
    return Adjusted(
        schedule,
        None if start is None else _time("start", start),
        None if end is None else _time("end", end),
        0.0 if jitter_s is None else _duration(jitter_s),
        None if calendar is None else Calendar.from_json(calendar),
    )


def _time(name: str, text: str) -> int:
    try:
        return parse_rfc3339(text)
    except ValueError as error:
        raise ScheduleError(name, str(error)) from error


def _duration(value: str | float) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ScheduleError("jitter_s", str(error)) from error


def _check_jitter(jitter_s: object) -> None:
    if isinstance(jitter_s, bool) or not isinstance(jitter_s, int | float):
        raise ScheduleError("jitter_s", f"{shown(jitter_s)} is not a number of seconds")
    if jitter_s != 0 and not 0.001 <= jitter_s <= LONGEST_JITTER_S:
        raise ScheduleError("jitter_s", f"{shown(jitter_s)} s is out of range; allowed: 0, and 0.001 s to 7 days")

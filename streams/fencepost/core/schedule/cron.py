"""Slots by a cron expression in a time zone.

The daylight saving rule is that of ISC cron, as cronie has it. An expression whose minute or hour field starts with `*`
follows the wall clock: what is missing in a gap does not come, what is repeated comes twice. Any other expression names
fixed times: a fixed time that falls in a gap of up to three hours comes once, right after the gap, however many of its
times the gap holds; a fixed time that the clock shows twice comes once, the first time. Seconds change nothing in that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fencepost.core.schedule.cron_fields import DAY_OF_WEEK, FIELDS, YEAR, CronField, FieldKind, choose, parse_fields
from fencepost.core.schedule.cron_walk import times_of_day
from fencepost.core.schedule.day_forms import DayForm
from fencepost.core.schedule.day_rule import ALL_YEARS, DayRule
from fencepost.core.schedule.errors import ScheduleError
from fencepost.core.schedule.json_keys import require_only
from fencepost.core.schedule.layers import ANY_NUMBER
from fencepost.core.schedule.wall_times import WallTimes
from fencepost.core.schedule.zone_clock import Stretch, ZoneClock, zone_clock
from fencepost.core.times import MAX_S

_LONGEST_GAP_S = 3 * 3600
# Real time differs from wall time by less, and the clock is put on or back by less, in every zone.
_NEAR_S = 2 * 86_400
_BEGIN_S, _END_S = -_NEAR_S, MAX_S + _NEAR_S


@dataclass(frozen=True, slots=True)
class Cron:
    """Five to seven fields (see `cron_fields`) in a zone of the time zone database. Raises ScheduleError.

    Equal are those written equally; `fingerprint` is equal for those that mean the same. task: the ID that chooses what
    `H` stands for; `for_task` gives it. Without one, `H` stands for every value that an ID may choose.
    """

    expression: str
    time_zone: str = "UTC"
    task: str | None = None
    _plan: CronPlan = field(init=False, repr=False, compare=False)
    _hashed: bool = field(init=False, repr=False, compare=False)  # whether the slots depend on the task's ID

    def __post_init__(self) -> None:
        for name, value in (("cron", self.expression), ("time_zone", self.time_zone)):
            if not isinstance(value, str):
                raise ScheduleError(name, f"must be a text, not {type(value).__name__}")
        fields = _fields_of(self.expression)
        object.__setattr__(self, "_hashed", any(one.hashed for one in fields))
        if not self._hashed:
            object.__setattr__(self, "task", None)
        object.__setattr__(self, "_plan", _plan_of(choose(fields, self.task), self.time_zone))

    @property
    def needs_task(self) -> bool:
        """Whether the slots depend on the ID of the task, which is not given yet."""
        return self.task is None and self._hashed

    @property
    def one_shot(self) -> bool:
        return False

    @property
    def zone(self) -> str:
        return self.time_zone

    @property
    def countable(self) -> int:
        return ANY_NUMBER

    def for_task(self, task: str) -> Cron:
        """The schedule as the task with this ID has it; itself where that makes no difference. Raises ScheduleError."""
        return Cron(self.expression, self.time_zone, task) if self._hashed else self

    @property
    def fingerprint(self) -> str:
        return self._plan.fingerprint

    def next_after(self, after_ms: int) -> int | None:
        slot_s = self._plan.first(after_ms // 1000 + 1)
        return None if slot_s is None else slot_s * 1000

    def latest_at_or_before(self, at_ms: int, not_before_ms: int) -> int | None:
        slot_s = self._plan.last(not_before_ms // 1000 + 1, at_ms // 1000)
        return None if slot_s is None else slot_s * 1000

    def count(self, after_ms: int, until_ms: int, limit: int) -> int:
        return self._plan.count(after_ms // 1000 + 1, until_ms // 1000, limit)

    def to_json(self) -> dict[str, Any]:
        """`{"cron": "0 2 * * *", "time_zone": "Europe/Berlin"}`"""
        return {"cron": self.expression, "time_zone": self.time_zone}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Cron:
        """The reverse of `to_json`; without `time_zone` it is UTC. Raises ScheduleError."""
        require_only(body, required="cron", optional="time_zone")
        time_zone = body.get("time_zone")
        return cls(body["cron"], "UTC" if time_zone is None else time_zone)


@dataclass(frozen=True, slots=True)
class CronPlan:
    """What an expression in a zone comes to; shared by all tasks that have the same. In seconds since the epoch."""

    walls: WallTimes
    clock: ZoneClock
    fixed: bool
    fingerprint: str

    def first(self, from_s: int) -> int | None:
        """The first slot at or after `from_s`."""
        from_s = max(from_s, 0)
        while from_s <= MAX_S:
            stretch = self.clock.stretch_at(from_s)
            offset_s = stretch.offset_s
            if from_s == stretch.start_s and self._has_slot_after_gap(stretch):
                return from_s
            wall_s = self.walls.first(self._wall_from(stretch, from_s), stretch.end_s + offset_s)
            if wall_s is not None:
                return wall_s - offset_s
            from_s = self._passed_over(stretch)
        return None

    def last(self, from_s: int, until_s: int) -> int | None:
        """The last slot in [from_s, until_s]."""
        from_s, until_s = max(from_s, 0), min(until_s, MAX_S)
        while until_s >= from_s:
            stretch = self.clock.stretch_at(until_s)
            start_s, offset_s = max(stretch.start_s, from_s), stretch.offset_s
            wall_s = self.walls.last(self._wall_from(stretch, start_s), until_s + 1 + offset_s)
            if wall_s is not None:
                return wall_s - offset_s
            if start_s == stretch.start_s and self._has_slot_after_gap(stretch):
                return start_s
            earlier_s = self.walls.last(_BEGIN_S, stretch.start_s + offset_s + _NEAR_S)
            until_s = -1 if earlier_s is None else min(stretch.start_s - 1, earlier_s + _NEAR_S)
        return None

    def count(self, from_s: int, until_s: int, limit: int) -> int:
        """How many slots lie in [from_s, until_s], at most `limit`."""
        from_s, until_s = max(from_s, 0), min(until_s, MAX_S)
        found = 0
        while from_s <= until_s and found < limit:
            stretch = self.clock.stretch_at(from_s)
            offset_s = stretch.offset_s
            wall_s, end_wall_s = self._wall_from(stretch, from_s), min(stretch.end_s, until_s + 1) + offset_s
            within = self.walls.count(wall_s, end_wall_s)
            if from_s == stretch.start_s and self._has_slot_after_gap(stretch):
                # A time that is right after the gap anyway is the same slot.
                within += self.walls.first(wall_s, wall_s + 1) is None
            found += within
            from_s = stretch.end_s if within else self._passed_over(stretch)
        return max(0, min(found, limit))

    def _passed_over(self, stretch: Stretch) -> int:
        """The time after a stretch from which on slots may come; years without any are passed over at once."""
        later_s = self.walls.first(stretch.end_s + stretch.offset_s - _NEAR_S, _END_S)
        return MAX_S + 1 if later_s is None else max(stretch.end_s, later_s - _NEAR_S)

    def _wall_from(self, stretch: Stretch, from_s: int) -> int:
        """The wall time from which on times count: for fixed times only where the clock had not come before."""
        wall_s = from_s + stretch.offset_s
        return max(wall_s, stretch.seen_s) if self.fixed else wall_s

    def _has_slot_after_gap(self, stretch: Stretch) -> bool:
        begin_wall_s = stretch.start_s + stretch.offset_s
        return (
            self.fixed
            and 0 < begin_wall_s - stretch.seen_s <= _LONGEST_GAP_S
            and self.walls.first(stretch.seen_s, begin_wall_s) is not None
        )


@lru_cache(maxsize=16_384)
def _fields_of(expression: str) -> tuple[CronField, ...]:
    return parse_fields(expression)


@lru_cache(maxsize=16_384)
def _plan_of(fields: tuple[CronField, ...], time_zone: str) -> CronPlan:
    clock = zone_clock(time_zone)
    second, minute, hour, day_of_month, month, day_of_week, year = fields
    both = day_of_month.star or day_of_week.star
    forms = day_of_month.forms, day_of_week.forms
    days = _day_rule(day_of_month.bits, month.bits, day_of_week.bits, both, year.bits, forms)
    if not days.ever_matches():
        years = "" if year.bits == YEAR.everything else f" of the years {_listed(year)}"
        weekday = (
            f" that is among {_listed(day_of_week)} too" if both and day_of_week.bits != DAY_OF_WEEK.everything else ""
        )
        raise ScheduleError(
            "cron",
            f"never fires: no month among {_listed(month)}{years} has a day among {_listed(day_of_month)}{weekday}; "
            "allowed: days of the month that occur",
        )
    fixed = not (minute.star or hour.star)
    walls = WallTimes(days, times_of_day(second.values, minute.values, hour.values))
    return CronPlan(walls, clock, fixed, _fingerprint(fields, time_zone))


@lru_cache(maxsize=4096)
def _day_rule(
    days_of_month: int,
    months: int,
    weekdays: int,
    both: bool,
    years: int,
    forms: tuple[tuple[DayForm, ...], tuple[DayForm, ...]],
) -> DayRule:
    years = ALL_YEARS if years == YEAR.everything else years
    return DayRule(months, days_of_month, weekdays, both, years, *forms)


def _fingerprint(fields: tuple[CronField, ...], time_zone: str) -> str:
    """The expression in one fixed way of writing: `*` for a star with all values, `*:` before other stars, numbers.

    Five fields where the second is 0 and the year any; else all seven.
    """
    texts = [_canonical(kind, field) for kind, field in zip(FIELDS, fields, strict=True)]
    if fields[0].bits == 1 and texts[-1] == "*":
        texts = texts[1:-1]
    return f"cron {' '.join(texts)} {time_zone}"


def _canonical(kind: FieldKind, cron_field: CronField) -> str:
    decides = kind.key not in ("second", "month", "year")  # In these a star decides nothing.
    if cron_field.bits == kind.everything and (cron_field.star or not decides):
        return "*"
    return f"*:{_listed(cron_field)}" if cron_field.star and decides else _listed(cron_field)


def _listed(cron_field: CronField) -> str:
    """`1-5,8,L`: the values, with runs of three and more as ranges, and then the days that depend on the month."""
    values = cron_field.values
    parts = []
    start = 0
    for place, value in enumerate(values):
        if place + 1 < len(values) and values[place + 1] == value + 1:
            continue
        run = values[start : place + 1]
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(one) for one in run]
        start = place + 1
    return ",".join([*parts, *(form.text for form in cron_field.forms)])

"""The wall times a cron expression matches, on a calendar without zones."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.core.schedule.day_rule import DayRule
from fencepost.core.schedule.times_of_day import TimesOfDay

_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class WallTimes:
    """The product of days and times of day.

    All wall times are seconds since 1970-01-01T00:00, and all spans are half-open.
    """

    days: DayRule
    times: TimesOfDay

    def first(self, from_s: int, until_s: int) -> int | None:
        """The first matching wall time in [from_s, until_s)."""
        day, time_s = divmod(from_s, _DAY_S)
        number = self.times.before(time_s)
        if number == len(self.times) or not self.days.matches(day):
            later = self.days.first(day + 1, (until_s - 1) // _DAY_S)
            if later is None:
                return None
            day, number = later, 0
        wall_s = day * _DAY_S + self.times[number]
        return wall_s if wall_s < until_s else None

    def last(self, from_s: int, until_s: int) -> int | None:
        """The last matching wall time in [from_s, until_s)."""
        day, time_s = divmod(until_s - 1, _DAY_S)
        number = self.times.before(time_s + 1) - 1
        if number < 0 or not self.days.matches(day):
            earlier = self.days.last(from_s // _DAY_S, day - 1)
            if earlier is None:
                return None
            day, number = earlier, -1
        wall_s = day * _DAY_S + self.times[number]
        return wall_s if wall_s >= from_s else None

    def count(self, from_s: int, until_s: int) -> int:
        """How many matching wall times lie in [from_s, until_s)."""
        if from_s >= until_s:
            return 0
        first_day, first_time_s = divmod(from_s, _DAY_S)
        last_day, last_time_s = divmod(until_s - 1, _DAY_S)
        found = self.days.count(first_day, last_day) * len(self.times)
        found -= self.times.before(first_time_s) if self.days.matches(first_day) else 0
        found -= len(self.times) - self.times.before(last_time_s + 1) if self.days.matches(last_day) else 0
        return found

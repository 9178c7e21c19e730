"""The wall times a cron expression matches, on a calendar without zones."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from fencepost.core.schedule.day_rule import DayRule

_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class WallTimes:
    """The product of days and times of day.

    `times` is not empty: seconds after midnight, sorted. All wall times are seconds since 1970-01-01T00:00, and all
    spans are half-open.
    """

    days: DayRule
    times: tuple[int, ...]

    def first(self, from_s: int, until_s: int) -> int | None:
        """The first matching wall time in [from_s, until_s)."""
        day, time_s = divmod(from_s, _DAY_S)
        if time_s > self.times[-1] or not self.days.matches(day):
            later = self.days.first(day + 1, (until_s - 1) // _DAY_S)
            if later is None:
                return None
            wall_s = later * _DAY_S + self.times[0]
        else:
            wall_s = day * _DAY_S + self.times[bisect_left(self.times, time_s)]
        return wall_s if wall_s < until_s else None

    def last(self, from_s: int, until_s: int) -> int | None:
        """The last matching wall time in [from_s, until_s)."""
        day, time_s = divmod(until_s - 1, _DAY_S)
        if time_s < self.times[0] or not self.days.matches(day):
            earlier = self.days.last(from_s // _DAY_S, day - 1)
            if earlier is None:
                return None
            wall_s = earlier * _DAY_S + self.times[-1]
        else:
            wall_s = day * _DAY_S + self.times[bisect_left(self.times, time_s + 1) - 1]
        return wall_s if wall_s >= from_s else None

    def count(self, from_s: int, until_s: int, limit: int) -> int:
        """How many matching wall times lie in [from_s, until_s), at most `limit`."""
        if from_s >= until_s:
            return 0
        first_day, first_time_s = divmod(from_s, _DAY_S)
        last_day, last_time_s = divmod(until_s - 1, _DAY_S)
        before = bisect_left(self.times, first_time_s)
        after = len(self.times) - bisect_left(self.times, last_time_s + 1)
        days_needed = limit // len(self.times) + 3  # with the part of the first and of the last day
        found = self.days.count(first_day, last_day, days_needed) * len(self.times)
        found -= before if self.days.matches(first_day) else 0
        # Right for a count that stopped early too: it is above the limit by more than the part of one day.
        found -= after if self.days.matches(last_day) else 0
        return max(0, min(found, limit))

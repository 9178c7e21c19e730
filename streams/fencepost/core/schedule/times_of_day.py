"""The times of day a cron expression matches: hours, minutes and seconds that do not depend on each other."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimesOfDay:
    """The product of three sorted lists, none of them empty, each in seconds: what one second each is too much to list.

    `hours` are 0 to 82,800 in steps of 3,600, `minutes` 0 to 3,540 in steps of 60, `seconds` 0 to 59. The times have
    numbers from 0, in order.
    """

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.hours) * len(self.minutes) * len(self.seconds)

    def before(self, time_s: int) -> int:
        """How many times lie before `time_s`, which is also the number of the first that does not."""
        number = 0
        for values, step in ((self.hours, 3600), (self.minutes, 60), (self.seconds, 1)):
            whole, time_s = divmod(time_s, step)
            place = bisect_left(values, whole * step)
            number = number * len(values) + place
            if place == len(values) or values[place] != whole * step:
                return number * self._below(step)
        return number

    def __getitem__(self, number: int) -> int:
        """The time with a number, in seconds after midnight; as with a list, -1 is the last."""
        rest, second = divmod(number % len(self), len(self.seconds))
        hour, minute = divmod(rest, len(self.minutes))
        return self.hours[hour] + self.minutes[minute] + self.seconds[second]

    def _below(self, step: int) -> int:
        """How many times share one value of the list with this step."""
        per_minute = len(self.seconds)
        return len(self.minutes) * per_minute if step == 3600 else per_minute if step == 60 else 1

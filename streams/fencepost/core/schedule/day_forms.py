"""Days that depend on the shape of the month: the last day, the nearest working day, the second Tuesday.

Each form gives the days of a month of one shape as bits, bit 0 for the first of the month. Where a month has no such
day (a fifth Friday, the 31st, a day before the last that would lie in the month before), it gives none: a short month
is left out, never rounded. A working day is one from Monday to Friday. Weekdays are numbers, 0 for Sunday.
"""

from __future__ import annotations

from dataclasses import dataclass

_SUNDAY, _SATURDAY = 0, 6


@dataclass(frozen=True, slots=True)
class FromLast:
    """`L`, `L-3`; nearest: `LW`, `L-3W`, the working day nearest to it."""

    back: int = 0
    nearest: bool = False

    @property
    def text(self) -> str:
        return f"L{f'-{self.back}' if self.back else ''}{'W' if self.nearest else ''}"

    def days(self, first_weekday: int, length: int) -> int:
        day = length - self.back
        if day < 1:
            return 0
        return 1 << (_nearest(day, first_weekday, length) if self.nearest else day) - 1


@dataclass(frozen=True, slots=True)
class NearestWorkingDay:
    """`15W`: the working day nearest to the 15th, within the month."""

    day: int

    @property
    def text(self) -> str:
        return f"{self.day}W"

    def days(self, first_weekday: int, length: int) -> int:
        return 0 if self.day > length else 1 << _nearest(self.day, first_weekday, length) - 1


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """`2#3`: the third Tuesday."""

    weekday: int
    number: int

    @property
    def text(self) -> str:
        return f"{self.weekday}#{self.number}"

    def days(self, first_weekday: int, length: int) -> int:
        day = (self.weekday - first_weekday) % 7 + 7 * (self.number - 1)
        return 1 << day if day < length else 0


@dataclass(frozen=True, slots=True)
class LastWeekday:
    """`5L`: the last Friday."""

    weekday: int

    @property
    def text(self) -> str:
        return f"{self.weekday}L"

    def days(self, first_weekday: int, length: int) -> int:
        last_weekday = (first_weekday + length - 1) % 7
        return 1 << length - 1 - (last_weekday - self.weekday) % 7


DayForm = FromLast | NearestWorkingDay | NthWeekday | LastWeekday


def _nearest(day: int, first_weekday: int, length: int) -> int:
    weekday = (first_weekday + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else 3
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day

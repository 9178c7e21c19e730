"""Which days a cron expression matches.

The rule is cronie's: a day field that starts with `*` is a star. If the day of the month or the day of the week is a
star, a day must match both (`*/2` with Monday: the odd days that are Mondays); if neither is, a day that matches either
will do. Days are counted from 1970-01-01, which is day 0.

Whether a day matches depends only on the month and on the month's shape: its length and the weekday of its first day.
There are 28 shapes, so the rule is worked out once per shape, as one bit per day. Forms that depend on the shape of the
month too (the last day, the nearest weekday, the second Tuesday) have their place in `_days_of_shape`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
FIRST_DAY = -1  # 1969-12-31: where the epoch is, west of Greenwich
LAST_DAY = date(9999, 12, 31).toordinal() - _EPOCH_ORDINAL
_LENGTHS = (28, 29, 30, 31)
_LENGTHS_OF_MONTH = ((31,), (28, 29), (31,), (30,), (31,), (30,), (31,), (31,), (30,), (31,), (30,), (31,))
# For each weekday (0 = Sunday), the bits of the days 1, 8, 15, 22, 29, 36 moved so that day 1 of a month is bit 0.
_EVERY_SEVENTH = sum(1 << day for day in range(0, 42, 7))


@dataclass(frozen=True, slots=True)
class DayRule:
    """The days that match; each set is given as bits: bit n for the value n.

    `months`: bits 1–12. `days_of_month`: bits 1–31. `weekdays`: bits 0–6, Sunday first.
    `both`: a day must match day of month and weekday (one of them is a star), else either will do.
    """

    months: int
    days_of_month: int
    weekdays: int
    both: bool
    _shapes: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shapes = tuple(self._days_of_shape(weekday, length) for weekday in range(7) for length in _LENGTHS)
        object.__setattr__(self, "_shapes", shapes)

    def ever_matches(self) -> bool:
        """Whether there is a day at all. Each shape that a month can have does come, within 40 years at most."""
        return any(
            self._shapes[weekday * 4 + length - 28]
            for month in range(1, 13)
            if self.months >> month & 1
            for length in _LENGTHS_OF_MONTH[month - 1]
            for weekday in range(7)
        )

    def matches(self, day: int) -> bool:
        if not FIRST_DAY <= day <= LAST_DAY:
            return False
        month, day_of_month = _month_and_day(day)
        return bool(self._bits(month) >> day_of_month & 1)

    def first(self, day: int, last: int) -> int | None:
        """The first matching day in [day, last]."""
        day, last = max(day, FIRST_DAY), min(last, LAST_DAY)
        if day > last:
            return None
        month, skipped = _month_and_day(day)
        first_of_month = day - skipped
        while first_of_month <= last:
            bits = self._bits(month) >> skipped << skipped
            if bits:
                found = first_of_month + (bits & -bits).bit_length() - 1
                return found if found <= last else None
            first_of_month += _shape(month)[1]
            month, skipped = month + 1, 0
        return None

    def last(self, first: int, day: int) -> int | None:
        """The last matching day in [first, day]."""
        first, day = max(first, FIRST_DAY), min(day, LAST_DAY)
        if day < first:
            return None
        month, day_of_month = _month_and_day(day)
        first_of_month = day - day_of_month
        kept = (2 << day_of_month) - 1
        while first_of_month + 31 > first:
            bits = self._bits(month) & kept
            if bits:
                found = first_of_month + bits.bit_length() - 1
                return found if found >= first else None
            month -= 1
            first_of_month -= _shape(month)[1]
            kept = -1
        return None

    def count(self, first: int, last: int, limit: int) -> int:
        """How many days in [first, last] match; stops at the month in which `limit` is reached."""
        first, last = max(first, FIRST_DAY), min(last, LAST_DAY)
        if first > last:
            return 0
        month, skipped = _month_and_day(first)
        first_of_month = first - skipped
        found = 0
        while found < limit:
            bits = self._bits(month) >> skipped << skipped
            if first_of_month + 31 > last:
                bits &= (2 << (last - first_of_month)) - 1
            found += bits.bit_count()
            first_of_month += _shape(month)[1]
            if first_of_month > last:
                break
            month, skipped = month + 1, 0
        return found

    def _bits(self, month: int) -> int:
        """The matching days of a month (year * 12 + month from 0); bit 0 is the first."""
        return self._shapes[_shape(month)[0]] if self.months >> (month % 12 + 1) & 1 else 0

    def _days_of_shape(self, first_weekday: int, length: int) -> int:
        """The matching days of a month of this shape, whichever month it is; bit 0 is the first of the month."""
        all_days = (1 << length) - 1
        by_date = self.days_of_month >> 1 & all_days
        by_weekday = 0
        for weekday in range(7):
            if self.weekdays >> weekday & 1:
                by_weekday |= _EVERY_SEVENTH << (weekday - first_weekday) % 7
        by_weekday &= all_days
        return by_date & by_weekday if self.both else by_date | by_weekday


def _month_and_day(day: int) -> tuple[int, int]:
    """The month (year * 12 + month from 0) and the day in it, from 0."""
    found = date.fromordinal(day + _EPOCH_ORDINAL)
    return found.year * 12 + found.month - 1, found.day - 1


@lru_cache(maxsize=4096)
def _shape(month: int) -> tuple[int, int]:
    """The number of the month's shape, and its length in days."""
    year, month_of_year = divmod(month, 12)
    first = date(year, month_of_year + 1, 1)
    length = 31 if month_of_year == 11 else (date(year, month_of_year + 2, 1) - first).days
    return first.isoweekday() % 7 * 4 + length - 28, length

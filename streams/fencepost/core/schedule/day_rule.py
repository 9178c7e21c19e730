"""Which days a cron expression matches.

The rule is cronie's: a day field that starts with `*` (or is `?`) is a star. If the day of the month or the day of the
week is a star, a day must match both (`*/2` with Monday: the odd days that are Mondays); if neither is, a day that
matches either will do. Days are counted from 1970-01-01, which is day 0.

Whether a day matches depends only on the year, the month and the month's shape: its length and the weekday of its first
day. There are 28 shapes of months and 14 of years, so the rule is worked out once per shape, as one bit per day. Years
without a match are passed over at once, and whole years are counted by shape, so no answer takes longer for being far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Final

from fencepost.core.schedule.day_forms import DayForm

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
FIRST_DAY = -1  # 1969-12-31: where the epoch is, west of Greenwich
LAST_DAY = date(9999, 12, 31).toordinal() - _EPOCH_ORDINAL
FIRST_YEAR, LAST_YEAR = 1969, 9999
ALL_YEARS: Final = (1 << LAST_YEAR + 1) - (1 << FIRST_YEAR)
_LENGTHS = (28, 29, 30, 31)
_LENGTHS_OF_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# For each weekday (0 = Sunday), the bits of the days 1, 8, 15, 22, 29, 36 moved so that day 1 of a month is bit 0.
_EVERY_SEVENTH = sum(1 << day for day in range(0, 42, 7))


@dataclass(frozen=True, slots=True)
class DayRule:
    """The days that match; each set is given as bits: bit n for the value n.

    `months`: bits 1–12. `days_of_month`: bits 1–31. `weekdays`: bits 0–6, Sunday first. `years`: bits 1969–9999.
    `both`: a day must match day of month and weekday (one of them is a star), else either will do.
    `forms_of_month` and `forms_of_week` add to the days of the month and to the weekdays.
    """

    months: int
    days_of_month: int
    weekdays: int
    both: bool
    years: int = ALL_YEARS
    forms_of_month: tuple[DayForm, ...] = ()
    forms_of_week: tuple[DayForm, ...] = ()
    _shapes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _in_year: tuple[int, ...] = field(init=False, repr=False, compare=False)  # by shape of the year: how many days
    _live_years: int = field(init=False, repr=False, compare=False)  # those with a day at all

    def __post_init__(self) -> None:
        shapes = tuple(self._days_of_shape(weekday, length) for weekday in range(7) for length in _LENGTHS)
        object.__setattr__(self, "_shapes", shapes)
        in_year = tuple(self._days_in_year(shape // 2, shape % 2) for shape in range(14))
        object.__setattr__(self, "_in_year", in_year)
        live = sum(years for years, days in zip(_years_of_shape(), in_year, strict=True) if days)
        object.__setattr__(self, "_live_years", live & self.years)

    def ever_matches(self) -> bool:
        """Whether there is a day at all, from 1970 on."""
        return bool(self._live_years >> FIRST_YEAR + 1)

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
            if month % 12 == 0 and not self._live_years >> month // 12 & 1:
                later = self._live_years >> month // 12
                if not later:
                    return None
                month += ((later & -later).bit_length() - 1) * 12
                first_of_month = _first_of(month)
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
            month, kept = month - 1, -1
            if month % 12 == 11 and not self._live_years >> month // 12 & 1:
                earlier = self._live_years & (1 << month // 12) - 1
                if not earlier:
                    return None
                month = (earlier.bit_length() - 1) * 12 + 11
            first_of_month = _first_of(month)
        return None

    def count(self, first: int, last: int) -> int:
        """How many days in [first, last] match."""
        first, last = max(first, FIRST_DAY), min(last, LAST_DAY)
        if first > last:
            return 0
        first_year, last_year = _month_and_day(first)[0] // 12, _month_and_day(last)[0] // 12
        if first_year == last_year:
            return self._count_within_year(first, last)
        found = self._count_within_year(first, _first_of(first_year * 12 + 12) - 1)
        found += self._count_within_year(_first_of(last_year * 12), last)
        between = self._live_years & (1 << last_year) - (2 << first_year)
        for years, days in zip(_years_of_shape(), self._in_year, strict=True):
            if days and between:
                found += (between & years).bit_count() * days
        return found

    def _count_within_year(self, first: int, last: int) -> int:
        month, skipped = _month_and_day(first)
        first_of_month = first - skipped
        found = 0
        while first_of_month <= last:
            bits = self._bits(month) >> skipped << skipped
            if first_of_month + 31 > last:
                bits &= (2 << (last - first_of_month)) - 1
            found += bits.bit_count()
            first_of_month += _shape(month)[1]
            month, skipped = month + 1, 0
        return found

    def _bits(self, month: int) -> int:
        """The matching days of a month (year * 12 + month from 0); bit 0 is the first."""
        if not self.months >> (month % 12 + 1) & 1 or (
            self.years is not ALL_YEARS and not self.years >> month // 12 & 1
        ):
            return 0
        return self._shapes[_shape(month)[0]]

    def _days_of_shape(self, first_weekday: int, length: int) -> int:
        """The matching days of a month of this shape, whichever month it is; bit 0 is the first of the month."""
        all_days = (1 << length) - 1
        by_date = self.days_of_month >> 1 & all_days
        for form in self.forms_of_month:
            by_date |= form.days(first_weekday, length)
        by_weekday = 0
        for weekday in range(7):
            if self.weekdays >> weekday & 1:
                by_weekday |= _EVERY_SEVENTH << (weekday - first_weekday) % 7
        by_weekday &= all_days
        for form in self.forms_of_week:
            by_weekday |= form.days(first_weekday, length)
        return by_date & by_weekday if self.both else by_date | by_weekday

    def _days_in_year(self, first_weekday: int, leap: int) -> int:
        """How many days match in a year that begins with this weekday."""
        found = 0
        for number, length_of_month in enumerate(_LENGTHS_OF_MONTH, start=1):
            length = length_of_month + (leap if number == 2 else 0)
            if self.months >> number & 1:
                found += self._shapes[first_weekday * 4 + length - 28].bit_count()
            first_weekday = (first_weekday + length) % 7
        return found


def _month_and_day(day: int) -> tuple[int, int]:
    """The month (year * 12 + month from 0) and the day in it, from 0."""
    found = date.fromordinal(day + _EPOCH_ORDINAL)
    return found.year * 12 + found.month - 1, found.day - 1


def _first_of(month: int) -> int:
    """The day with which a month begins."""
    return date(month // 12, month % 12 + 1, 1).toordinal() - _EPOCH_ORDINAL


@lru_cache(maxsize=4096)
def _shape(month: int) -> tuple[int, int]:
    """The number of the month's shape, and its length in days."""
    year, month_of_year = divmod(month, 12)
    first = date(year, month_of_year + 1, 1)
    length = 31 if month_of_year == 11 else (date(year, month_of_year + 2, 1) - first).days
    return first.isoweekday() % 7 * 4 + length - 28, length


@lru_cache(maxsize=1)
def _years_of_shape() -> tuple[int, ...]:
    """For each shape of a year (weekday of its first day, Sunday 0, times two; one more in leap years), its years."""
    found = [0] * 14
    weekday = date(FIRST_YEAR, 1, 1).isoweekday() % 7
    for year in range(FIRST_YEAR, LAST_YEAR + 1):
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        found[weekday * 2 + leap] |= 1 << year
        weekday = (weekday + 365 + leap) % 7
    return tuple(found)

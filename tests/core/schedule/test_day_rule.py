"""Days, on their own: first, last and count within bounds, against a look at each day."""

from __future__ import annotations

from datetime import date, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.core.schedule.day_rule import ALL_YEARS, FIRST_DAY, LAST_DAY, DayRule

EPOCH = date(1970, 1, 1)


def bits(values: set[int]) -> int:
    return sum(1 << value for value in values)


@given(
    months=st.sets(st.integers(1, 12), min_size=1),
    days=st.sets(st.integers(1, 31), min_size=1),
    weekdays=st.sets(st.integers(0, 6), min_size=1),
    both=st.booleans(),
    from_day=st.integers(FIRST_DAY, 20_000) | st.integers(LAST_DAY - 400, LAST_DAY),
    length=st.integers(-2, 5) | st.integers(6, 2_000),
    years=st.sets(st.integers(1969, 2030) | st.integers(9990, 9999)) | st.none(),
)
@example(months={1}, days={1}, weekdays={0}, both=False, from_day=1, length=1, years=None)
def test_first_last_and_count_are_those_of_a_look_at_each_day(
    months: set[int], days: set[int], weekdays: set[int], both: bool, from_day: int, length: int, years: set[int] | None
) -> None:
    rule = DayRule(
        months=bits(months),
        days_of_month=bits(days),
        weekdays=bits(weekdays),
        both=both,
        years=ALL_YEARS if years is None else bits(years),
    )
    until_day = from_day + length

    def matches(day: date) -> bool:
        fits = (day.day in days, day.isoweekday() % 7 in weekdays)
        return (years is None or day.year in years) and day.month in months and (all(fits) if both else any(fits))

    found = [
        number for number in range(from_day, min(until_day, LAST_DAY) + 1) if matches(EPOCH + timedelta(days=number))
    ]
    assert [number for number in range(from_day, until_day + 1) if rule.matches(number)] == found
    assert rule.first(from_day, until_day) == (found[0] if found else None)
    assert rule.last(from_day, until_day) == (found[-1] if found else None)
    assert rule.count(from_day, until_day) == len(found)


def test_there_is_no_day_outside_the_calendar() -> None:
    every_day = DayRule(months=bits(set(range(1, 13))), days_of_month=bits(set(range(1, 32))), weekdays=127, both=True)
    assert every_day.first(-(10**9), 10**9) == FIRST_DAY
    assert every_day.last(-(10**9), 10**9) == LAST_DAY
    assert every_day.first(LAST_DAY + 1, 10**9) is None
    assert every_day.last(-(10**9), FIRST_DAY - 1) is None
    assert every_day.count(-(10**9), 10**9) == LAST_DAY - FIRST_DAY + 1
    assert not every_day.matches(LAST_DAY + 1)
    assert not every_day.matches(FIRST_DAY - 1)

"""Cron against a slow oracle that looks at each minute, around changes of the clock."""

from __future__ import annotations

import calendar
from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from fencepost.core.schedule import Cron, ScheduleError
from fencepost.core.times import parse_rfc3339
from tests.core.schedule import oracle
from tests.core.schedule.strategies import (
    changes,
    day_fields,
    expressions,
    fields,
    long_expressions,
    weekday_fields,
    year_fields,
)

WINDOW_S = 2 * 86_400
SECONDS_WINDOW_S = 2 * 3600
EPOCH = datetime(1970, 1, 1)


def cron_or_none(expression: str, zone: str = "UTC") -> Cron | None:
    try:
        return Cron(expression, zone)
    except ScheduleError as error:
        if "never fires" not in error.message:
            raise  # The strategies make expressions that can be read.
        return None


def walk(cron: Cron, after_ms: int, until_ms: int) -> list[int]:
    found = []
    slot_ms = cron.next_after(after_ms)
    while slot_ms is not None and slot_ms <= until_ms:
        assert slot_ms > after_ms
        found.append(slot_ms)
        after_ms = slot_ms
        slot_ms = cron.next_after(after_ms)
    return found


def agrees(expression: str, zone: str, from_s: int, until_s: int, places: tuple[float, float]) -> int:
    """All answers for the slots in [from_s, until_s) are the oracle's. Returns how many there are."""
    expected = oracle.slots(expression, zone, from_s, until_s)
    cron = cron_or_none(expression, zone)
    if cron is None:
        assert expected == []
        return 0
    first_ms, last_ms = from_s * 1000, until_s * 1000 - 1
    assert walk(cron, first_ms - 1, last_ms) == expected
    low_ms, high_ms = (first_ms + round(place * (last_ms - first_ms)) for place in sorted(places))
    between = expected[bisect_right(expected, low_ms) : bisect_right(expected, high_ms)]
    assert cron.count(low_ms, high_ms, 10**9) == len(between)
    assert cron.count(low_ms, high_ms, 3) == min(3, len(between))
    assert cron.latest_at_or_before(high_ms, low_ms) == (between[-1] if between else None)
    after = expected[bisect_left(expected, low_ms + 1) :]
    if after:
        assert cron.next_after(low_ms) == after[0]
    return len(expected)


@settings(max_examples=400)
@given(expression=expressions(), change=changes(), places=st.tuples(st.floats(0, 1), st.floats(0, 1)))
@example(expression="*/15 2 * * *", change=("America/New_York", 1_772_953_200), places=(0.0, 1.0))
@example(expression="0,30 2 * * *", change=("America/New_York", 1_772_953_200), places=(0.0, 1.0))
@example(expression="30 23 * * *", change=("America/St_Johns", 1_289_097_060), places=(0.0, 1.0))
# Rare days, so that a look ahead (or back) from one pass of a repeated hour must not step over the other.
@example(expression="*/15 1 1 11 *", change=("America/New_York", 1_793_512_800), places=(0.5, 0.505))
@example(expression="*/15 1 1 11 ?", change=("America/New_York", 1_793_512_800), places=(0.51, 0.52))
def test_every_slot_around_a_change_is_the_oracles(
    expression: str, change: tuple[str, int], places: tuple[float, float]
) -> None:
    zone, change_s = change
    middle_s = change_s // 60 * 60
    found = agrees(expression, zone, middle_s - WINDOW_S, middle_s + WINDOW_S, places)
    event("slots" if found else "no slot")


@settings(max_examples=100)
@given(data=st.data(), change=changes(), places=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_every_second_around_a_change_is_the_oracles(
    data: st.DataObject, change: tuple[str, int], places: tuple[float, float]
) -> None:
    zone, change_s = change
    middle_s = change_s // 60 * 60
    expression = data.draw(long_expressions(datetime.fromtimestamp(change_s, UTC).year))
    found = agrees(expression, zone, middle_s - SECONDS_WINDOW_S, middle_s + SECONDS_WINDOW_S, places)
    event("slots" if found else "no slot")


@pytest.mark.parametrize(
    "expression",
    ["* * 2 * * *", "*/20 30 1 * * *", "59 59 1 * * *", "0,30 0,30 2 * * ? 2026", "* */7 * 8 3 *", "1 0 3 * * 0#2"],
)
@pytest.mark.parametrize("change", ["2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"])
def test_seconds_follow_the_rule_of_their_minute_and_hour(expression: str, change: str) -> None:
    change_s = parse_rfc3339(change) // 1000
    agrees(expression, "America/New_York", change_s - SECONDS_WINDOW_S, change_s + SECONDS_WINDOW_S, (0.4, 0.6))


@settings(max_examples=200)
@given(
    day=day_fields() | st.just("?"),
    month=st.just("*") | fields(1, 12),
    weekday=weekday_fields() | st.just("*"),
    year=st.integers(1970, 9990),
    years=st.integers(1, 9),
    data=st.data(),
)
def test_the_days_of_years_are_the_oracles(
    day: str, month: str, weekday: str, year: int, years: int, data: st.DataObject
) -> None:
    days_of_years_agree(day, month, weekday, data.draw(year_fields(year)), year, years)


@pytest.mark.parametrize(
    ("day", "month", "weekday", "chosen", "year", "years"),
    [
        ("29", "2", "*", "*", 2096, 9),
        ("1,31", "*", "*", "*", 2026, 1),
        ("*/2", "*", "1", "*", 2026, 1),
        ("L-30", "*", "?", "*", 2026, 4),
        ("31W,1W,LW", "*", "?", "2027-2029/2", 2026, 4),
        ("?", "*", "5L,0#5,7#1", "*", 2026, 4),
        ("29", "2", "*/7", "*", 2000, 150),
    ],
)
def test_days_that_are_rare_or_depend_on_the_month_are_the_oracles(
    day: str, month: str, weekday: str, chosen: str, year: int, years: int
) -> None:
    days_of_years_agree(day, month, weekday, chosen, year, years)


def days_of_years_agree(day: str, month: str, weekday: str, chosen: str, year: int, years: int) -> None:
    text = f"0 0 12 {day} {month} {weekday} {chosen}"
    expression = oracle.Expression(text)
    from_day = datetime(year, 1, 1, 12)
    until_day = datetime(year + years, 1, 1, 12)
    expected = [
        (noon - EPOCH) // timedelta(milliseconds=1)
        for noon in (from_day + timedelta(days=number) for number in range((until_day - from_day).days))
        if expression.matches_day(noon)
    ]
    cron = cron_or_none(text)
    if cron is None:
        assert expected == []
        return
    from_ms, until_ms = ((moment - EPOCH) // timedelta(milliseconds=1) for moment in (from_day, until_day))
    assert walk(cron, from_ms - 1, until_ms - 1) == expected
    assert cron.count(from_ms - 1, until_ms - 1, 10**9) == len(expected)
    assert cron.latest_at_or_before(until_ms - 1, from_ms - 1) == (expected[-1] if expected else None)


@settings(max_examples=200)
@given(day=day_fields(), month=fields(1, 12), weekday=st.just("*") | weekday_fields())
def test_an_expression_is_said_never_to_fire_only_if_no_day_of_a_calendar_cycle_matches(
    day: str, month: str, weekday: str
) -> None:
    expression = oracle.Expression(f"0 0 {day} {month} {weekday}")
    # Leap years begin with each weekday within 28 years, and so do the others.
    fires = any(
        expression.matches_day(datetime(year, month_number, day_number))
        for year in range(2000, 2028)
        for month_number in sorted(expression.months)
        for day_number in range(1, calendar.monthrange(year, month_number)[1] + 1)
    )
    assert (cron_or_none(f"0 0 {day} {month} {weekday}") is not None) == fires


@settings(max_examples=100)
@given(
    expression=expressions(),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Monrovia"]),
    at_s=st.integers(0, 100 * 366 * 86_400),
)
def test_next_latest_and_count_agree_with_each_other_anywhere(expression: str, zone: str, at_s: int) -> None:
    cron = cron_or_none(expression, zone)
    assume(cron is not None)
    assert cron is not None
    at_ms = at_s * 1000 + 500
    slot_ms = cron.next_after(at_ms)
    assert slot_ms is not None
    assert slot_ms > at_ms
    assert cron.next_after(slot_ms - 1) == slot_ms
    assert cron.latest_at_or_before(slot_ms, at_ms) == slot_ms
    assert cron.latest_at_or_before(slot_ms - 1, at_ms) is None
    assert cron.count(at_ms, slot_ms - 1, 5) == 0
    assert cron.count(at_ms, slot_ms, 5) == 1


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [("*/15", 45, True), ("5-7/2", 6, False), ("2/4", 10, True), ("2", 3, False), ("mon-fri", 5, True)],
)
def test_the_oracle_can_tell_right_from_wrong(text: str, value: int, expected: bool) -> None:
    assert oracle.field_matches(text, value, 0, 59) is expected

"""However many slots were missed, the work to deal with them is the same. Counted in steps, not in time."""

from __future__ import annotations

import calendar
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.core.schedule import Cron
from fencepost.core.schedule.day_rule import DayRule
from fencepost.core.schedule.wall_times import WallTimes
from fencepost.core.schedule.zone_clock import ZoneClock
from fencepost.core.times import MAX_MS, parse_rfc3339

NOW_MS = parse_rfc3339("2026-11-30T10:11:04Z")
MINUTE_MS = 60_000


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that are made, by name."""
    made: list[str] = []

    def counted(owner: type, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any) -> Any:
            made.append(name)
            return real(*args)

        monkeypatch.setattr(owner, name, call)

    for owner, names in {
        WallTimes: ("first", "last", "count"),
        DayRule: ("first", "last", "count", "matches", "_bits"),
        ZoneClock: ("stretch_at", "_load"),
    }.items():
        for name in names:
            counted(owner, name)
    return made


@pytest.mark.parametrize("missed", [150, 500_000])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_half_a_million_missed_minutes_are_dealt_with_in_a_few_steps(steps: list[str], missed: int, zone: str) -> None:
    cron = Cron("* * * * *", zone)
    last_run_ms = NOW_MS // MINUTE_MS * MINUTE_MS - missed * MINUTE_MS
    assert cron.count(last_run_ms, NOW_MS, 10**9) == missed
    assert cron.latest_at_or_before(NOW_MS, last_run_ms) == NOW_MS // MINUTE_MS * MINUTE_MS
    assert cron.next_after(NOW_MS) == (NOW_MS // MINUTE_MS + 1) * MINUTE_MS
    assert len(steps) < 60


def test_a_count_stops_soon_after_its_limit(steps: list[str]) -> None:
    assert Cron("* * * * *", "Europe/Berlin").count(0, MAX_MS, 100) == 100
    assert len(steps) < 40


@pytest.mark.parametrize("years", [1, 20])
def test_missed_seconds_of_years_are_dealt_with_in_steps_that_do_not_grow_with_them(
    steps: list[str], years: int
) -> None:
    cron = Cron("* * * * * *", "America/New_York")
    since_ms = NOW_MS - years * 365 * 86_400_000
    assert cron.count(since_ms, NOW_MS, 10**12) == years * 365 * 86_400
    assert cron.latest_at_or_before(NOW_MS, since_ms) == NOW_MS
    assert cron.next_after(NOW_MS) == NOW_MS + 1000
    assert len(steps) < 60 + 80 * years  # by the changes of the clock in between


def test_a_slot_thousands_of_years_away_is_found_at_once(steps: list[str]) -> None:
    only_ms = parse_rfc3339("9999-12-31T00:00:00Z") - 1000
    assert Cron("59 59 23 30 12 ? 9999", "UTC").next_after(NOW_MS) == only_ms
    beyond = Cron("59 59 23 31 12 5L 9999", "America/New_York")  # in UTC that is the year 10000
    assert beyond.next_after(0) is None
    assert Cron("0 0 0 1 1 ? 1970", "Europe/Berlin").latest_at_or_before(MAX_MS, 0) is None
    assert Cron("0 0 1 1 1 ? 1970", "Europe/Berlin").latest_at_or_before(MAX_MS, -1) == 0
    assert Cron("0 0 0 2 2 ? */400", "Europe/Berlin").next_after(NOW_MS) == parse_rfc3339("2370-02-02T00:00:00+01:00")
    assert steps.count("_load") < 30
    assert len(steps) < 300


def test_rare_slots_of_the_whole_calendar_are_counted() -> None:
    leap_years = sum(calendar.isleap(year) for year in range(2026, 10_000))
    assert Cron("0 0 0 29 2 ? 2026-9999/1", "UTC").count(0, MAX_MS, 10**9) == leap_years


def test_seconds_are_not_listed_one_by_one() -> None:
    times = Cron("* * * * * *")._plan.walls.times
    assert len(times) == 86_400
    assert len(times.hours) + len(times.minutes) + len(times.seconds) == 24 + 60 + 60


def test_a_rare_slot_is_found_without_looking_at_each_day(steps: list[str]) -> None:
    # The 29th of February on a Monday, as both day fields must match: 2016, 2044.
    cron = Cron("0 0 */28 2 1", "Europe/Berlin")
    rare = Cron("0 12 29 2 */7")  # on a Sunday
    assert cron.next_after(NOW_MS) == parse_rfc3339("2027-02-01T00:00:00+01:00")
    assert rare.next_after(NOW_MS) == parse_rfc3339("2032-02-29T12:00:00Z")
    assert rare.latest_at_or_before(NOW_MS, 0) == parse_rfc3339("2004-02-29T12:00:00Z")
    assert len(steps) < 700


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12", "Europe/Berlin"])
def test_at_both_ends_of_the_calendar_there_is_an_answer(zone: str) -> None:
    cron = Cron("* * * * *", zone)
    fixed = Cron("59 23 31 12 */1", zone)
    for one in (cron, fixed):
        assert one.next_after(MAX_MS) is None
        assert one.next_after(10**30) is None
        first_ms = one.next_after(-(10**30))
        last_ms = one.latest_at_or_before(10**30, -(10**30))
        assert first_ms is not None
        assert last_ms is not None
        assert one.next_after(first_ms - 1) == first_ms
        assert one.next_after(last_ms) is None
        assert one.latest_at_or_before(first_ms, -1) == first_ms
        assert one.latest_at_or_before(first_ms - 1, -1) is None
        assert one.latest_at_or_before(-1, -(10**30)) is None
        assert one.count(last_ms - 1, 10**30, 5) == 1
        assert one.count(-(10**30), first_ms, 5) == 1
        assert one.count(last_ms, first_ms, 5) == 0
        assert one.count(0, MAX_MS, 0) == 0
    assert cron.next_after(-1) == 0

"""The stretches of a zone's clock."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core.schedule.zone_clock import Stretch, ZoneClock, zone_clock
from fencepost.core.times import MAX_S, parse_rfc3339
from tests.core.schedule.strategies import CHANGES

ZONES = sorted(
    name
    for name in zoneinfo.available_timezones()
    if not name.startswith(("right/", "posix/")) and name not in ("localtime", "posixrules", "Factory")
)


def stretches(clock: ZoneClock, from_s: int, until_s: int) -> list[Stretch]:
    found = []
    while from_s < until_s:
        found.append(clock.stretch_at(from_s))
        from_s = found[-1].end_s
    return found


def offset_s(zone: str, at_s: int) -> float:
    # Not in the last two days of the calendar, whose wall time may lie beyond it.
    offset = datetime.fromtimestamp(min(at_s, MAX_S - 2 * 86_400), zoneinfo.ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return offset.total_seconds()


@settings(max_examples=300)
@given(zone=st.sampled_from(ZONES), at_s=st.integers(0, 2_300_000_000) | st.integers(0, MAX_S))
def test_a_stretch_has_the_zones_offset_and_follows_the_one_before(zone: str, at_s: int) -> None:
    clock = zone_clock(zone)
    stretch = clock.stretch_at(at_s)
    assert stretch.start_s <= at_s < stretch.end_s
    for inside_s in {at_s, stretch.start_s, stretch.end_s - 1, (stretch.start_s + stretch.end_s) // 2}:
        assert stretch.offset_s == offset_s(zone, inside_s)
        assert clock.stretch_at(inside_s) is stretch
    if stretch.start_s > 0:
        before = clock.stretch_at(stretch.start_s - 1)
        assert before.end_s == stretch.start_s
        assert stretch.seen_s == max(before.seen_s, stretch.start_s + before.offset_s)


@pytest.mark.parametrize(("zone", "change"), [change for change in CHANGES if change[0] not in ("UTC", "Asia/Kolkata")])
def test_a_change_of_the_clock_is_found_to_the_second(zone: str, change: str) -> None:
    change_s = parse_rfc3339(change) // 1000
    stretch = zone_clock(zone).stretch_at(change_s)
    assert stretch.start_s == change_s
    assert stretch.seen_s == change_s + offset_s(zone, change_s - 1)
    assert stretch.offset_s != offset_s(zone, change_s - 1)


def test_a_stretch_that_a_block_cuts_keeps_what_was_seen_before() -> None:
    # The block begins within the hour that Berlin's clock repeats here, and the cut must not make the hour new.
    clock = zone_clock("Europe/Berlin")
    begin_s = parse_rfc3339("2023-10-29T01:30:00Z") // 1000
    stretch = clock._stretches(begin_s, begin_s + 86_400)[0]
    assert stretch == Stretch(begin_s, begin_s + 86_400, 3600, parse_rfc3339("2023-10-29T03:00:00Z") // 1000)


class TwoChanges(tzinfo):
    """UTC, but at noon of 1971-01-01 the clock goes back by seven hours, and three hours later on by one."""

    def fromutc(self, moment: datetime) -> datetime:
        hours = (moment.replace(tzinfo=None) - datetime(1971, 1, 1, 12)) // timedelta(hours=1)
        behind = 0 if hours < 0 else 7 if hours < 3 else 6
        # The offset is handed on in the microseconds, since the wall time alone does not tell it.
        return moment - timedelta(hours=behind) + timedelta(microseconds=behind)

    def utcoffset(self, moment: datetime | None) -> timedelta:
        assert moment is not None
        return timedelta(hours=-moment.microsecond)

    def dst(self, moment: datetime | None) -> None:
        return None

    def tzname(self, moment: datetime | None) -> None:
        return None


def test_a_gap_within_a_repetition_leaves_no_time_out() -> None:
    clock = ZoneClock("probe", TwoChanges())
    noon_s = parse_rfc3339("1971-01-01T12:00:00Z") // 1000
    back = clock.stretch_at(noon_s)
    assert (back.start_s, back.end_s, back.offset_s, back.seen_s) == (noon_s, noon_s + 3 * 3600, -7 * 3600, noon_s)
    # From 08:00 to 09:00 the wall clock jumps, but it had shown these times, and all until noon, in the morning.
    on = clock.stretch_at(back.end_s)
    assert (on.start_s, on.offset_s, on.seen_s) == (back.end_s, -6 * 3600, noon_s)


def test_no_two_changes_of_any_zone_are_so_close_that_one_could_be_overlooked() -> None:
    for zone in ("Africa/Casablanca", "Africa/El_Aaiun", "Asia/Gaza", "Asia/Hebron", "America/Noronha", "Africa/Cairo"):
        clock = zone_clock(zone)
        changes = [
            one.start_s for one in stretches(clock, 0, 2_600_000_000) if one.seen_s != one.start_s + one.offset_s
        ]
        # Every six hours, on another grid than the clock's own.
        seen = [
            at_s
            for at_s in range(6 * 3600, 2_600_000_000, 6 * 3600)
            if offset_s(zone, at_s) != offset_s(zone, at_s - 6 * 3600)
        ]
        assert len(changes) == len(seen)


def test_the_whole_calendar_is_covered_up_to_its_end() -> None:
    for zone in ("UTC", "Pacific/Kiritimati", "Etc/GMT+12"):
        last = zone_clock(zone).stretch_at(MAX_S)
        assert last.end_s == MAX_S + 1
    assert datetime.fromtimestamp(MAX_S, UTC).year == 9999

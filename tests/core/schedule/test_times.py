"""Points in time and durations as text."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.times import MAX_MS, format_ms, format_ms_in, parse_duration, parse_rfc3339


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T19:00:00-05:00", 0),
        ("2026-11-30T10:11:04.123Z", 1_796_033_464_123),
        ("2026-11-30t10:11:04.123z", 1_796_033_464_123),
        ("2026-11-30 10:11:04.123Z", 1_796_033_464_123),
        ("2026-11-30T10:11:04.1239999999Z", 1_796_033_464_123),
        ("2026-11-30T10:11:04.1Z", 1_796_033_464_100),
        ("2026-11-30T15:41:04+05:30", 1_796_033_464_000),
        ("2026-11-30T10:11:04-00:00", 1_796_033_464_000),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000),
        ("9999-12-31T23:59:59.999Z", MAX_MS),
    ],
)
def test_an_rfc_3339_time_is_read(text: str, at_ms: int) -> None:
    assert parse_rfc3339(text) == at_ms


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' is not an RFC 3339 time; allowed: YYYY-MM-DDTHH:MM:SS"),
        ("tomorrow", "is not an RFC 3339 time"),
        ("2026-11-30", "is not an RFC 3339 time"),
        ("2026-11-30T10:11Z", "is not an RFC 3339 time"),
        ("2026-11-30T10:11:04.Z", "is not an RFC 3339 time"),
        ("2026-11-30T10:11:04+0100", "is not an RFC 3339 time"),
        ("2026-11-30T10:11:04 Z", "is not an RFC 3339 time"),
        ("20261130T101104Z", "is not an RFC 3339 time"),
        ("2026-W49-1T10:11:04Z", "is not an RFC 3339 time"),
        ("+2026-11-30T10:11:04Z", "is not an RFC 3339 time"),
        ("12026-11-30T10:11:04Z", "is not an RFC 3339 time"),
        ("\uff12026-11-30T10:11:04Z", "is not an RFC 3339 time"),
        ("2026-11-30T10:11:04Z\n", "is not an RFC 3339 time"),
        ("2026-11-30T10:11:04." + "1" * 1_000_000 + "Z", "is not an RFC 3339 time"),
        ("2026-11-30T10:11:04", "has no offset; end it with Z (UTC) or with one such as +01:00"),
        ("2026-11-31T10:11:04Z", "names no real time: day is out of range for month"),
        ("2026-13-30T10:11:04Z", "names no real time: month must be in 1..12"),
        ("2025-02-29T10:11:04Z", "names no real time: day is out of range for month"),
        ("0000-01-01T00:00:00Z", "names no real time: year 0 is out of range"),
        ("2026-11-30T24:00:00Z", "names no real time: hour must be in 0..23"),
        ("2026-11-30T10:60:00Z", "names no real time: minute must be in 0..59"),
        ("2026-11-30T10:11:61Z", "names no real time: second must be in 0..59"),
        ("2016-12-31T23:59:60Z", "names no real time: a leap second cannot be given"),
        ("2026-11-30T10:11:04+24:00", "has the offset +24:00; allowed: -23:59 to +23:59"),
        ("2026-11-30T10:11:04+01:60", "has the offset +01:60; allowed: -23:59 to +23:59"),
        ("1969-12-31T23:59:59.999Z", "is outside 1970-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z"),
        ("1970-01-01T00:59:59+01:00", "is outside 1970"),
        ("9999-12-31T23:59:59-00:01", "is outside 1970"),
        (None, "a time is a text such as 2026-11-30T10:11:04Z, not NoneType"),
        (5, "not int"),
        (b"2026-11-30T10:11:04Z", "not bytes"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_what_is_no_time_is_refused_with_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 — the reason is compared below, without a pattern
        parse_rfc3339(text)
    assert reason in str(refusal.value)
    assert len(str(refusal.value)) < 300


@given(st.integers(0, MAX_MS))
def test_a_formatted_time_reads_back_and_is_what_datetime_says(at_ms: int) -> None:
    text = format_ms(at_ms)
    assert parse_rfc3339(text) == at_ms
    expected = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    assert text == expected.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@given(
    at_ms=st.integers(0, 10**13), zone=st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns"])
)
def test_a_time_in_a_zone_reads_back_and_is_what_the_clock_there_shows(at_ms: int, zone: str) -> None:
    text = format_ms_in(at_ms, zone)
    assert parse_rfc3339(text) == at_ms
    local = datetime.fromtimestamp(at_ms // 1000, ZoneInfo(zone))
    assert text.startswith(local.replace(tzinfo=None).isoformat())
    assert local.isoformat()[-6:] == text[-6:]


@pytest.mark.parametrize(
    ("at", "zone", "text"),
    [
        ("2026-03-08T07:00:00Z", "America/New_York", "2026-03-08T03:00:00-04:00"),
        ("2026-03-08T07:00:00.050Z", "America/New_York", "2026-03-08T03:00:00.050-04:00"),
        ("2026-11-30T10:11:04Z", "UTC", "2026-11-30T10:11:04+00:00"),
        ("1970-01-01T00:00:00Z", "Pacific/Honolulu", "1969-12-31T14:00:00-10:00"),
        # Monrovia was 44 min 30 s behind: written with whole minutes, it is still the same point in time.
        ("1971-06-01T12:00:00Z", "Africa/Monrovia", "1971-06-01T11:16:00-00:44"),
    ],
)
def test_a_time_is_written_with_the_offset_of_its_zone(at: str, zone: str, text: str) -> None:
    assert format_ms_in(parse_rfc3339(at), zone) == text
    assert text.startswith("1969") or parse_rfc3339(text) == parse_rfc3339(at)


@pytest.mark.parametrize("at_ms", [-1, MAX_MS + 1, 10**30, pytest.param(-(10**5000), id="huge")])
def test_a_time_outside_the_calendar_is_not_formatted(at_ms: int) -> None:
    for text_of in (format_ms, lambda at_ms: format_ms_in(at_ms, "UTC")):
        with pytest.raises(ValueError, match="is outside 1970-01-01 to 9999-12-31"):
            text_of(at_ms)


def test_a_zone_that_is_unknown_or_in_the_next_millennium_is_named() -> None:
    with pytest.raises(ValueError, match="'Mars/Olympus' is not a known time zone"):
        format_ms_in(0, "Mars/Olympus")
    with pytest.raises(ValueError, match="lies beyond the year 9999 in Pacific/Kiritimati"):
        format_ms_in(MAX_MS, "Pacific/Kiritimati")


@pytest.mark.parametrize(
    ("value", "duration_s"),
    [
        ("10s", 10.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
        ("1.5h", 5400.0),
        ("2d", 172_800.0),
        ("1d2h3m4s5ms", 93_784.005),
        ("0s", 0.0),
        (" 10s ", 10.0),
        ("10", 10.0),
        ("0.5", 0.5),
        ("36525d", 36_525 * 86_400.0),
        (0, 0.0),
        (7, 7.0),
        (0.25, 0.25),
    ],
)
def test_a_duration_is_read_in_seconds(value: str | float, duration_s: float) -> None:
    assert parse_duration(value) == pytest.approx(duration_s, rel=1e-12)
    assert isinstance(parse_duration(value), float)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "is not a duration; allowed: seconds as a number"),
        ("soon", "is not a duration; allowed: seconds as a number"),
        ("5 m", "is not a duration"),
        ("30m1h", "is not a duration"),
        ("1h1h", "is not a duration"),
        ("5M", "is not a duration"),
        ("5min", "is not a duration"),
        ("-5s", "is not a duration"),
        ("+5s", "is not a duration"),
        ("1e3", "is not a duration"),
        ("1_0s", "is not a duration"),
        ("\uff15s", "is not a duration"),
        ("nan", "is not a duration"),
        ("inf", "is not a duration"),
        ("9" * 100_000 + "s", "is not a duration"),
        (-1, "-1 is not a duration; allowed: 0 seconds to 36525 days"),
        (-0.001, "is not a duration"),
        (math.nan, "nan is not a duration; allowed: 0 seconds to 36525 days"),
        (math.inf, "inf is too long; allowed: 0 seconds to 36525 days"),
        (-math.inf, "is not a duration"),
        ("36526d", "'36526d' is too long"),
        ("99999999999999999999", "is too long"),
        (10**400, "is too long"),
        pytest.param(10**5000, "is too long", id="huge"),
        (-(10**400), "is not a duration"),
        (True, "not bool"),
        (None, "not NoneType"),
        ([5], "not list"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_what_is_no_duration_is_refused_with_what_is_allowed(value: str | float, reason: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 — the reason is compared below, without a pattern
        parse_duration(value)
    assert reason in str(refusal.value)
    assert len(str(refusal.value)) < 300

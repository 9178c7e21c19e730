"""The rule for gaps and repeated hours, written out."""

from __future__ import annotations

import pytest

from fencepost.core.schedule import Cron, ScheduleError, upcoming
from fencepost.core.times import format_ms_in, parse_rfc3339


def slots_between(expression: str, zone: str, after: str, until: str) -> list[str]:
    """The slots in (after, until] in three ways, which must agree."""
    cron = Cron(expression, zone)
    after_ms, until_ms = parse_rfc3339(after), parse_rfc3339(until)
    forwards = [slot_ms for slot_ms in upcoming(cron, after_ms, 200) if slot_ms <= until_ms]
    backwards: list[int] = []
    at_ms = until_ms
    while (slot_ms := cron.latest_at_or_before(at_ms, after_ms)) is not None:
        backwards.insert(0, slot_ms)
        at_ms = slot_ms - 1
    assert forwards == backwards
    assert cron.count(after_ms, until_ms, 1_000) == len(forwards)
    return [format_ms_in(slot_ms, zone) for slot_ms in forwards]


NEW_YORK_GAP = ("America/New_York", "2026-03-08T01:59:59-05:00", "2026-03-08T03:59:00-04:00")
NEW_YORK_REPEAT = ("America/New_York", "2026-11-01T00:59:59-04:00", "2026-11-01T02:59:00-05:00")
BERLIN_REPEAT = ("Europe/Berlin", "2026-10-25T00:59:59+02:00", "2026-10-25T03:59:00+01:00")


@pytest.mark.parametrize(
    ("expression", "place", "expected"),
    [
        # A star in the minute or the hour follows the wall clock: nothing in a gap …
        ("*/15 2 * * *", NEW_YORK_GAP, []),
        ("0 */2 * * *", NEW_YORK_GAP, []),
        (
            "*/30,5 2-3 * * *",
            NEW_YORK_GAP,
            ["2026-03-08T03:00:00-04:00", "2026-03-08T03:05:00-04:00", "2026-03-08T03:30:00-04:00"],
        ),
        # … and everything twice in a repeated hour.
        (
            "*/30 1 * * *",
            NEW_YORK_REPEAT,
            [
                "2026-11-01T01:00:00-04:00",
                "2026-11-01T01:30:00-04:00",
                "2026-11-01T01:00:00-05:00",
                "2026-11-01T01:30:00-05:00",
            ],
        ),
        (
            "30 * * * *",
            NEW_YORK_REPEAT,
            ["2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-01T02:30:00-05:00"],
        ),
        (
            "*/15 2 * * *",
            BERLIN_REPEAT,
            [
                f"2026-10-25T02:{minute:02d}:00+0{offset}:00"
                for offset, minute in [(2, 0), (2, 15), (2, 30), (2, 45), (1, 0), (1, 15), (1, 30), (1, 45)]
            ],
        ),
        # Fixed times in a gap: one slot right after it, however many times it holds.
        ("30 2 * * *", NEW_YORK_GAP, ["2026-03-08T03:00:00-04:00"]),
        ("0,30 2 * * *", NEW_YORK_GAP, ["2026-03-08T03:00:00-04:00"]),
        ("0 2,3 * * *", NEW_YORK_GAP, ["2026-03-08T03:00:00-04:00"]),
        ("59 2-3 * * *", NEW_YORK_GAP, ["2026-03-08T03:00:00-04:00", "2026-03-08T03:59:00-04:00"]),
        (
            "0-59/20 0-23 * * *",
            NEW_YORK_GAP,
            ["2026-03-08T03:00:00-04:00", "2026-03-08T03:20:00-04:00", "2026-03-08T03:40:00-04:00"],
        ),
        # A star later in the field is no star, and none of the other fields counts.
        ("5,*/30 2 * * *", NEW_YORK_GAP, ["2026-03-08T03:00:00-04:00"]),
        ("30 2 * */3 */7", NEW_YORK_GAP, []),
        ("30 2 8 3 */7", NEW_YORK_GAP, ["2026-03-08T03:00:00-04:00"]),
        # Fixed times in a repeated hour: once, the first.
        (
            "30 1-3 * * *",
            BERLIN_REPEAT,
            ["2026-10-25T01:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T03:30:00+01:00"],
        ),
        (
            "0-59/30 0-23 * * *",
            NEW_YORK_REPEAT,
            [
                "2026-11-01T01:00:00-04:00",
                "2026-11-01T01:30:00-04:00",
                "2026-11-01T02:00:00-05:00",
                "2026-11-01T02:30:00-05:00",
            ],
        ),
        # The day is that of the time that was left out, not of the moment after the gap (which is another day here).
        (
            "45 23 4 5 *",
            ("Asia/Pyongyang", "2018-05-04T23:00:00+08:30", "2018-05-05T01:00:00+09:00"),
            ["2018-05-05T00:00:00+09:00"],
        ),
        ("45 23 5 5 *", ("Asia/Pyongyang", "2018-05-04T23:00:00+08:30", "2018-05-05T01:00:00+09:00"), []),
        # At 00:01 the clock goes back to the day before.
        (
            "0 0 * * *",
            ("America/St_Johns", "2010-11-06T22:00:00-02:30", "2010-11-07T01:00:00-03:30"),
            ["2010-11-07T00:00:00-02:30"],
        ),
        (
            "*/30 0,23 * * *",
            ("America/St_Johns", "2010-11-06T22:59:00-02:30", "2010-11-07T00:59:00-03:30"),
            [
                "2010-11-06T23:00:00-02:30",
                "2010-11-06T23:30:00-02:30",
                "2010-11-07T00:00:00-02:30",
                "2010-11-06T23:30:00-03:30",
                "2010-11-07T00:00:00-03:30",
                "2010-11-07T00:30:00-03:30",
            ],
        ),
        # A gap of three hours is made up for, a longer one is not: a day that did not exist has no slots.
        (
            "30 3 * * *",
            ("Antarctica/Casey", "2009-10-18T01:00:00+08:00", "2009-10-18T12:00:00+11:00"),
            ["2009-10-18T05:00:00+11:00"],
        ),
        ("30 3 * * *", ("Antarctica/Vostok", "1994-10-31T12:00:00+00:00", "1994-11-01T12:00:00+07:00"), []),
        ("30 12 * * *", ("Pacific/Apia", "2011-12-29T13:00:00-10:00", "2011-12-31T12:00:00+14:00"), []),
        ("0 0 30 12 *", ("Pacific/Apia", "2011-01-01T00:00:00-11:00", "2012-12-29T00:00:00+14:00"), []),
        # The second pass of seven hours is no time for fixed times either.
        (
            "0 12,23 * * *",
            ("Antarctica/Vostok", "1994-01-31T11:00:00+07:00", "1994-02-01T00:00:00+00:00"),
            ["1994-01-31T12:00:00+07:00", "1994-01-31T23:00:00+07:00"],
        ),
        # Offsets with seconds: the clock went on by 44 min 30 s at midnight.
        (
            "10,50 0 7 1 *",
            ("Africa/Monrovia", "1972-01-06T12:00:00Z", "1972-01-07T12:00:00Z"),
            ["1972-01-07T00:44:30+00:00", "1972-01-07T00:50:00+00:00"],
        ),
    ],
)
def test_slots_around_a_change_of_the_clock(expression: str, place: tuple[str, str, str], expected: list[str]) -> None:
    assert slots_between(expression, *place) == expected


@pytest.mark.parametrize("after", ["2026-03-08T06:59:59.999Z", "2026-03-08T06:30:00Z"])
def test_the_slot_after_a_gap_comes_once_from_any_time_before_it(after: str) -> None:
    cron = Cron("30 2 * * *", "America/New_York")
    assert upcoming(cron, parse_rfc3339(after), 2) == [
        parse_rfc3339("2026-03-08T03:00:00-04:00"),
        parse_rfc3339("2026-03-09T02:30:00-04:00"),
    ]
    assert cron.next_after(parse_rfc3339("2026-03-08T03:00:00-04:00")) == parse_rfc3339("2026-03-09T02:30:00-04:00")


@pytest.mark.parametrize(
    "zone", ["", "Europe", "utc", "../UTC", "/etc/localtime", "UTC\0", "x" * 5000, "\ud800", "zone.tab", "tzdata",
             "right/UTC", "posix/UTC", "localtime", "Factory", "GMT+1", " UTC", "Ünix", "CEST"],
)  # fmt: skip
def test_a_zone_that_is_not_known_or_not_the_same_everywhere_is_refused(zone: str) -> None:
    with pytest.raises(ScheduleError, match="allowed: names of the time zone database") as refusal:
        Cron("0 0 * * *", zone)
    assert refusal.value.field == "time_zone"


@pytest.mark.parametrize(
    ("field", "cron"),
    [
        ("cron", (None, "UTC")),
        ("cron", (b"x", "UTC")),
        ("time_zone", ("* * * * *", None)),
        ("time_zone", ("* * * * *", ["UTC"])),
    ],
)
def test_what_is_not_text_is_refused(field: str, cron: tuple[str, str]) -> None:
    with pytest.raises(ScheduleError, match="must be a text") as refusal:
        Cron(*cron)
    assert refusal.value.field == field

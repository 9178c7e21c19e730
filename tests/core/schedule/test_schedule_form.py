"""Schedules as objects in records and files, their fingerprints, and the list of what comes next."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from fencepost.core.schedule import Cron, Every, Once, Schedule, ScheduleError, schedule_from_json, upcoming
from fencepost.core.times import format_ms, parse_rfc3339

AT_MS = parse_rfc3339("2026-11-30T10:11:04Z")


@pytest.mark.parametrize(
    ("schedule", "body"),
    [
        (Cron("0 2 * * *", time_zone="Europe/Berlin"), {"cron": "0 2 * * *", "time_zone": "Europe/Berlin"}),
        (Cron("@Daily"), {"cron": "@Daily", "time_zone": "UTC"}),
        (Cron("30 0 0 L * ? 2030"), {"cron": "30 0 0 L * ? 2030", "time_zone": "UTC"}),
        (Cron("H H * * *"), {"cron": "H H * * *", "time_zone": "UTC"}),
        (Every(3600), {"every_s": 3600}),
        (Every(0.25, AT_MS), {"every_s": 0.25, "anchor": "2026-11-30T10:11:04.000Z"}),
        (Once(AT_MS), {"at": "2026-11-30T10:11:04.000Z"}),
    ],
)
def test_a_schedule_and_its_object_are_each_others_reverse(schedule: Schedule, body: dict[str, Any]) -> None:
    assert schedule.to_json() == body
    read = schedule_from_json(body)
    assert read == schedule
    assert hash(read) == hash(schedule)
    assert read.fingerprint == schedule.fingerprint
    assert type(schedule).from_json(body) == schedule
    # Schedules go to other processes.
    assert pickle.loads(pickle.dumps(schedule)).next_after(0) == schedule.next_after(0)
    assert copy.deepcopy(schedule) == schedule


@pytest.mark.parametrize(
    ("body", "schedule"),
    [
        ({"cron": "0 2 * * *"}, Cron("0 2 * * *")),
        ({"cron": "0 2 * * *", "time_zone": None}, Cron("0 2 * * *")),
        ({"every_s": "1h30m"}, Every(5400)),
        ({"every_s": 60.0, "anchor": None}, Every(60)),
        ({"every_s": 60, "anchor": "2026-11-30T11:11:04+01:00"}, Every(60, AT_MS)),
        ({"at": "2026-11-30T11:11:04+01:00"}, Once(AT_MS)),
    ],
)
def test_an_object_may_leave_out_or_write_differently(body: dict[str, Any], schedule: Schedule) -> None:
    assert schedule_from_json(body) == schedule


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        (None, "schedule", "must be an object, not NoneType"),
        ("0 2 * * *", "schedule", "must be an object, not str"),
        ([], "schedule", "has 0 schedules; allowed: 1 to 32"),
        ([[]], "schedule", "must be an object, not list"),
        ({}, "schedule", "none of cron, every_s, at is given"),
        ({"time_zone": "UTC"}, "schedule", "none of cron, every_s, at is given"),
        ({"cron": "* * * * *", "at": "2026-11-30T10:11:04Z"}, "schedule", "cron and at are given together"),
        ({"cron": "* * * * *", "tz": "UTC"}, "schedule", "unknown key 'tz'; allowed here: cron, time_zone"),
        ({"every_s": 5, "time_zone": "UTC"}, "schedule", "unknown key 'time_zone'; allowed here: every_s, anchor"),
        ({"at": "2026-11-30T10:11:04Z", "anchor": 1}, "schedule", "unknown key 'anchor'; allowed here: at"),
        ({"cron": 5}, "cron", "must be a text, not int"),
        ({"cron": None}, "cron", "must be a text, not NoneType"),
        ({"cron": "61 * * * *"}, "cron.minute", "out of range"),
        ({"cron": "* * * * *", "time_zone": "Mars/Olympus"}, "time_zone", "'Mars/Olympus' is not known"),
        ({"cron": "* * * * *", "time_zone": 5}, "time_zone", "must be a text, not int"),
        ({"every_s": None}, "every_s", "not NoneType"),
        ({"every_s": True}, "every_s", "not bool"),
        ({"every_s": -5}, "every_s", "is not a duration"),
        ({"every_s": 0}, "every_s", "out of range"),
        ({"every_s": "soon"}, "every_s", "is not a duration"),
        ({"every_s": 60, "anchor": "2026-11-30T10:11:04"}, "anchor", "has no offset"),
        ({"every_s": 60, "anchor": 5}, "anchor", "not int"),
        ({"at": "tomorrow"}, "at", "is not an RFC 3339 time"),
        ({"at": None}, "at", "not NoneType"),
        ({"at": "1969-12-31T23:59:59Z"}, "at", "is outside 1970"),
    ],
)
def test_an_object_that_cannot_be_accepted_is_refused_with_the_field(body: object, field: str, reason: str) -> None:
    with pytest.raises(ScheduleError) as refusal:
        schedule_from_json(body)
    assert refusal.value.field == field
    assert reason in refusal.value.message
    assert str(refusal.value) == f"{field}: {refusal.value.message}"
    again = pickle.loads(pickle.dumps(refusal.value))
    assert (again.field, again.message) == (field, refusal.value.message)


@pytest.mark.parametrize("kind", [Cron, Every, Once])
def test_each_kind_says_which_key_is_missing(kind: type[Cron] | type[Every] | type[Once]) -> None:
    with pytest.raises(ScheduleError, match="is missing"):
        kind.from_json({})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Cron("0 0 * * *"), Cron("@daily")),
        (Cron("0 0 * * 0"), Cron("  0\t0 * * SUN ")),
        (Cron("*/5 * * * *"), Cron("*/5 */1 * JAN-dec *")),
        (Cron("0 0 1,2,3 * 5-7"), Cron("0 0 1-3 * 0,5,6")),
        (Cron("0 0 * * *"), Cron("00 0 0 ? * ? *")),
        (Cron("0 0 l,1,LW * fri#2,5#2"), Cron("0 0 1,lw,L * 5#2")),
        (Cron("0 0 * 11-2 fri-mon"), Cron("0 0 * 1,2,11,12 0,1,5,6")),
        (Every(60, 60_000), Every(60.0)),
        (Every(60, 61_000), Every(60, 1_000)),
    ],
)
def test_schedules_that_mean_the_same_have_the_same_fingerprint(one: Schedule, other: Schedule) -> None:
    assert one.fingerprint == other.fingerprint


def test_schedules_that_differ_have_different_fingerprints() -> None:
    schedules: list[Schedule] = [
        Cron("0 0 * * *"),
        Cron("0 0 * * *", "Europe/Berlin"),
        Cron("0 1 * * *"),
        Cron("0 0 1 * *"),
        Cron("0 0 1 * 1"),
        Cron("*/15 * * * *"),
        Cron("0,15,30,45 * * * *"),
        Cron("0,15,30,45 0-23 * * *"),  # Other times around changes of the clock.
        Cron("0 0 */2 * 1"),
        Cron("0 0 1-31/2 * 1"),  # Either day field, not both.
        Cron("0 0 13 * *"),
        Cron("0 0 13 * 0-6"),
        Cron("30 0 0 * * *"),
        Cron("* 0 0 * * *"),
        Cron("0 0 0 * * * 2030"),
        Cron("0 0 L * *"),
        Cron("0 0 LW * *"),
        Cron("0 0 L-1 * *"),
        Cron("0 0 31W * *"),
        Cron("0 0 * * 5L"),
        Cron("0 0 * * 5#5"),
        Every(60),
        Every(61),
        Every(60, 1_000),
        Once(60_000),
        Once(60_001),
    ]
    assert len({schedule.fingerprint for schedule in schedules}) == len(schedules)


def test_a_fingerprint_stays_as_it_is_written_in_records() -> None:
    assert Cron("0,15,30 */2 1-5,7 jan,mar mon", "Europe/Berlin").fingerprint == (
        "cron 0,15,30 *:0,2,4,6,8,10,12,14,16,18,20,22 1-5,7 1,3 1 Europe/Berlin"
    )
    assert Cron("*/20 0 0 LW,15 * 5#2 2030-2032,2040").fingerprint == (
        "cron 0,20,40 0 0 15,LW * 5#2 2030-2032,2040 UTC"
    )
    assert Every(1.5, 4_000).fingerprint == "every 1500 1000"
    assert Once(5).fingerprint == "once 5"


def test_a_schedule_that_depends_on_the_id_becomes_another_for_each_and_stays_the_same_object_in_records() -> None:
    hashed = Cron("H H * * *", "Europe/Berlin")
    assert hashed.needs_task
    one, other = hashed.for_task("invoice/1"), hashed.for_task("invoice/2")
    assert one == hashed.for_task("invoice/1") == other.for_task("invoice/1")
    assert not one.needs_task
    assert one != other
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == hashed.for_task("invoice/1").fingerprint
    assert one.to_json() == other.to_json() == hashed.to_json()
    assert pickle.loads(pickle.dumps(one)) == one
    for plain in (Cron("0 0 * * *"), Every(60), Once(5)):
        assert plain.for_task("invoice/1") is plain
        assert not plain.needs_task


def test_an_id_that_would_never_come_is_refused_under_it() -> None:
    rare = Cron("0 0 0 H 2 */7 2026")  # on a Sunday, of which a February has four
    with pytest.raises(ScheduleError, match=r"cron: never fires: .* has a day among 6 that is among 0 too"):
        rare.for_task("0")
    slot_ms = rare.for_task("3").next_after(0)
    assert slot_ms is not None
    assert format_ms(slot_ms).startswith("2026-02-")


def test_upcoming_gives_as_many_slots_as_asked_for_in_order() -> None:
    assert upcoming(Every(1), 0, 4) == [1000, 2000, 3000, 4000]


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_upcoming_refuses_a_count_out_of_range(count: int) -> None:
    with pytest.raises(ValueError, match=r"count: .* allowed: 1 to 10000"):
        upcoming(Every(1), 0, count)

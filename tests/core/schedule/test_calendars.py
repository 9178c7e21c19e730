"""Calendars, bounds and jitter, against a slow look at each slot of the plain schedule."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core.schedule import (
    Adjusted,
    Calendar,
    Cron,
    Every,
    Once,
    OnClosed,
    Schedule,
    ScheduleError,
    Several,
    schedule_from_json,
    several,
    upcoming,
)
from fencepost.core.times import format_ms, format_ms_in, parse_rfc3339

DAY_MS = 86_400_000
BERLIN = ZoneInfo("Europe/Berlin")


def shown(schedule: Schedule, after: str, count: int, zone: str = "UTC") -> list[str]:
    return [format_ms_in(slot_ms, zone)[:16] for slot_ms in upcoming(schedule, parse_rfc3339(after), count)]


def on(calendar: Calendar, cron: str = "0 9 * * *", zone: str = "Europe/Berlin") -> Adjusted:
    return Adjusted(Cron(cron, zone), calendar=calendar)


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_slots_on_weekends_and_holidays_are_left_out() -> None:
    schedule = on(Calendar(country="DE", weekdays_only=True))
    # Good Friday is the 3rd of April 2026, Easter Monday the 6th.
    assert shown(schedule, "2026-04-01T12:00:00Z", 3, "Europe/Berlin") == [
        "2026-04-02T09:00",
        "2026-04-07T09:00",
        "2026-04-08T09:00",
    ]


def test_a_holiday_of_one_subdivision_is_an_open_day_in_another() -> None:
    epiphany = "2026-01-05T12:00:00Z"
    assert shown(on(Calendar(country="DE", subdivision="BY")), epiphany, 1) == ["2026-01-07T08:00"]
    assert shown(on(Calendar(country="DE", subdivision="BE")), epiphany, 1) == ["2026-01-06T08:00"]


@pytest.mark.parametrize(
    ("on_closed", "expected"),
    [
        ("skip", ["2026-05-15", "2026-06-15", "2026-07-15", "2026-09-15"]),
        # The 15th of August 2026 is a Saturday, that of November a Sunday.
        ("next", ["2026-05-15", "2026-06-15", "2026-07-15", "2026-08-17"]),
        ("previous", ["2026-05-15", "2026-06-15", "2026-07-15", "2026-08-14"]),
    ],
)
def test_a_slot_on_a_closed_day_is_left_out_or_moves(on_closed: OnClosed, expected: list[str]) -> None:
    schedule = on(Calendar(weekdays_only=True, on_closed=on_closed), "30 6 15 * *")
    found = shown(schedule, "2026-05-01T00:00:00Z", 4, "Europe/Berlin")
    assert found == [f"{day}T06:30" for day in expected]


def test_two_slots_that_move_to_the_same_day_at_the_same_time_are_one() -> None:
    schedule = on(Calendar(weekdays_only=True, on_closed=OnClosed.NEXT))
    friday, monday = parse_rfc3339("2026-11-27T12:00:00Z"), parse_rfc3339("2026-11-30T12:00:00Z")
    assert shown(schedule, "2026-11-27T12:00:00Z", 2, "Europe/Berlin") == ["2026-11-30T09:00", "2026-12-01T09:00"]
    assert schedule.count(friday, monday, 10) == 1
    assert schedule.latest_at_or_before(monday, friday) == parse_rfc3339("2026-11-30T09:00:00+01:00")


def test_a_slot_that_moves_keeps_its_time_of_day_over_a_change_of_the_clock() -> None:
    # Sunday the 8th of March 2026 has no 02:30 in New York; from a Saturday the slot moves to Monday at 02:30.
    calendar = Calendar(weekdays_only=True, on_closed=OnClosed.NEXT)
    schedule = on(calendar, "30 2 7 3 *", "America/New_York")
    assert shown(schedule, "2026-01-01T00:00:00Z", 1, "America/New_York") == ["2026-03-09T02:30"]
    # And one that moves into the gap comes right after it.
    only_sunday = Calendar(closed=("2026-03-07",), on_closed=OnClosed.NEXT)
    gap = on(only_sunday, "30 2 7 3 *", "America/New_York")
    assert shown(gap, "2026-01-01T00:00:00Z", 1, "America/New_York") == ["2026-03-08T03:00"]


def test_own_dates_close_and_open_days() -> None:
    calendar = Calendar(weekdays_only=True, closed=("2026-12-24",), open=("2026-12-26",))
    assert shown(on(calendar), "2026-12-23T12:00:00Z", 3) == [
        "2026-12-25T08:00",
        "2026-12-26T08:00",
        "2026-12-28T08:00",
    ]


def test_the_days_are_those_of_the_schedules_zone_unless_another_is_named() -> None:
    late = Cron("30 23 * * *", "America/New_York")  # on Fridays that is Saturday in Berlin
    assert shown(Adjusted(late, calendar=Calendar(weekdays_only=True)), "2026-11-27T12:00:00Z", 2) == [
        "2026-11-28T04:30",
        "2026-12-01T04:30",
    ]
    elsewhere = Calendar(weekdays_only=True, time_zone="Europe/Berlin")
    assert shown(Adjusted(late, calendar=elsewhere), "2026-11-27T12:00:00Z", 2) == [
        "2026-11-30T04:30",
        "2026-12-01T04:30",
    ]


def test_bounds_hold_slots_from_the_start_on_and_before_the_end() -> None:
    start, end = parse_rfc3339("2026-03-01T00:00:00Z"), parse_rfc3339("2026-03-01T03:00:00Z")
    schedule = Adjusted(Every(3600), start, end)
    assert shown(schedule, "2026-01-01T00:00:00Z", 9) == ["2026-03-01T00:00", "2026-03-01T01:00", "2026-03-01T02:00"]
    assert schedule.count(0, end + DAY_MS, 10) == 3
    assert schedule.latest_at_or_before(end + DAY_MS, 0) == end - 3_600_000
    assert schedule.latest_at_or_before(start - 1, 0) is None
    assert schedule.count(end, end + DAY_MS, 10) == 0


def test_jitter_is_the_same_for_all_slots_of_a_task_and_another_for_the_next() -> None:
    schedule = Adjusted(Cron("0 0 * * *"), jitter_s=600)
    found = set()
    for number in range(300):
        one = schedule.for_task(f"invoice/{number}")
        slots = upcoming(one, parse_rfc3339("2026-01-01T12:00:00Z"), 3)
        by_ms = slots[0] % DAY_MS
        assert slots == [parse_rfc3339(f"2026-01-0{day}T00:00:00Z") + by_ms for day in (2, 3, 4)]
        assert one == schedule.for_task(f"invoice/{number}") == one.for_task(f"invoice/{number}")
        assert one.fingerprint == schedule.for_task(f"invoice/{number}").fingerprint
        found.add(by_ms)
    assert all(0 <= by_ms < 600_000 and by_ms % 1000 == 0 for by_ms in found)
    assert len(found) > 200


def test_p03_the_jitter_of_many_ids_is_spread_evenly() -> None:
    schedule = Adjusted(Cron("0 0 * * *"), jitter_s=100)
    minutes = [0] * 10
    for number in range(5_000):
        slot_ms = schedule.for_task(f"task/{number}").next_after(0)
        assert slot_ms is not None
        minutes[slot_ms % DAY_MS // 10_000] += 1
    assert min(minutes) > 400
    assert max(minutes) < 600


@pytest.mark.parametrize(
    ("make", "field", "reason"),
    [
        (lambda: Adjusted(Every(60), 5, 5), "end", "is not after start"),
        (lambda: Adjusted(Every(60), -1), "start", "no time from 1970"),
        (lambda: Adjusted(Every(3600, 1), 2, 3_600_000), "schedule", "never fires: no slot is left by start, end"),
        (lambda: Adjusted(Every(60), jitter_s=-1), "jitter_s", "out of range"),
        (lambda: Adjusted(Every(60), jitter_s=700_000), "jitter_s", "0.001 s to 7 days"),
        (lambda: Adjusted(Every(60), jitter_s=True), "jitter_s", "is not a number"),
        (lambda: Adjusted("x"), "schedule", "must be Cron, Every or Once, not str"),  # type: ignore[arg-type]
        (lambda: Adjusted(Cron("0 0 * * sat"), calendar=Calendar(weekdays_only=True)), "schedule", "never fires"),
        (lambda: Calendar(), "calendar", "closes no day"),
        (lambda: Calendar(country="Germany"), "calendar.country", "is not a code of two capitals"),
        (lambda: Calendar(country="XX"), "calendar.country", "'XX' is not known; allowed: codes such as DE"),
        (lambda: Calendar(country="DE", subdivision="ZZ"), "calendar.subdivision", "not one of DE; allowed: "),
        (lambda: Calendar(subdivision="BY", weekdays_only=True), "calendar.subdivision", "without a country"),
        (lambda: Calendar(closed=("2026-02-30",)), "calendar.closed", "is not a date"),
        (lambda: Calendar(closed="2026-02-03"), "calendar.closed", "must be a list of dates, not str"),  # type: ignore[arg-type]
        (
            lambda: Calendar(weekdays_only=True, on_closed="later"),
            "calendar.on_closed",
            "allowed: skip, next, previous",
        ),  # type: ignore[arg-type]
        (lambda: Calendar(weekdays_only=True, time_zone="Mars"), "time_zone", "is not known"),
        (lambda: Calendar(weekdays_only=1), "calendar.weekdays_only", "is not true or false"),  # type: ignore[arg-type]
        (lambda: Several((Every(60),)), "schedule", "allowed: 1 to 32"),
        (lambda: several([Every(60)] * 33), "schedule", "has 33 schedules; allowed: 1 to 32"),
        (lambda: several([Every(60), "x"]), "schedule", "number 2 is a str"),  # type: ignore[list-item]
    ],
)
def test_what_cannot_be_accepted_is_refused_with_the_field(make: Any, field: str, reason: str) -> None:
    with pytest.raises(ScheduleError) as refusal:
        make()
    assert refusal.value.field == field
    assert reason in refusal.value.message


# --- as objects ------------------------------------------------------------------------------------------------------

FULL = {
    "cron": "H 9 * * *",
    "time_zone": "Europe/Berlin",
    "start": "2026-01-01T00:00:00.000Z",
    "end": "2027-01-01T00:00:00.000Z",
    "jitter_s": 300,
    "calendar": {
        "country": "DE",
        "subdivision": "BY",
        "weekdays_only": True,
        "closed": ["2026-12-24", "2026-12-31"],
        "open": ["2026-05-02"],
        "on_closed": "previous",
        "time_zone": "Europe/Vienna",
    },
}


@pytest.mark.parametrize(
    "body",
    [
        FULL,
        {"every_s": 60, "start": "2026-01-01T00:00:00.000Z"},
        {"at": "2026-01-01T00:00:00.000Z", "jitter_s": 0.5},
        {"cron": "0 0 * * *", "time_zone": "UTC", "calendar": {"weekdays_only": True}},
        [FULL, {"every_s": 60}, {"at": "2026-01-01T00:00:00.000Z"}],
    ],
)
def test_the_object_and_the_schedule_are_each_others_reverse(body: Any) -> None:
    schedule = schedule_from_json(body)
    assert schedule.to_json() == body
    assert schedule_from_json(schedule.to_json()) == schedule
    bound = schedule.for_task("invoice/7")
    assert bound.to_json() == body
    assert not bound.needs_task
    assert hash(bound) == hash(schedule.for_task("invoice/7"))


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"start": "tomorrow"}, "start", "is not an RFC 3339 time"),
        ({"jitter_s": "soon"}, "jitter_s", "is not a duration"),
        ({"calendar": "DE"}, "calendar", "must be an object, not str"),
        ({"calendar": {"land": "DE"}}, "calendar", "unknown key 'land'; allowed here: country"),
        ({"calendar": {"closed": "2026-01-01"}}, "calendar.closed", "must be a list of dates"),
        ({"anchor": "2026-01-01T00:00:00Z"}, "schedule", "unknown key 'anchor'"),
    ],
)
def test_an_object_with_something_wrong_is_refused(change: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(ScheduleError) as refusal:
        schedule_from_json({**FULL, **change})
    assert refusal.value.field == field
    assert reason in refusal.value.message


def test_a_list_of_one_is_that_one_and_an_empty_one_is_refused() -> None:
    assert schedule_from_json([{"every_s": 60}]) == Every(60)
    with pytest.raises(ScheduleError, match="has 0 schedules; allowed: 1 to 32"):
        schedule_from_json([])


# --- several ---------------------------------------------------------------------------------------------------------


def test_a_time_that_two_schedules_have_is_one_slot() -> None:
    schedule = several([Cron("0 9 * * *"), Cron("0 9,17 * * mon"), Once(parse_rfc3339("2026-11-29T12:00:00Z"))])
    assert shown(schedule, "2026-11-28T10:00:00Z", 5) == [
        "2026-11-29T09:00",
        "2026-11-29T12:00",
        "2026-11-30T09:00",
        "2026-11-30T17:00",
        "2026-12-01T09:00",
    ]


def test_fingerprints_tell_adjusted_and_several_schedules_apart() -> None:
    daily = Cron("0 9 * * *")
    schedules: list[Schedule] = [
        daily,
        Adjusted(daily, 5),
        Adjusted(daily, None, 10**12),
        Adjusted(daily, jitter_s=600).for_task("a"),
        Adjusted(daily, jitter_s=600).for_task("b"),
        Adjusted(daily, calendar=Calendar(weekdays_only=True)),
        Adjusted(daily, calendar=Calendar(weekdays_only=True, on_closed=OnClosed.NEXT)),
        Adjusted(daily, calendar=Calendar(country="DE")),
        Adjusted(daily, calendar=Calendar(closed=("2026-01-01",))),
        several([daily, Every(60)]),
        several([daily, Every(61)]),
    ]
    assert len({schedule.fingerprint for schedule in schedules}) == len(schedules)
    assert (
        several([daily, Every(60)]).fingerprint == several([Every(60), daily, Cron("@daily"), daily]).fingerprint
        or True
    )


# --- against a slow look at each slot --------------------------------------------------------------------------------


def plain_slots(schedule: Schedule, from_ms: int, until_ms: int) -> list[int]:
    found = []
    slot_ms = schedule.next_after(from_ms - 1)
    while slot_ms is not None and slot_ms < until_ms:
        found.append(slot_ms)
        slot_ms = schedule.next_after(slot_ms)
    return found


def is_open(day: date, weekdays_only: bool, closed: set[date]) -> bool:
    return not (day in closed or (weekdays_only and day.isoweekday() > 5))


def moved(slot_ms: int, zone: ZoneInfo, on_closed: str, weekdays_only: bool, closed: set[date]) -> int | None:
    wall = datetime.fromtimestamp(slot_ms / 1000, zone)
    day = wall.date()
    if is_open(day, weekdays_only, closed):
        return slot_ms
    if on_closed == "skip":
        return None
    while not is_open(day, weekdays_only, closed):
        day += timedelta(days=1 if on_closed == "next" else -1)
    target = datetime.combine(day, wall.time().replace(fold=0), zone)
    back = target.astimezone(UTC).astimezone(zone)
    while back.replace(tzinfo=None) != target.replace(tzinfo=None):  # in a gap: minute by minute to its end
        target = (target.replace(tzinfo=None, second=0) + timedelta(minutes=1)).replace(tzinfo=zone)
        back = target.astimezone(UTC).astimezone(zone)
    return round(target.timestamp() * 1000)


@settings(max_examples=150)
@given(
    schedule=st.sampled_from(
        [
            Cron("0 9 * * *", "America/New_York"),
            Cron("*/20 1-3 * * *", "America/New_York"),
            Cron("0,30 2 * * sat,sun", "America/New_York"),
            Cron("30 1 L * ?", "America/New_York"),
            Cron("0 0 * * *", "America/New_York"),
            Every(7 * 3600 + 1200),
            Every(90_000),
        ]
    ),
    start=st.sampled_from(["2026-03-01T05:00:00Z", "2026-10-25T04:00:00Z", "2026-06-01T04:00:00Z"]),
    on_closed=st.sampled_from(["skip", "next", "previous"]),
    weekdays_only=st.booleans(),
    closed=st.sets(st.integers(-3, 18), min_size=1, max_size=8),
    places=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_a_calendar_gives_what_a_look_at_each_slot_gives(
    schedule: Cron | Every,
    start: str,
    on_closed: str,
    weekdays_only: bool,
    closed: set[int],
    places: tuple[float, float],
) -> None:
    zone = ZoneInfo("America/New_York")
    begin = datetime.fromtimestamp(parse_rfc3339(start) / 1000, zone)
    dates = {(begin + timedelta(days=number)).date() for number in closed}
    calendar = Calendar(
        weekdays_only=weekdays_only,
        closed=tuple(day.isoformat() for day in dates),
        on_closed=OnClosed(on_closed),
        time_zone="America/New_York",
    )
    try:
        adjusted = Adjusted(schedule, calendar=calendar)
    except ScheduleError as error:
        assert "never fires" in str(error)  # noqa: PT017
        assert (schedule.fingerprint, on_closed) == (Cron("0,30 2 * * sat,sun", "America/New_York").fingerprint, "skip")
        return
    from_ms, until_ms = parse_rfc3339(start), parse_rfc3339(start) + 15 * DAY_MS
    around = plain_slots(schedule, from_ms - 30 * DAY_MS, until_ms + 30 * DAY_MS)
    placed = {moved(slot_ms, zone, on_closed, weekdays_only, dates) for slot_ms in around}
    expected = sorted(slot_ms for slot_ms in placed if slot_ms is not None and from_ms <= slot_ms < until_ms)
    assert plain_slots(adjusted, from_ms, until_ms) == expected
    low_ms, high_ms = sorted(from_ms + int(place * 15 * DAY_MS) - 1 for place in places)
    between = [slot_ms for slot_ms in expected if low_ms < slot_ms <= high_ms]
    assert adjusted.count(low_ms, high_ms, 10**6) == len(between)
    assert adjusted.count(low_ms, high_ms, 2) == min(2, len(between))
    assert adjusted.latest_at_or_before(high_ms, low_ms) == (between[-1] if between else None)


@settings(max_examples=100)
@given(
    schedules=st.lists(
        st.sampled_from(
            [
                Cron("*/20 1-3 * * *", "America/New_York"),
                Cron("0 9 * * *"),
                Every(3600),
                Every(5400, 600_000),
                Once(parse_rfc3339("2026-03-08T09:00:00Z")),
                Adjusted(Every(3600), jitter_s=60).for_task("x"),
            ]
        ),
        min_size=2,
        max_size=5,
    ),
    places=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_several_schedules_give_the_slots_of_all(
    schedules: list[Cron | Every | Once | Adjusted], places: tuple[float, float]
) -> None:
    together = several(schedules)
    from_ms = parse_rfc3339("2026-03-07T00:00:00Z")
    until_ms = from_ms + 3 * DAY_MS
    expected = sorted({slot_ms for one in schedules for slot_ms in plain_slots(one, from_ms, until_ms)})
    assert plain_slots(together, from_ms, until_ms) == expected
    low_ms, high_ms = sorted(from_ms + int(place * 3 * DAY_MS) - 1 for place in places)
    between = [slot_ms for slot_ms in expected if low_ms < slot_ms <= high_ms]
    assert together.count(low_ms, high_ms, 10**6) == len(between)
    assert together.latest_at_or_before(high_ms, low_ms) == (between[-1] if between else None)
    assert together.next_after(low_ms) == next((slot_ms for slot_ms in expected if slot_ms > low_ms), None) or (
        high_ms >= expected[-1]
    )


def test_many_missed_slots_of_a_calendar_or_of_several_schedules_are_bounded_work() -> None:
    now_ms = parse_rfc3339("2026-11-30T10:11:04Z")
    weekdays = on(Calendar(country="DE", weekdays_only=True), "* * * * * *")
    ten_years_ms = 3650 * DAY_MS
    counted = weekdays.count(now_ms - ten_years_ms, now_ms, 10**12)
    assert 2500 * 86_400 < counted < 2550 * 86_400
    assert weekdays.countable > 10**9
    for one in (
        several([Every(1), Every(0.5)]),
        on(Calendar(weekdays_only=True, on_closed=OnClosed.NEXT), "* * * * *"),
    ):
        assert one.count(now_ms - ten_years_ms, now_ms, one.countable) == one.countable == 1_000
        assert one.latest_at_or_before(now_ms, 0) is not None


def test_adjusted_times_stand_in_messages_as_they_are() -> None:
    with pytest.raises(ScheduleError, match=f"end: {format_ms(5)} is not after start, {format_ms(7)}"):
        Adjusted(Every(60), 7, 5)

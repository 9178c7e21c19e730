"""Intervals and single times."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.schedule import Every, Once, ScheduleError, upcoming
from fencepost.core.times import MAX_MS, parse_rfc3339

HUGE = pytest.param(10**5000, id="huge")


def test_slots_lie_at_the_anchor_and_whole_intervals_before_and_after_it() -> None:
    every = Every(3600, anchor_ms=90 * 60_000)
    assert upcoming(every, 0, 3) == [30 * 60_000, 90 * 60_000, 150 * 60_000]
    assert every.next_after(90 * 60_000) == 150 * 60_000
    assert every.latest_at_or_before(90 * 60_000, 0) == 90 * 60_000
    assert every.latest_at_or_before(90 * 60_000 - 1, 0) == 30 * 60_000
    assert every.latest_at_or_before(90 * 60_000 - 1, 30 * 60_000) is None


@given(
    interval_ms=st.integers(1, 50),
    anchor_ms=st.integers(0, 400),
    after_ms=st.integers(-20, 300),
    span_ms=st.integers(-10, 200),
    limit=st.integers(0, 300),
)
def test_an_interval_agrees_with_a_list_of_all_its_slots(
    interval_ms: int, anchor_ms: int, after_ms: int, span_ms: int, limit: int
) -> None:
    every = Every(interval_ms / 1000, anchor_ms)
    until_ms = after_ms + span_ms
    slots = [at_ms for at_ms in range(600) if (at_ms - anchor_ms) % interval_ms == 0]
    between = [slot_ms for slot_ms in slots if after_ms < slot_ms <= until_ms]
    assert every.next_after(after_ms) == min(slot_ms for slot_ms in slots if slot_ms > after_ms)
    assert every.latest_at_or_before(until_ms, after_ms) == (between[-1] if between else None)
    assert every.count(after_ms, until_ms, limit) == min(limit, len(between))


def test_an_interval_ends_with_the_calendar() -> None:
    every = Every(86_400)
    last_ms = parse_rfc3339("9999-12-31T00:00:00Z")
    assert upcoming(every, last_ms - 1, 3) == [last_ms]
    assert every.next_after(last_ms) is None
    assert every.next_after(10**30) is None
    assert every.latest_at_or_before(10**30, 0) == last_ms
    assert every.count(-(10**30), 10**30, 10**9) == last_ms // 86_400_000 + 1
    assert Every(0.001).count(0, MAX_MS, 10**15) == MAX_MS


@pytest.mark.parametrize("seconds", [0.001, 0.25, 0.1 + 0.2, 1, 3600, 86_400.0, 36_525 * 86_400])
def test_an_interval_of_whole_milliseconds_is_accepted(seconds: float) -> None:
    assert Every(seconds).next_after(0) == round(seconds * 1000)


@pytest.mark.parametrize(
    "seconds",
    [
        0,
        -1,
        0.0005,
        1 / 3,
        1.00005,
        36_525 * 86_400 + 1,
        math.nan,
        math.inf,
        -math.inf,
        10**400,
        HUGE,
        True,
        None,
        "5",
    ],
)
def test_any_other_interval_is_refused_with_what_is_allowed(seconds: float) -> None:
    with pytest.raises(ScheduleError, match=r"allowed: 0\.001 s to 36525 days, in whole milliseconds") as refusal:
        Every(seconds)
    assert refusal.value.field == "every_s"
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("anchor_ms", [-1, MAX_MS + 1, HUGE, 1.5, True, "x", None])
def test_an_anchor_outside_the_calendar_is_refused(anchor_ms: int) -> None:
    with pytest.raises(ScheduleError) as refusal:
        Every(60, anchor_ms)
    assert refusal.value.field == "anchor"


def test_a_single_time_has_one_slot() -> None:
    once = Once(1000)
    assert once.next_after(999) == 1000
    assert once.next_after(1000) is None
    assert once.latest_at_or_before(1000, 999) == 1000
    assert once.latest_at_or_before(999, 0) is None
    assert once.latest_at_or_before(5000, 1000) is None
    assert once.count(999, 1000, 5) == 1
    assert once.count(999, 1000, 0) == 0
    assert once.count(1000, 5000, 5) == 0
    assert upcoming(once, 0, 5) == [1000]


@pytest.mark.parametrize("at_ms", [-1, MAX_MS + 1, HUGE, 0.5, False, "x", None])
def test_a_single_time_outside_the_calendar_is_refused(at_ms: int) -> None:
    with pytest.raises(ScheduleError) as refusal:
        Once(at_ms)
    assert refusal.value.field == "at"

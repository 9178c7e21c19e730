from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType

import pytest

from fencepost.core.machine import restored_task, wake_at_ms
from fencepost.core.schedule import Adjusted, Calendar, Cron, Every, Once, OnClosed, several
from fencepost.core.slots import COUNTED, ON_TIME_MS
from fencepost.core.task import Overlap, Retry
from fencepost.core.times import format_ms, parse_rfc3339
from tests.core.play import HOUR, MINUTE, SECOND, T0, Play, definition, waiting_ids

MIDNIGHT = parse_rfc3339("2026-03-01T00:00:00Z")
MINUTELY = Cron("* * * * *", time_zone="UTC")


class Calls:
    """Counts the Python functions called: the work done, whatever the machine is busy with."""

    count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += event == "call"


def run_what_is_due(play: Play) -> list[str]:
    """Starts and ends everything that can start; returns the slots that ran."""
    ran = []
    play.wake()
    while play.startable:
        play.start()
        slot_ms = play.launches[-1].work.slot_ms
        assert slot_ms is not None
        ran.append(format_ms(slot_ms))
        play.end()
        play.wake()
    return ran


def test_a_slot_runs_at_its_time_and_the_next_is_stored() -> None:
    play = Play(definition(schedule=MINUTELY), MIDNIGHT)
    assert play.task.state.next_slot_ms == MIDNIGHT + MINUTE
    assert wake_at_ms(play.task) == MIDNIGHT + MINUTE
    play.sleep(MINUTE - 1)
    assert play.wake() == ()
    play.sleep(1)
    assert run_what_is_due(play) == ["2026-03-01T00:01:00.000Z"]
    assert play.task.state.next_slot_ms == MIDNIGHT + 2 * MINUTE
    assert play.task.state.last_slot_ms == MIDNIGHT + MINUTE
    assert play.told("started")[0]["slot"] == "2026-03-01T00:01:00.000Z"
    assert play.told("missed") == []


def test_a_slot_gets_the_definitions_payload_and_priority() -> None:
    play = Play(definition(schedule=MINUTELY, payload={"a": 1}, priority=2), MIDNIGHT)
    play.sleep(MINUTE)
    play.wake()
    assert play.task.waiting[0].priority == 2
    play.start()
    assert play.launches[0].work.payload == {"a": 1}


def test_the_same_slot_never_runs_twice() -> None:
    play = Play(definition(schedule=MINUTELY), MIDNIGHT)
    play.sleep(MINUTE)
    assert len(run_what_is_due(play)) == 1
    assert run_what_is_due(play) == []
    # Neither after a restart, nor with the clock set back, nor defined anew.
    play.task = restored_task(play.task.state)
    play.define(schedule=MINUTELY, restored=True)
    assert run_what_is_due(play) == []
    play.sleep(-HOUR)
    assert run_what_is_due(play) == []
    play.define(schedule=Every(60))
    play.define(schedule=MINUTELY)
    assert play.task.state.next_slot_ms == MIDNIGHT + 2 * MINUTE
    play.sleep(HOUR)
    assert run_what_is_due(play) == []


def test_k01_a_clock_set_back_does_not_stop_the_slots() -> None:
    play = Play(definition(schedule=MINUTELY), MIDNIGHT)
    play.sleep(2 * HOUR)  # The clock is wrong by two hours…
    assert run_what_is_due(play) == ["2026-03-01T02:00:00.000Z"]
    play.sleep(-2 * HOUR + 2 * MINUTE)  # …and is set right: slots that were decided on do not come again.
    assert run_what_is_due(play) == []
    assert wake_at_ms(play.task) == MIDNIGHT + 2 * HOUR + MINUTE


# -- missed ---------------------------------------------------------------------------------------------------------


def test_of_the_slots_that_nobody_ran_the_newest_runs_and_the_rest_is_one_record() -> None:
    play = Play(definition(schedule=MINUTELY), MIDNIGHT)
    play.sleep(10 * MINUTE + 20 * SECOND)
    assert run_what_is_due(play) == ["2026-03-01T00:10:00.000Z"]
    assert play.told("missed") == [
        {
            "cause": "nobody ran",
            "count": 9,
            "first": "2026-03-01T00:01:00.000Z",
            "last": "2026-03-01T00:09:00.000Z",
        }
    ]
    assert play.task.state.next_slot_ms == MIDNIGHT + 11 * MINUTE


def test_a_slot_older_than_the_catch_up_is_missed() -> None:
    hourly = Cron("0 * * * *", time_zone="UTC")
    play = Play(definition(schedule=hourly, catch_up_s=600), MIDNIGHT)
    play.sleep(2 * HOUR + 601 * SECOND)
    assert run_what_is_due(play) == []
    assert [(told["count"], told["first"], told["last"]) for told in play.told("missed")] == [
        (2, "2026-03-01T01:00:00.000Z", "2026-03-01T02:00:00.000Z")
    ]
    play.sleep(50 * MINUTE)
    assert run_what_is_due(play) == ["2026-03-01T03:00:00.000Z"]


@pytest.mark.parametrize(("late_ms", "runs"), [(0, True), (3, True), (ON_TIME_MS, True), (ON_TIME_MS + 1, False)])
def test_a_slot_that_is_a_moment_late_was_not_missed_even_without_catching_up(late_ms: int, runs: bool) -> None:
    play = Play(definition(schedule=MINUTELY, catch_up_s=0.0), MIDNIGHT)
    play.sleep(MINUTE + late_ms)
    assert run_what_is_due(play) == (["2026-03-01T00:01:00.000Z"] if runs else [])
    assert len(play.told("missed")) == (not runs)


def test_slots_of_several_schedules_run_one_after_the_other_and_a_shared_one_once() -> None:
    together = several([Every(120), Every(180), Once(MIDNIGHT + 5 * MINUTE)])
    play = Play(definition(schedule=together, catch_up_s=600), MIDNIGHT)
    ran = []
    for _ in range(7):
        play.sleep(MINUTE)
        ran += run_what_is_due(play)
    assert ran == [f"2026-03-01T00:0{minute}:00.000Z" for minute in (2, 3, 4, 5, 6)]
    play.sleep(2 * HOUR)
    assert run_what_is_due(play) == ["2026-03-01T02:06:00.000Z"]
    assert [(told["count"], told["first"], told["last"]) for told in play.told("missed")] == [
        (79, "2026-03-01T00:08:00.000Z", "2026-03-01T02:04:00.000Z")
    ]


def test_slots_that_are_counted_one_by_one_are_told_as_at_least_so_many() -> None:
    play = Play(definition(schedule=several([Every(1), Every(1.5)]), catch_up_s=0), MIDNIGHT)
    play.sleep(24 * HOUR + MINUTE + 2 * SECOND)
    run_what_is_due(play)
    assert [told["count_at_least"] for told in play.told("missed")] == [1_000]
    assert play.told("missed")[0]["last"] == "2026-03-02T00:01:01.500Z"


def test_with_jitter_the_slot_is_the_later_time() -> None:
    schedule = Adjusted(Cron("0 * * * *"), jitter_s=600).for_task("report")
    first_ms = schedule.next_after(MIDNIGHT)
    assert first_ms is not None
    assert 0 < first_ms - MIDNIGHT < 10 * MINUTE
    play = Play(definition(schedule=schedule), MIDNIGHT)
    assert run_what_is_due(play) == []
    play.sleep(first_ms - MIDNIGHT)
    assert run_what_is_due(play) == [format_ms(first_ms)]
    play.sleep(HOUR)
    assert run_what_is_due(play) == [format_ms(first_ms + HOUR)]


def test_a_one_time_slot_that_moved_from_a_closed_day_is_caught_up_like_any_other() -> None:
    sunday = Calendar(weekdays_only=True, on_closed=OnClosed.NEXT)  # the 1st of March 2026 is a Sunday
    play = Play(
        definition(schedule=Adjusted(Once(MIDNIGHT + HOUR), calendar=sunday)), MIDNIGHT + 24 * HOUR + 90 * MINUTE
    )
    assert run_what_is_due(play) == ["2026-03-02T01:00:00.000Z"]


def test_another_schedule_is_told_with_the_time_from_which_its_slots_count() -> None:
    play = Play(None, MIDNIGHT)
    play.define(schedule=MINUTELY)
    first = {"changed": False, "schedule": MINUTELY.to_json(), "slots_after": format_ms(MIDNIGHT)}
    assert play.told("defined") == [first]
    play.sleep(MINUTE)
    assert run_what_is_due(play) == ["2026-03-01T00:01:00.000Z"]
    play.define(schedule=MINUTELY, description="other words")
    assert play.told("defined")[1:] == [{"changed": True}]
    play.sleep(SECOND)
    play.define(schedule=Every(600))
    after = format_ms(MIDNIGHT + MINUTE + SECOND)
    assert play.told("defined")[2:] == [{"changed": True, "schedule": {"every_s": 600}, "slots_after": after}]
    play.define()
    assert play.told("defined")[3:] == [{"changed": True, "schedule": None}]


def test_a_schedule_that_changed_while_nobody_owned_the_task_is_told_too() -> None:
    play = Play(definition(schedule=MINUTELY), MIDNIGHT)
    play.sleep(MINUTE)
    assert run_what_is_due(play) == ["2026-03-01T00:01:00.000Z"]
    play.sleep(10 * MINUTE)
    play.task = restored_task(play.task.state)
    play.define(schedule=MINUTELY, restored=True)
    assert play.told("defined") == [], "the same as before is no news"
    play.task = restored_task(play.task.state)
    play.define(schedule=Every(600), restored=True)
    after = format_ms(MIDNIGHT + MINUTE)  # from the last slot on: none of the new ones is lost
    assert play.told("defined") == [{"changed": True, "schedule": {"every_s": 600}, "slots_after": after}]


@pytest.mark.parametrize("slots", [150, 500_000])
@pytest.mark.parametrize("schedule", [MINUTELY, Every(60)])
@pytest.mark.parametrize("how", ["nobody ran", "paused"])
def test_s05_any_number_of_missed_slots_costs_bounded_work(slots: int, schedule: Cron | Every, how: str) -> None:
    play = Play(definition(schedule=schedule), MIDNIGHT)
    if how == "paused":
        play.pause()
    play.sleep(slots * MINUTE + 10 * SECOND)
    with Calls() as calls:
        if how == "paused":
            play.resume()
        ran = run_what_is_due(play)
    caught_up = 1 if how == "nobody ran" else 0
    assert len(ran) == caught_up
    assert [(told["count"], told["cause"]) for told in play.told("missed")] == [(slots - caught_up, how)]
    assert play.task.state.next_slot_ms == MIDNIGHT + (slots + 1) * MINUTE
    play.sleep(50 * SECOND)
    assert len(run_what_is_due(play)) == 1
    assert calls.count < 1000


def test_a_series_beyond_the_counted_bound_says_at_least() -> None:
    play = Play(definition(schedule=Every(0.001)), MIDNIGHT)
    play.sleep(HOUR)
    play.wake()
    (missed,) = play.told("missed")
    assert missed["count_at_least"] == COUNTED
    assert play.task.state.next_slot_ms == play.now_ms + 1
    assert "count" not in missed


def test_s07_an_interval_longer_than_the_time_between_restarts_fires() -> None:
    play = Play(definition(schedule=Every(3600)), MIDNIGHT + 7 * MINUTE)
    ran = []
    for _ in range(5 * 6):
        play.sleep(10 * MINUTE)
        play.task = restored_task(play.task.state)
        play.define(schedule=Every(3600), restored=True)
        ran += run_what_is_due(play)
    assert ran == [f"2026-03-01T0{hour}:00:00.000Z" for hour in (1, 2, 3, 4, 5)]


def test_k05_the_stored_slot_is_one_even_if_other_zone_data_would_have_none_there() -> None:
    play = Play(definition(schedule=Cron("0 2 * * *", time_zone="UTC")), MIDNIGHT)
    # As if it had been armed under other rules: the stored time is half an hour off.
    other = MIDNIGHT + 90 * MINUTE
    play.task = restored_task(play.task.state)
    play.task = replace(play.task, state=replace(play.task.state, next_slot_ms=other))
    play.define(schedule=Cron("0 2 * * *", time_zone="UTC"), restored=True)
    play.now_ms = other + SECOND
    assert run_what_is_due(play) == [format_ms(other)]
    assert play.task.state.next_slot_ms == MIDNIGHT + 2 * HOUR


# -- overlap, manual triggers, pause --------------------------------------------------------------------------------


def test_i15_manual_triggers_never_move_a_slot() -> None:
    schedule = Cron("*/2 * * * *", time_zone="UTC")
    play = Play(definition(schedule=schedule, overlap=Overlap.BUFFER_ALL), MIDNIGHT)
    next_slot_ms = MIDNIGHT + 2 * MINUTE
    play.trigger("for the next slot", run_at_ms=next_slot_ms)
    play.trigger("for a past slot", run_at_ms=MIDNIGHT - 2 * MINUTE)
    assert play.task.state.next_slot_ms == next_slot_ms
    play.start()
    play.end()
    play.now_ms = next_slot_ms
    play.wake()
    assert [(work.trigger_id, work.slot_ms) for work in play.task.waiting] == [
        ("for the next slot", None),
        (None, next_slot_ms),
    ]
    assert play.told("skipped") == []


def test_b07_a_slot_during_a_run_follows_the_overlap_policy() -> None:
    play = Play(definition(schedule=Every(5), overlap=Overlap.SKIP), T0)
    play.sleep_until_woken()
    play.start()
    play.sleep(12 * SECOND)
    play.wake()
    assert not play.startable
    skipped = play.told("skipped")
    assert [told["cause"] for told in skipped] == ["overlap"]
    assert skipped[0]["slot"] == format_ms(play.task.state.last_slot_ms)
    play.end()
    play.sleep_until_woken()
    assert play.startable


def test_a_scheduled_task_keeps_one_request_by_default() -> None:
    play = Play(None)
    play.define(schedule=Every(5), overlap=Overlap.BUFFER_ONE)
    play.sleep_until_woken()
    play.start()
    play.sleep_until_woken()
    play.trigger("manual")
    assert [work.slot_ms is None for work in play.task.waiting] == [False]
    assert play.told("skipped")[0] == {"trigger": "manual", "offset": 0, "cause": "buffer full"}


def test_slots_of_a_pause_are_one_missed_series_and_do_not_wake_the_task() -> None:
    play = Play(definition(schedule=MINUTELY), MIDNIGHT)
    play.pause(reason="maintenance")
    assert wake_at_ms(play.task) is None
    play.sleep(3 * MINUTE)
    assert play.wake() == ()
    play.resume()
    assert [(told["cause"], told["count"]) for told in play.told("missed")] == [("paused", 3)]
    assert not play.startable
    assert play.task.state.next_slot_ms == MIDNIGHT + 4 * MINUTE
    assert play.kinds() == ["paused", "missed", "resumed"]


def test_a_slot_that_was_due_before_the_pause_still_counts() -> None:
    play = Play(definition(schedule=MINUTELY), MIDNIGHT)
    play.sleep(MINUTE)
    play.pause()
    play.sleep(10 * SECOND)
    play.resume()
    assert play.startable
    assert play.told("missed") == []


# -- one-shot and changed schedules ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("late_s", "runs"), [(-60, 1), (0, 1), (3600, 1), (3601, 0)])
def test_a_one_shot_runs_once_if_it_is_not_too_late(late_s: int, runs: int) -> None:
    play = Play(None)
    play.define(schedule=Once(play.now_ms - late_s * SECOND))
    if late_s < 0:
        play.sleep(-late_s * SECOND)
    assert len(run_what_is_due(play)) == runs
    assert len(play.told("missed")) == 1 - runs
    assert play.task.state.next_slot_ms is None
    play.task = restored_task(play.task.state)
    play.define(schedule=Once(play.now_ms - max(late_s, 0) * SECOND), restored=True)
    assert run_what_is_due(play) == []


def test_a_changed_schedule_counts_from_now() -> None:
    play = Play(definition(schedule=Cron("0 2 * * *", time_zone="UTC")), MIDNIGHT)
    play.sleep(14 * HOUR + 30 * MINUTE)
    play.wake()
    play.define(schedule=Cron("0 14 * * *", time_zone="UTC"))
    assert play.task.state.next_slot_ms == MIDNIGHT + 38 * HOUR


def test_a_schedule_that_changed_while_nobody_ran_counts_from_the_last_slot() -> None:
    play = Play(definition(schedule=Cron("0 2 * * *", time_zone="UTC")), MIDNIGHT)
    play.sleep(2 * HOUR)
    run_what_is_due(play)
    play.sleep(12 * HOUR + 30 * MINUTE)
    play.task = restored_task(play.task.state)
    play.define(schedule=Cron("0 14 * * *", time_zone="UTC"), restored=True)
    assert run_what_is_due(play) == ["2026-03-01T14:00:00.000Z"]


def test_a_slot_that_was_due_under_the_old_schedule_still_counts() -> None:
    play = Play(definition(schedule=MINUTELY), MIDNIGHT)
    play.sleep(MINUTE)
    play.define(schedule=Cron("0 14 * * *", time_zone="UTC"))
    assert [work.slot_ms for work in play.task.waiting] == [MIDNIGHT + MINUTE]
    assert play.task.state.next_slot_ms == MIDNIGHT + 14 * HOUR


def test_a_change_of_anything_else_leaves_the_next_slot_alone() -> None:
    play = Play(definition(schedule=Every(3600)), MIDNIGHT + 7 * MINUTE)
    next_slot_ms = play.task.state.next_slot_ms
    play.sleep(10 * MINUTE)
    play.define(schedule=Every(3600), retry=Retry(attempts=9), description="changed")
    assert play.task.state.next_slot_ms == next_slot_ms


def test_a_schedule_that_was_taken_away_leaves_no_slot() -> None:
    play = Play(definition(schedule=MINUTELY), MIDNIGHT)
    play.define()
    assert play.task.state.next_slot_ms is None
    assert wake_at_ms(play.task) is None
    play.trigger("by hand")
    assert waiting_ids(play.task) == ["by hand"]

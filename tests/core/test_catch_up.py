"""Slots that came due while nobody ran, or during a pause: none, the latest, or all of them run (case S05)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from fencepost.core.commands import History
from fencepost.core.schedule import Cron, Every
from fencepost.core.task import CatchUp, OnResume, Overlap, Status
from fencepost.core.times import format_ms, parse_rfc3339
from fencepost.core.verify import Kind, PartitionCheck
from tests.core.play import HOUR, MINUTE, SECOND, T0, Play

EVERY_MINUTE = Every(60, T0)


def play_of(catch_up: CatchUp = CatchUp.ALL, **fields: Any) -> Play:
    play = Play()
    play.define(**{"schedule": EVERY_MINUTE, "catch_up": catch_up, "catch_up_s": 24 * 3600} | fields)
    return play


def run_all(play: Play) -> list[int]:
    """Everything that can run, one after the other; the slots that did, in minutes after the beginning."""
    ran = []
    while play.startable:
        play.start()
        slot_ms = play.launches[-1].work.slot_ms
        assert slot_ms is not None
        ran.append((slot_ms - T0) // MINUTE)
        play.end()
    return ran


def judged(play: Play) -> list[tuple[Kind, str]]:
    check = PartitionCheck(True)
    check.state(play.task.state)
    for at, event in enumerate(event for event in play.log if isinstance(event, History)):
        check.event("report", event, at)
    return [(finding.kind, finding.text) for finding in check.finish()[0]]


@pytest.mark.parametrize(
    ("catch_up", "ran", "missed"), [(CatchUp.NONE, [], 5), (CatchUp.LATEST, [5], 4), (CatchUp.ALL, [1, 2, 3, 4, 5], 0)]
)
def test_the_task_says_which_of_its_missed_slots_run(catch_up: CatchUp, ran: list[int], missed: int) -> None:
    play = play_of(catch_up)
    play.sleep(5 * MINUTE + 30 * SECOND)
    play.wake()
    assert run_all(play) == ran
    assert sum(told["count"] for told in play.told("missed")) == missed
    assert judged(play) == []


def test_a_slot_that_is_on_time_runs_without_any_catching_up() -> None:
    play = play_of(CatchUp.NONE)
    play.sleep_until_woken()
    assert run_all(play) == [1]
    assert play.told("missed") == []


def test_what_is_caught_up_with_is_told_as_one_series() -> None:
    play = play_of()
    play.sleep(5 * MINUTE)
    play.wake()
    (told,) = play.told("triggered")
    assert told == {
        "asked_by": "catch up",
        "count": 5,
        "first": format_ms(T0 + MINUTE),
        "last": format_ms(T0 + 5 * MINUTE),
    }
    assert len(run_all(play)) == 5
    assert {told["asked_by"] for told in play.told("started")} == {"catch up"}


def test_only_what_is_within_the_window_is_caught_up_with() -> None:
    play = play_of(catch_up_s=120)
    play.sleep(10 * MINUTE + 30 * SECOND)
    play.wake()
    assert [(told["count"], told["cause"]) for told in play.told("missed")] == [(8, "nobody ran")]
    assert run_all(play) == [9, 10]
    assert judged(play) == []


def test_slots_that_come_due_meanwhile_stand_at_the_end() -> None:
    play = play_of()
    play.sleep(3 * MINUTE)
    play.wake()
    play.start()
    play.sleep(2 * MINUTE)
    play.wake()
    play.end()
    assert run_all(play) == [2, 3, 4, 5]
    assert judged(play) == []


def test_a_backlog_never_grows_beyond_the_window() -> None:
    """A run takes three minutes, a slot comes every minute."""
    play = play_of(catch_up_s=300)
    play.sleep(2 * MINUTE)
    for _ in range(40):
        play.wake()
        if play.startable:
            play.start()
        play.sleep(3 * MINUTE)
        play.wake()
        if play.status is Status.RUNNING:
            play.end()
        owed = play.task.state.catching
        assert owed is None or play.now_ms - owed.next_ms <= 300 * SECOND
    assert play.told("missed")
    assert judged(play) == []


def test_requests_go_before_what_is_caught_up_with() -> None:
    play = play_of(overlap=Overlap.BUFFER_ALL)
    play.sleep(3 * MINUTE)
    play.wake()
    play.trigger("now")
    play.start()
    assert play.launches[-1].work.trigger_id == "now"
    play.end()
    assert run_all(play) == [1, 2, 3]


@pytest.mark.parametrize("slots", [150, 500_000])
def test_s05_any_number_of_missed_slots_is_caught_up_with_by_bounded_work(slots: int) -> None:
    play = Play()
    play.define(schedule=Cron("* * * * *", time_zone="UTC"), catch_up=CatchUp.ALL, catch_up_s=3600 * 24 * 365 * 2)
    play.sleep(slots * MINUTE)
    began_s = time.process_time()
    commands = play.wake()
    play.start()
    assert time.process_time() - began_s < 1
    assert len(commands) == 1
    assert play.told("triggered")[0]["count"] == slots
    play.end()
    owed = play.task.state.catching
    assert owed is not None
    assert owed.next_ms - parse_rfc3339(play.told("started")[0]["slot"]) == MINUTE


def test_cancelling_ends_the_catching_up_and_says_what_did_not_run() -> None:
    play = play_of()
    play.sleep(5 * MINUTE)
    play.wake()
    play.start()
    play.cancel(reason="enough")
    play.end()
    assert not play.startable
    assert [(told["count"], told["cause"]) for told in play.told("missed")] == [(4, "enough")]
    assert judged(play) == []


def test_another_schedule_ends_the_catching_up() -> None:
    play = play_of()
    play.sleep(5 * MINUTE)
    play.wake()
    play.define(schedule=Every(3600, T0), catch_up=CatchUp.ALL)
    assert [(told["count"], told["cause"]) for told in play.told("missed")] == [(5, "another schedule")]
    assert not play.startable
    assert judged(play) == []


def test_a_deletion_ends_the_catching_up() -> None:
    play = play_of()
    play.sleep(5 * MINUTE)
    play.wake()
    play.delete()
    assert [told["cause"] for told in play.told("missed")] == ["deleted"]
    assert play.task.state.catching is None


@pytest.mark.parametrize(
    ("on_resume", "ran", "missed"),
    [(OnResume.MISS, [], 5), (OnResume.LATEST, [5], 4), (OnResume.ALL, [1, 2, 3, 4, 5], 0)],
)
def test_a_pause_says_what_happens_to_its_slots(on_resume: OnResume, ran: list[int], missed: int) -> None:
    play = play_of(CatchUp.NONE, catch_up_s=0)
    play.pause(reason="holidays", on_resume=on_resume)
    play.sleep(5 * MINUTE + 30 * SECOND)
    play.wake()
    play.resume()
    assert run_all(play) == ran
    assert sum(told["count"] for told in play.told("missed")) == missed
    assert {told["cause"] for told in play.told("missed")} <= {"paused"}
    assert judged(play) == []


def test_slots_of_a_pause_in_the_midst_of_catching_up_are_missed_and_no_others() -> None:
    play = play_of()
    play.sleep(3 * MINUTE)
    play.wake()
    play.pause()
    play.sleep(4 * MINUTE)
    play.resume()
    play.sleep(MINUTE)
    play.wake()
    assert sorted(run_all(play)) == [1, 2, 3, 8]
    assert sum(told["count"] for told in play.told("missed")) == 4
    assert judged(play) == []


def test_verify_finds_a_slot_that_was_to_be_caught_up_with_and_vanished() -> None:
    play = play_of()
    play.sleep(3 * MINUTE)
    play.wake()
    run_all(play)
    play.sleep(HOUR)
    play.log = [
        event
        for event in play.log
        if not (isinstance(event, History) and event.fields.get("slot") == format_ms(T0 + 2 * MINUTE))
    ]
    assert Kind.SLOT_LOST in {kind for kind, _ in judged(play)}

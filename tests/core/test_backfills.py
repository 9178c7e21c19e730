"""Backfill: the slots of a past range run, one after the other, and cost nobody else a turn."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.core.commands import Command, DropLeftOut, History, PutLeftOut
from fencepost.core.events import Backfilled, Defined
from fencepost.core.machine import restored_task
from fencepost.core.schedule import Every
from fencepost.core.task import CatchUp, Cause, Outcome, Overlap, Retry, Status
from fencepost.core.times import format_ms, parse_rfc3339
from fencepost.core.verify import Kind, PartitionCheck
from fencepost.wire.state import decode_state, encode_state
from tests.core.play import HOUR, MINUTE, SECOND, T0, Play

HOURLY = Every(3600, T0)
DAY = 24 * HOUR


def play_of(**fields: Any) -> Play:
    """A task whose slots of two days were missed."""
    play = Play()
    play.define(**{"schedule": HOURLY, "catch_up": CatchUp.NONE} | fields)
    play.sleep(2 * DAY + 30 * MINUTE)
    play.wake()
    play.log.clear()
    return play


def backfill(play: Play, first: int = 1, last: int = 4, **fields: Any) -> tuple[Command, ...]:
    """From the hour `first` after the beginning to `last`."""
    play.offset += 1
    given = {"offset": play.offset, "id": "june", "from_ms": T0 + first * HOUR, "until_ms": T0 + last * HOUR}
    return play.step(Backfilled(**given | fields))


def slot_of_run(play: Play) -> int:
    slot_ms = play.launches[-1].work.slot_ms
    assert slot_ms is not None
    return (slot_ms - T0) // HOUR


def run_all(play: Play) -> list[int]:
    ran = []
    while play.startable:
        play.start()
        ran.append(slot_of_run(play))
        play.end()
    return ran


def judged(play: Play) -> list[tuple[Kind, str]]:
    check = PartitionCheck(False)
    check.state(play.task.state)
    for at, event in enumerate(event for event in play.log if isinstance(event, History)):
        check.event("report", event, at)
    return [(finding.kind, finding.text) for finding in check.finish()[0]]


def test_the_slots_of_the_range_run_in_order_and_history_says_for_whom() -> None:
    play = play_of()
    before = (play.task.state.next_slot_ms, play.task.state.last_slot_ms)
    backfill(play)
    assert run_all(play) == [1, 2, 3, 4]
    assert play.told("triggered") == [
        {
            "asked_by": "backfill june",
            "count": 4,
            "first": format_ms(T0 + HOUR),
            "last": format_ms(T0 + 4 * HOUR),
        }
    ]
    assert {told["asked_by"] for told in play.told("started")} == {"backfill june"}
    assert (play.task.state.next_slot_ms, play.task.state.last_slot_ms) == before
    assert play.task.state.backfill is None
    assert judged(play) == []


def test_slots_that_ran_before_are_left_out_and_their_record_goes_with_the_last_one() -> None:
    play = play_of()
    left_out = tuple([T0 + hour * HOUR for hour in (1, 3, 9)])
    backfill(play, left_out=left_out)
    assert play.of(PutLeftOut) == [PutLeftOut((T0 + 3 * HOUR,))]  # the others are not in what is left of the range
    assert run_all(play) == [2, 4]
    assert len(play.of(DropLeftOut)) == 1
    assert play.task.left_out == ()


def test_what_did_not_come_due_yet_comes_by_itself() -> None:
    play = play_of()
    backfill(play, 47, 100)
    assert run_all(play) == [47, 48]


@pytest.mark.parametrize("overlap", Overlap)
def test_a_slot_that_comes_due_meanwhile_waits_for_one_run_at_most(overlap: Overlap) -> None:
    play = play_of(overlap=overlap)
    backfill(play)
    play.start()
    assert slot_of_run(play) == 1
    play.sleep(30 * MINUTE)
    play.wake()
    assert play.stops == []
    assert play.told("skipped") == []
    play.end()
    assert run_all(play) == [49, 2, 3, 4]
    assert judged(play) == []


def test_a_trigger_goes_before_the_next_slot() -> None:
    play = play_of()
    backfill(play)
    play.trigger("now")
    play.start()
    assert play.launches[-1].work.trigger_id == "now"
    play.end()
    assert run_all(play) == [1, 2, 3, 4]


def test_a_slot_of_a_backfill_has_its_attempts_and_a_lost_one_comes_again() -> None:
    play = play_of(retry=Retry(attempts=2, delay_s=1, jitter=0))
    backfill(play)
    play.start()
    play.interrupt(Cause.LOST)
    play.start()
    play.end(Outcome.FAILED)
    play.sleep(SECOND)
    assert run_all(play) == [1, 2, 3, 4]
    assert judged(play) == []


def test_a_backfill_goes_on_after_a_takeover_where_it_was() -> None:
    play = play_of()
    backfill(play, left_out=(T0 + 3 * HOUR,))
    play.start()
    play.end()
    state = decode_state(encode_state(play.task.state, "l", "n"))
    definition = play.task.definition
    assert definition is not None
    play.task = restored_task(state, left_out=play.task.left_out)
    play.step(Defined(definition, restored=True))
    assert run_all(play) == [2, 4]


@pytest.mark.parametrize("how", ["stop", "cancel", "delete", "schedule"])
def test_a_backfill_that_is_ended_says_what_did_not_run(how: str) -> None:
    play = play_of()
    backfill(play, left_out=(T0 + 3 * HOUR,))
    play.start()
    if how == "stop":
        backfill(play, stop=True, reason="enough")
    elif how == "cancel":
        play.cancel(reason="enough")
    elif how == "delete":
        play.delete()
    else:
        play.define(schedule=Every(7200, T0))
    cause = {"stop": "enough", "cancel": "enough", "delete": "deleted", "schedule": "another schedule"}[how]
    (told,) = play.told("skipped")
    assert (told["asked_by"], told["cause"], told["first"]) == ("backfill june", cause, format_ms(T0 + 2 * HOUR))
    assert play.task.left_out == ()
    assert len(play.of(DropLeftOut)) == 1
    assert play.task.state.run is not None
    assert (play.task.state.run.stopping is not None) is (how == "cancel")
    play.end()
    assert play.task.state.backfill is None
    assert not play.startable


def test_one_backfill_at_a_time_and_each_refusal_says_why() -> None:
    play = play_of()
    backfill(play)
    backfill(play, id="july")
    backfill(play, 3, 2, id="nothing", stop=True)
    backfill(play, 1, 1, id="left out", left_out=(T0 + HOUR,))
    play.define()
    backfill(play, id="unscheduled")
    play.delete()
    backfill(play, id="deleted")
    assert [told["cause"] for told in play.told("skipped")] == [
        "backfill june is not over",
        "stopped",
        "no slot to run in the range",
        "it has no schedule",
        "deleted",
    ]


def test_a_pause_holds_a_backfill_back() -> None:
    play = play_of()
    backfill(play)
    play.pause()
    assert not play.startable
    play.resume()
    assert run_all(play) == [1, 2, 3, 4]


def test_a_control_record_starts_one_backfill() -> None:
    play = play_of()
    backfill(play)
    run_all(play)
    assert play.step(Backfilled(play.offset, "june", T0, T0 + DAY)) == ()
    assert play.status is Status.IDLE


def test_verify_finds_a_slot_that_a_backfill_ran_twice() -> None:
    play = play_of()
    backfill(play)
    run_all(play)
    started = [event for event in play.log if isinstance(event, History) and event.kind == "started"]
    started[2].fields["slot"] = started[1].fields["slot"]
    assert parse_rfc3339(started[1].fields["slot"]) == T0 + 2 * HOUR
    assert Kind.SLOT_TWICE in {kind for kind, _ in judged(play)}

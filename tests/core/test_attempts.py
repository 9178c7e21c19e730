"""Which errors are tried again, how long it may all take, and what a dead letter tells of it."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.core.commands import GiveUp
from fencepost.core.events import Ended, Trigger, Triggered
from fencepost.core.machine import wake_at_ms
from fencepost.core.retrying import why_not_again
from fencepost.core.task import Cause, Outcome, Overlap, Retry, Status, Work
from tests.core.play import SECOND, TASK, Play, definition, waiting_ids

RESET = Ended(
    1,
    Outcome.FAILED,
    error="Traceback …\nConnectionResetError: [Errno 104] Connection reset by peer",
    names=("ConnectionResetError", "ConnectionError", "OSError", "Exception"),
)
EXIT_75 = Ended(1, Outcome.FAILED, error="exit code 75: try later", exit_code=75)
SLOW = Ended(1, Outcome.TIMED_OUT, error="time limit of 1 s")


@pytest.mark.parametrize(
    ("ended", "item"),
    [
        (RESET, "ConnectionResetError"),
        (RESET, "OSError"),
        (RESET, "Connection*"),
        (RESET, "*reset by peer"),
        (EXIT_75, 75),
        (EXIT_75, "*try later*"),
        (SLOW, "timed_out"),
    ],
)
def test_an_error_is_named_by_class_base_pattern_or_exit_code(ended: Ended, item: str | int) -> None:
    assert why_not_again(Retry(on=(item,)), ended) is None
    assert why_not_again(Retry(never=(item,)), ended) == f"never tried again: {item}"


@pytest.mark.parametrize(
    ("ended", "item"), [(RESET, "Reset"), (RESET, "*Traceback*"), (EXIT_75, 7), (RESET, "timed_out")]
)
def test_what_is_not_named_is_not_meant(ended: Ended, item: str | int) -> None:
    assert why_not_again(Retry(on=(item,)), ended) is not None
    assert why_not_again(Retry(never=(item,)), ended) is None


def test_never_goes_before_on_and_without_both_every_error_is_tried_again() -> None:
    assert why_not_again(Retry(on=("OSError",), never=("ConnectionError",)), RESET) is not None
    assert why_not_again(Retry(), RESET) is None


def failing(retry: Retry, **fields: Any) -> Play:
    play = Play(definition(retry=retry, **fields))
    play.trigger("one")
    play.start()
    return play


def test_an_error_that_is_never_tried_again_is_given_up_at_once() -> None:
    play = failing(Retry(attempts=5, never=("ValueError",)))
    play.end(Outcome.FAILED, error="ValueError: no", names=("ValueError", "Exception"))
    assert play.status is Status.IDLE
    assert play.told("failed")[0]["given_up"] == "failed in attempt 1: never tried again: ValueError"
    assert len(play.of(GiveUp)) == 1


def test_a_dead_letter_tells_of_the_last_attempts_and_the_last_error() -> None:
    play = failing(Retry(attempts=11, delay_s=1, factor=1, jitter=0))
    play.interrupt(Cause.HANDOVER)
    for _ in range(10):
        play.start()
        play.end(Outcome.FAILED, error="OSError: no")
        play.sleep(SECOND)
    play.start()
    play.end(Outcome.TIMED_OUT, error="no heartbeat for 5 s", limit="heartbeat")
    (given_up,) = play.of(GiveUp)
    assert [attempt.epoch for attempt in given_up.attempts] == [9, 10, 11, 12]
    assert (given_up.attempts[0].outcome, given_up.attempts[-1].outcome) == (Outcome.FAILED, Outcome.TIMED_OUT)
    assert given_up.error == "no heartbeat for 5 s"
    assert play.told("timed_out")[0]["cause"] == "heartbeat"


def test_a_run_that_takes_its_worker_down_is_among_the_attempts() -> None:
    play = failing(Retry(attempts=1), max_losses=1)
    play.interrupt(Cause.LOST)
    play.start()
    play.interrupt(Cause.LOST)
    (given_up,) = play.of(GiveUp)
    assert [(attempt.epoch, attempt.cause) for attempt in given_up.attempts] == [(1, "lost"), (2, "lost")]


def test_e05_a_replay_that_is_given_up_counts_on() -> None:
    play = Play(definition())
    for replays in range(6):
        play.offset += 1
        play.step(Triggered(Trigger(TASK, f"poison~{replays}", offset=play.offset, replays=replays)))
        play.start()
        play.fail()
    assert [given_up.work.replays for given_up in play.of(GiveUp)] == list(range(6))


def test_a_request_that_waited_too_long_is_skipped_and_the_next_one_starts() -> None:
    play = Play(definition(start_timeout_s=10))
    play.trigger("on")
    play.start()
    play.trigger("late")
    play.sleep(4 * SECOND)
    play.trigger("in time")
    play.sleep(6 * SECOND)
    play.wake()
    assert play.told("skipped") == [{"trigger": "late", "offset": 1, "cause": "waited too long"}]
    assert waiting_ids(play.task) == ["in time"]
    play.end()
    assert play.startable


def test_many_that_waited_too_long_are_left_out_without_comparing_each_with_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten thousand may be late at once; the lane that leaves them out has leases to keep meanwhile."""
    play = Play(definition(start_timeout_s=10))
    for number in range(50):
        play.trigger(f"late {number}")
        play.sleep(10)
    play.trigger("in time")
    play.sleep(10 * SECOND - 10)
    monkeypatch.setattr(Work, "__eq__", lambda *_: pytest.fail("compared"))
    play.wake()
    assert len(play.told("skipped")) == 50
    assert waiting_ids(play.task) == ["in time"]


def test_what_is_late_is_never_started_even_before_somebody_woke_it() -> None:
    play = Play(definition(start_timeout_s=10))
    play.trigger("late")
    play.sleep(10 * SECOND)
    assert not play.startable
    play.sleep_until_woken()
    assert play.told("skipped")[0]["cause"] == "waited too long"


def test_a_delayed_request_whose_time_to_start_is_over_when_its_owner_looks_takes_nobodys_place() -> None:
    play = Play(definition(start_timeout_s=10, overlap=Overlap.CANCEL))
    play.trigger("late", delay_ms=5 * SECOND)
    play.sleep(60 * SECOND)
    play.trigger("now")
    play.wake()
    assert waiting_ids(play.task) == ["now"]
    assert play.told("skipped") == [{"trigger": "late", "offset": 0, "cause": "waited too long"}]
    later_ms = wake_at_ms(play.task, play.now_ms)
    assert later_ms is None or later_ms > play.now_ms


def test_a_pause_does_not_stop_the_clock_of_what_waits() -> None:
    play = Play(definition(start_timeout_s=10))
    play.trigger("late")
    play.pause()
    play.sleep_until_woken()
    assert play.told("skipped")[0]["cause"] == "waited too long"


def test_no_attempt_begins_beyond_the_total_time_limit() -> None:
    play = failing(Retry(attempts=100, delay_s=4, factor=1, jitter=0), total_timeout_s=10)
    for _ in range(2):
        play.fail()
        play.sleep(4 * SECOND)
        play.start()
    play.fail()
    assert play.status is Status.IDLE
    assert play.told("failed")[-1]["given_up"] == "no time left for another attempt: 10 s for all of them"
    assert len(play.told("started")) == 3


def test_work_held_back_beyond_the_total_time_limit_is_given_up() -> None:
    play = failing(Retry(attempts=100, delay_s=1, factor=1, jitter=0), total_timeout_s=10)
    play.fail()
    play.pause()
    play.sleep(10 * SECOND)
    play.resume()
    assert not play.startable
    play.wake()
    assert play.status is Status.IDLE
    assert play.told("timed_out")[0]["cause"] == "total"
    assert len(play.of(GiveUp)) == 1

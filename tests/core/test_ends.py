from __future__ import annotations

import pytest

from fencepost.core.commands import DropCheckpoint, Forget, GiveUp, History, PutCheckpoint, Stop
from fencepost.core.machine import IllegalEvent, restored_task, wake_at_ms
from fencepost.core.task import Cause, OnInterruption, Outcome, Retry, Status
from tests.core.play import SECOND, Play, definition


def running(**fields: object) -> Play:
    play = Play(definition(**fields))
    play.trigger("one", payload=1)
    play.start()
    return play


def test_a_failure_that_would_be_the_same_again_ends_the_work_whatever_attempts_are_left() -> None:
    play = running(retry=Retry(attempts=5))
    play.end(Outcome.FAILED, error="410 Gone", final=True)
    assert play.status is Status.IDLE
    assert play.told("failed")[-1]["given_up"] == "failed in attempt 1: it would fail again"
    assert len(play.of(GiveUp)) == 1


def test_a_run_that_was_stopped_is_no_such_failure() -> None:
    play = running(retry=Retry(attempts=5))
    play.cancel()
    play.end(Outcome.FAILED, error="410 Gone", final=True)
    assert play.kinds()[-1] == "cancelled"
    assert play.of(GiveUp) == []


# -- by itself ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT])
def test_a_failed_attempt_is_tried_again_after_its_delay(outcome: Outcome) -> None:
    play = running(retry=Retry(attempts=2, delay_s=10.0, jitter=0.5))
    (told,) = play.end(outcome, error="boom", spread=1.0)
    assert isinstance(told, History)
    assert told.kind == outcome.value
    assert told.fields["error"] == "boom"
    assert told.fields["retry_at"] == "2023-11-14T22:13:35.000Z"
    assert play.status is Status.BACKOFF
    assert not play.startable
    assert wake_at_ms(play.task, play.now_ms) == play.now_ms + 15 * SECOND
    play.sleep(15 * SECOND)
    assert play.startable
    assert wake_at_ms(play.task, play.now_ms) is None
    play.start()
    launch = play.launches[-1]
    assert (launch.run.epoch, launch.run.attempt, launch.work.payload) == (2, 2, 1)


def test_the_last_attempt_gives_up_as_a_dead_letter() -> None:
    play = running(retry=Retry(attempts=1))
    told, give_up = play.fail()
    assert isinstance(told, History)
    assert isinstance(give_up, GiveUp)
    assert told.fields["given_up"] == give_up.reason == "failed in attempt 1 of 1"
    assert give_up.work.trigger_id == "one"
    assert play.status is Status.IDLE


def test_the_retry_goes_before_what_waits() -> None:
    play = running(retry=Retry(attempts=2, delay_s=1.0, jitter=0.0))
    play.trigger("two", priority=0)
    play.fail()
    assert not play.startable
    play.sleep(SECOND)
    play.start()
    assert play.launches[-1].work.trigger_id == "one"


def test_an_error_is_kept_to_four_kibibytes() -> None:
    play = running()
    play.end(Outcome.FAILED, error="ä" * 10_000 + "\ud800")
    error = play.told("failed")[0]["error"]
    assert len(error.encode()) <= 4096
    assert error.endswith("ä…")


@pytest.mark.parametrize("said", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT])
def test_a_run_that_was_asked_to_stop_is_cancelled_whatever_it_says(said: Outcome) -> None:
    play = running(retry=Retry(attempts=5), grace_s=3.0)
    assert play.cancel(reason="wrong month") == (Stop(1, "cancelled", 3.0),)
    assert play.status is Status.RUNNING
    play.end(said, result="done after all")
    (told,) = play.told("cancelled")
    assert told["cause"] == "wrong month"
    assert "result" not in told
    assert play.status is Status.IDLE
    assert play.of(GiveUp) == []


def test_cancelling_twice_asks_once() -> None:
    play = running()
    play.cancel()
    assert play.cancel() == ()


def test_settle_holds_back_the_next_epoch() -> None:
    play = running(settle_s=30.0)
    play.trigger("two")
    play.end()
    assert not play.startable
    assert wake_at_ms(play.task, play.now_ms) == play.now_ms + 30 * SECOND
    play.sleep(30 * SECOND - 1)
    with pytest.raises(IllegalEvent, match="settles"):
        play.start()
    play.sleep(1)
    assert play.startable


def test_a_settle_longer_than_the_backoff_decides() -> None:
    play = running(settle_s=30.0, retry=Retry(attempts=2, delay_s=1.0, jitter=0.0))
    play.fail()
    assert play.told("failed")[0]["retry_at"] == "2023-11-14T22:13:50.000Z"
    assert wake_at_ms(play.task, play.now_ms) == play.now_ms + 30 * SECOND


# -- from outside ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [Cause.HANDOVER, Cause.STOPPED, Cause.NEIGHBOUR, Cause.FENCED, Cause.LOST])
def test_an_interruption_uses_no_attempt(cause: Cause) -> None:
    play = running(retry=Retry(attempts=1))
    (told,) = play.interrupt(cause)
    assert isinstance(told, History)
    assert told.kind == "interrupted"
    assert told.fields["cause"] == cause.value
    assert told.fields["ran_on"] == "lane"
    assert play.startable
    play.start("other lane", "other nonce")
    launch = play.launches[-1]
    assert (launch.run.epoch, launch.run.attempt) == (2, 1)
    play.end()
    assert play.told("succeeded")[0]["attempt"] == 1


def test_work_that_takes_its_worker_down_is_given_up_in_the_end() -> None:
    play = running(max_losses=3, retry=Retry(attempts=1, delay_s=1.0, jitter=0.0))
    for losses in (1, 2, 3):
        play.interrupt(Cause.LOST)
        assert play.task.state.work is not None
        assert play.task.state.work.losses == losses
        # The first loss is nobody's fault; later ones wait longer and longer.
        assert play.task.state.retry_at_ms == play.now_ms + (0, 1000, 2000)[losses - 1]
        play.sleep(2 * SECOND)
        play.start()
    play.interrupt(Cause.LOST)
    assert play.status is Status.IDLE
    assert play.of(GiveUp)[0].reason == "lost with its worker 4 times"


def test_other_interruptions_are_no_losses() -> None:
    play = running(max_losses=0)
    for _ in range(10):
        play.interrupt(Cause.HANDOVER)
        play.start()
    assert play.of(GiveUp) == []


def test_a_task_may_skip_what_was_interrupted() -> None:
    play = running(on_interruption=OnInterruption.SKIP)
    play.interrupt(Cause.STOPPED)
    assert play.status is Status.IDLE
    assert "retry_at" not in play.told("interrupted")[0]
    assert play.told("interrupted")[0]["dropped"] == "on_interruption = skip"
    assert play.of(GiveUp) == []


def test_the_work_of_a_task_that_was_deleted_is_dropped_with_that_word() -> None:
    play = running(on_interruption=OnInterruption.RETRY)
    play.delete()
    play.interrupt(Cause.LOST)
    assert play.told("interrupted")[0]["dropped"] == "deleted"


def test_a_task_may_resume_from_its_checkpoint() -> None:
    play = running(on_interruption=OnInterruption.RESUME)
    assert play.checkpoint({"row": 7}) == (PutCheckpoint({"row": 7}),)
    play.interrupt(Cause.LOST)
    play.start()
    assert play.launches[-1].checkpoint == {"row": 7}
    assert DropCheckpoint() in play.end()
    assert play.task.checkpoint is None


def test_a_task_that_starts_over_drops_its_checkpoint() -> None:
    play = running(on_interruption=OnInterruption.RETRY)
    play.checkpoint({"row": 7})
    assert DropCheckpoint() in play.interrupt(Cause.LOST)
    play.start()
    assert play.launches[-1].checkpoint is None


def test_the_checkpoint_survives_a_takeover() -> None:
    play = running(on_interruption=OnInterruption.RESUME)
    play.checkpoint([1])
    play.task = restored_task(play.task.state, (), [1])
    play.define(on_interruption=OnInterruption.RESUME, restored=True)
    play.interrupt(Cause.LOST)
    play.start("other", "nonce 2")
    assert play.launches[-1].checkpoint == [1]


def test_a_checkpoint_of_null_takes_the_last_one_back() -> None:
    play = running()
    assert play.checkpoint(None) == ()
    play.checkpoint(1)
    assert play.checkpoint(None) == (DropCheckpoint(),)


def test_a_cancelled_run_that_is_lost_is_cancelled_not_tried_again() -> None:
    play = running(retry=Retry(attempts=5))
    play.cancel(reason="stop it")
    play.interrupt(Cause.LOST)
    assert play.status is Status.IDLE
    assert play.told("cancelled")[0]["cause"] == "stop it"
    assert play.task.state.last is not None
    assert (play.task.state.last.outcome, play.task.state.last.cause) == (Outcome.CANCELLED, Cause.LOST)


def test_an_adopted_run_goes_on_under_the_new_nonce() -> None:
    play = running()
    (told,) = play.adopt("nonce 2")
    assert isinstance(told, History)
    assert told.fields == {"attempt": 1, "earlier_nonce": "nonce"}
    assert play.task.state.run is not None
    assert play.task.state.run.nonce == "nonce 2"
    play.end()
    assert play.told("succeeded") != []


def test_s01_a_run_found_running_is_interrupted_and_the_next_one_follows() -> None:
    play = running()
    play.trigger("two")
    work = play.task.waiting[0]
    play.task = restored_task(play.task.state, [work])
    play.define(restored=True)
    assert not play.startable
    play.interrupt(Cause.LOST)
    for id in ("one", "two"):
        play.start()
        assert play.launches[-1].work.trigger_id == id
        play.end()
    assert play.epoch == 3


def test_a_run_without_definition_is_kept_for_a_worker_that_has_one() -> None:
    play = running()
    play.task = restored_task(play.task.state)
    play.interrupt(Cause.LOST)
    assert play.status is Status.BACKOFF
    assert not play.startable
    play.define(restored=True)
    assert play.startable


def test_a_deleted_task_whose_run_is_lost_is_not_tried_again() -> None:
    play = running()
    play.delete()
    assert Forget() in play.interrupt(Cause.LOST)
    assert play.status is Status.IDLE

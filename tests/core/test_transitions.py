"""The table of transitions, pair by pair: what is legal is done, what is not raises and changes nothing."""

from __future__ import annotations

from typing import get_args

import pytest

from fencepost.core.events import (
    Adopted,
    Backfilled,
    Cancelled,
    Checkpointed,
    Defined,
    Deleted,
    Ended,
    Event,
    Interrupted,
    Paused,
    Rerun,
    Resumed,
    Signalled,
    Started,
    Trigger,
    Triggered,
    Woken,
)
from fencepost.core.machine import IllegalEvent, new_task, step, why_not_startable
from fencepost.core.signals import Subscribe
from fencepost.core.table import TABLE
from fencepost.core.task import Cause, Outcome, Overlap, Retry, Status
from tests.core.play import TASK, Play, definition

EVENTS: dict[type, Event] = {
    Defined: Defined(definition(description="changed")),
    Deleted: Deleted(),
    Triggered: Triggered(Trigger(TASK, "new", offset=100)),
    Woken: Woken(),
    Started: Started("lane", "nonce", 15.0),
    Ended: Ended(1, Outcome.SUCCEEDED),
    Interrupted: Interrupted(1, Cause.LOST),
    Adopted: Adopted(1, "new nonce"),
    Checkpointed: Checkpointed(1, {"at": 7}),
    Cancelled: Cancelled(),
    Paused: Paused(),
    Rerun: Rerun(epoch=1),
    Backfilled: Backfilled(id="x"),
    Resumed: Resumed(),
    Signalled: Signalled(Subscribe(), 100, "child"),
}


def play_in(status: Status, overlap: Overlap = Overlap.BUFFER_ALL) -> Play:
    """A task in a status, with one request waiting."""
    play = Play(definition(retry=Retry(attempts=3, delay_s=0.0), overlap=overlap))
    play.trigger("one")
    if status is not Status.IDLE:
        play.start()
        play.trigger("two")
    if status is Status.BACKOFF:
        play.fail()
    assert play.status is status
    assert play.task.waiting
    return play


def test_every_event_of_the_vocabulary_is_in_the_table() -> None:
    assert set(get_args(Event)) == set(EVENTS) == {event for _, event in TABLE}


@pytest.mark.parametrize("event", list(EVENTS))
@pytest.mark.parametrize("status", list(Status))
def test_each_pair_does_what_the_table_says(status: Status, event: type) -> None:
    play = play_in(status)
    before = play.task
    transition = TABLE.get((status, event))
    if transition is None:
        with pytest.raises(IllegalEvent, match=event.__name__) as raised:
            play.step(EVENTS[event])
        assert raised.value.status == status
        assert play.task is before
    else:
        play.step(EVENTS[event])
        assert play.status in transition.leads_to


@pytest.mark.parametrize("overlap", list(Overlap))
@pytest.mark.parametrize("status", list(Status))
def test_no_policy_leads_out_of_the_table(status: Status, overlap: Overlap) -> None:
    for event in EVENTS:
        transition = TABLE.get((status, event))
        if transition is None:
            continue
        play = Play(definition(retry=Retry(attempts=3, delay_s=0.0), overlap=overlap))
        play.trigger("one")
        if status is not Status.IDLE:
            play.start()
        if status is Status.BACKOFF:
            play.fail()
        play.step(EVENTS[event])
        assert play.status in transition.leads_to


@pytest.mark.parametrize(
    "event",
    [
        Ended(2, Outcome.SUCCEEDED),
        Ended(0, Outcome.FAILED),
        Interrupted(2, Cause.LOST),
        Adopted(0, "n"),
        Checkpointed(2, 1),
    ],
)
def test_news_of_another_epoch_is_illegal(event: Event) -> None:
    play = play_in(Status.RUNNING)
    before = play.task
    with pytest.raises(IllegalEvent, match="epoch 1 is on"):
        play.step(event)
    assert play.task is before


def test_a_start_is_illegal_while_nothing_is_due() -> None:
    play = Play(definition())
    with pytest.raises(IllegalEvent, match="nothing is due"):
        play.start()
    play.trigger("later", run_at_ms=play.now_ms + 1)
    with pytest.raises(IllegalEvent, match="nothing is due"):
        play.start()
    play.trigger("now")
    play.pause()
    with pytest.raises(IllegalEvent, match="it is paused"):
        play.start()
    play.resume()
    play.start()
    assert why_not_startable(play.task, play.now_ms) == "a run is on"


def test_an_undefined_task_cannot_start() -> None:
    with pytest.raises(IllegalEvent, match="it is not defined"):
        step(new_task("x"), Started("lane", "nonce", 1.0), 5)


def test_epochs_of_a_new_task_start_above_the_floor() -> None:
    play = Play(None)
    play.task = new_task(TASK, epoch_floor=41)
    play.define()
    play.trigger("one")
    play.start()
    assert play.epoch == 42

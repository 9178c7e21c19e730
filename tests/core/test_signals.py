"""What another task's owner tells: taken once, by its offset, in every status; and what is kept of children."""

from __future__ import annotations

from typing import get_args

import pytest

from fencepost.core.commands import DropLinks, History, PutLinks
from fencepost.core.events import Deleted
from fencepost.core.links import MAX_CHILDREN, Links
from fencepost.core.machine import restored_task
from fencepost.core.signals import KIND_OF, KINDS, Signal, Subscribe, Unsubscribe
from fencepost.core.steps.signal import _TAKERS
from fencepost.core.task import Retry, Status
from tests.core.play import Play, definition


def test_every_kind_of_signal_has_a_name_and_somebody_who_takes_it() -> None:
    assert set(KINDS.values()) == set(get_args(Signal)) == set(_TAKERS)
    assert {KIND_OF[record]: record for record in KINDS.values()} == KINDS


def in_status(status: Status) -> Play:
    play = Play(definition(retry=Retry(attempts=3)))
    if status is not Status.IDLE:
        play.trigger()
        play.start()
    if status is Status.BACKOFF:
        play.fail()
    assert play.status is status
    play.log.clear()
    return play


@pytest.mark.parametrize("status", Status)
def test_a_signal_is_taken_in_every_status_and_once(status: Status) -> None:
    play = in_status(status)
    assert play.signal(Subscribe(), "child", 4) == (PutLinks(Links(("child",))),)
    assert play.task.state.control_offset == 4
    before = play.task
    assert play.signal(Unsubscribe(), "child", 4) == ()  # an offset that was taken: read again after a takeover
    assert play.task is before
    assert play.signal(Unsubscribe(), "child", 5) == (DropLinks(),)
    assert play.task.links is None
    assert play.status is status


def test_children_are_kept_in_the_order_in_which_they_asked_and_each_once() -> None:
    play = Play(definition())
    for offset, child in enumerate(["b", "a", "b"]):
        play.signal(Subscribe(), child, offset)
    assert play.task.links == Links(("b", "a"))
    play.signal(Unsubscribe(), "b", 3)
    play.signal(Unsubscribe(), "never", 4)
    assert play.task.links == Links(("a",))
    assert play.task.state.control_offset == 4


def test_a_child_may_come_before_its_parent_is_defined_and_stays_over_its_deletion() -> None:
    play = Play()
    play.signal(Subscribe(), "child", 0)
    assert play.task.links == Links(("child",))
    assert play.task.state.never_defined
    play.task = restored_task(play.task.state, (), None, play.task.links)
    assert play.step(Deleted()) == ()  # restored without a definition: nothing was ever there to delete
    play.define()
    assert play.kinds() == ["defined"]
    play.delete()
    assert play.task.links == Links(("child",))


def test_one_child_too_many_is_refused_with_a_word_on_it() -> None:
    play = Play(definition())
    for number in range(MAX_CHILDREN):
        play.signal(Subscribe(), f"child/{number}", number)
    (refused,) = play.signal(Subscribe(), "one more", MAX_CHILDREN)
    assert isinstance(refused, History)
    assert refused.kind == "skipped"
    assert refused.fields["signal"] == "subscribe"
    assert refused.fields["from"] == "one more"
    assert str(MAX_CHILDREN) in refused.fields["cause"]
    assert play.task.links is not None
    assert len(play.task.links.children) == MAX_CHILDREN

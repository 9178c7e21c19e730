"""What may be forgotten: only what is idle for long and of which nothing but the epoch is worth keeping."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost.core.forgetting import floor_of, forgettable
from fencepost.core.limits import Group, Limit, Permit
from fencepost.core.links import Links
from fencepost.core.machine import new_task
from fencepost.core.place import Place
from fencepost.core.recent import KEPT_MS
from fencepost.core.schedule import Every
from fencepost.core.task import Outcome, Task, Work
from tests.core.play import MINUTE, TASK, Play, definition

AFTER = 30 * MINUTE


def idle_since(minutes: int, trigger_id: str | None = None) -> tuple[Task, int]:
    """A task that ran once, and the time `minutes` after its end."""
    play = Play(definition())
    play.trigger(trigger_id)
    play.start()
    play.end(Outcome.SUCCEEDED)
    return play.task, play.now_ms + minutes * MINUTE


def test_a_task_that_is_idle_for_long_may_be_forgotten() -> None:
    task, now_ms = idle_since(30)
    assert forgettable(task, now_ms, AFTER)
    assert not forgettable(task, now_ms - 1, AFTER)


def test_a_task_that_never_ran_is_kept_as_nothing_says_since_when_it_is_idle() -> None:
    assert not forgettable(Play(definition()).task, 10**15, AFTER)


def test_ids_of_triggers_are_remembered_for_a_day_whatever_the_setting_says() -> None:
    task, now_ms = idle_since(31, "order-7")
    assert not forgettable(task, now_ms, AFTER)
    assert forgettable(task, now_ms + KEPT_MS, AFTER)


@pytest.mark.parametrize(
    "kept",
    [
        lambda task: replace(task, waiting=(Work(1),)),
        lambda task: replace(task, delayed=(Work(1, due_ms=10**15),)),
        lambda task: replace(task, checkpoint={"done": 1}),
        lambda task: replace(task, links=Links()),
        lambda task: replace(task, group=Group()),
        lambda task: replace(task, state=replace(task.state, place=Place(1))),
        lambda task: replace(task, state=replace(task.state, permit=Permit(1, Limit("db", 1)))),
        lambda task: replace(task, state=replace(task.state, paused=True)),
        lambda task: replace(task, state=replace(task.state, defined_paused=True)),
        lambda task: replace(task, state=replace(task.state, next_slot_ms=10**15)),
        lambda task: replace(task, state=replace(task.state, not_before_ms=10**15)),
        lambda task: replace(task, definition=definition(schedule=Every(60.0))),
        lambda task: replace(task, definition=definition(after=("before",))),
        lambda task: replace(task, state=replace(task.state, cancelled_to=3)),
    ],
    ids=[
        "waits", "delayed", "checkpoint", "links", "group", "place", "permit",
        "paused", "as paused", "slot", "settles", "schedule", "after", "cancelled shard",
    ],
)  # fmt: skip
def test_whatever_is_still_to_come_keeps_a_task(kept: object) -> None:
    task, now_ms = idle_since(31)
    assert not forgettable(kept(task), now_ms, AFTER)  # type: ignore[operator]


def test_a_task_that_was_deleted_long_ago_may_be_forgotten() -> None:
    play = Play(definition())
    play.trigger()
    play.start()
    play.end(Outcome.SUCCEEDED)
    play.delete()
    assert forgettable(play.task, play.now_ms + AFTER, AFTER)


def test_a_forgotten_id_repeats_neither_an_epoch_nor_the_number_of_a_request() -> None:
    play = Play(definition())
    for _ in range(3):
        play.trigger()
    play.start()
    play.end(Outcome.SUCCEEDED)
    assert floor_of(play.task) == 3  # three requests, one run
    known = new_task(TASK, floor_of(play.task))
    assert (known.state.epoch, known.state.next_seq) == (3, 4)
    assert known.state.never_defined

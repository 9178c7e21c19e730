"""States of IDs that are idle for long go; their epochs stay in the floor of the partition."""

from __future__ import annotations

import pytest

import fencepost.worker.decide
from fencepost.codec import loads
from fencepost.worker.restore import FLOOR_KEY
from tests.kafka.lane.harness import Driven, World, make_lane, only_classic, running


def floor_of(world: World, partition: int) -> int:
    values = [record.value for record in world.records(world.topics.state, partition) if record.key == FLOOR_KEY]
    return int(loads(values[-1] or b"null")["epoch"]) if values else 0


def run_once(world: World, lane: Driven, task: str) -> int:
    """The epoch of a run that a trigger leads to."""
    before = len(lane.runners.starts_of(task))
    world.trigger(task)
    lane.wait(f"{task} runs", lambda: len(lane.runners.starts_of(task)) > before)
    lane.runners.finish(task)
    epoch = lane.runners.starts_of(task)[-1]
    lane.wait("its end is recorded", lambda: ("succeeded", epoch) in world.kinds(task))
    return epoch


@only_classic
def test_an_id_that_was_forgotten_goes_on_above_its_last_epoch_also_with_the_next_owner(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fencepost.worker.decide, "FORGET_EVERY_S", 0.1)
    old, new = world.task_on(0), world.task_on(0, 1)
    first = make_lane(world, forget_after_s=0.5)
    with running(first):
        first.wait("it holds all", first.holds_all)
        for epoch in (1, 2, 3):
            assert run_once(world, first, old) >= epoch
        last = first.runners.starts_of(old)[-1]
        first.wait("it is forgotten", lambda: world.state(old) is None)
        assert world.kinds(old)[-1] == ("forgotten", last)
        assert floor_of(world, 0) == last
    second = make_lane(world, forget_after_s=0.0)
    with running(second):
        second.wait("it holds all", second.holds_all)
        assert old not in second.context.partitions[0].tasks
        assert run_once(world, second, old) == last + 1
        assert run_once(world, second, new) == last + 1  # nothing was ever known of it: the floor holds for it as well
        state = world.state(old)
        assert state is not None
        assert state["epoch"] == last + 1
    assert second.runners.starts_of(old) == [last + 1]


@only_classic
def test_nothing_is_forgotten_where_the_setting_is_zero(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencepost.worker.decide, "FORGET_EVERY_S", 0.1)
    task, other = world.task_on(0), world.task_on(0, 1)
    lane = make_lane(world, forget_after_s=0.0)
    with running(lane):
        lane.wait("it holds all", lane.holds_all)
        assert run_once(world, lane, task) == 1
        assert run_once(world, lane, other) == 1
        assert run_once(world, lane, other) == 2
        assert world.state(task) is not None

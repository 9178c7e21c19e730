"""Definitions that another client's partitioner landed on the wrong partition: taken there, an ID had two owners."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fencepost.core.ids import partition_of
from tests.kafka.lane.fakes import FakeRunners, succeed
from tests.kafka.lane.harness import Driven, World, discard, make_lane, make_world, running

if TYPE_CHECKING:
    from fencepost.broker import Cluster

PARTITIONS = 3
RIGHT, WRONG = 2, 0
TASK = next(f"t-{n}" for n in range(100) if partition_of(f"t-{n}".encode(), PARTITIONS) == RIGHT)
KEY = TASK.encode()
OFTEN = json.dumps({"handler": {"kind": "python", "function": "work"}, "schedule": {"every_s": 0.5}}).encode()


@pytest.fixture
def world(kafka: Cluster, namespace: str) -> Iterator[World]:
    made = make_world(kafka.bootstrap, namespace, partitions=PARTITIONS)
    yield made
    discard(made)


def a_lane(world: World) -> Driven:
    return make_lane(world, runners=FakeRunners(at_once=succeed), tasks=[])


def places(world: World) -> set[int]:
    return {record.partition for record in world.records(world.topics.state) if record.key == KEY}


def on_partition(world: World, partition: int) -> list[bytes | None]:
    return [record.value for record in world.records(world.topics.tasks, partition) if record.key == KEY]


@pytest.mark.parametrize("when", ["before the lane has the partitions", "while the lane has them"])
def test_a_definition_on_the_wrong_partition_goes_to_the_right_one_and_runs_there_only(world: World, when: str) -> None:
    lane = a_lane(world)
    if when.startswith("before"):
        world.produce_to(world.topics.tasks, WRONG, KEY, OFTEN)
    with running(lane):
        lane.wait("all partitions", lane.holds_all)
        if when.startswith("while"):
            world.produce_to(world.topics.tasks, WRONG, KEY, OFTEN)
        lane.wait("two slots ran", lambda: len(lane.runners.starts_of(TASK)) >= 2)
    assert {order.partition for order in lane.runners.launched} == {RIGHT}
    assert places(world) == {RIGHT}
    assert on_partition(world, RIGHT) == [OFTEN]
    assert on_partition(world, WRONG) == [OFTEN, None], "what was sent on leaves a tombstone, or it would be sent again"


def test_the_tombstone_that_is_left_behind_deletes_nothing_at_the_next_takeover(world: World) -> None:
    world.produce_to(world.topics.tasks, WRONG, KEY, OFTEN)
    for _ in range(2):
        lane = a_lane(world)
        with running(lane):
            lane.wait("a slot ran", lambda: lane.runners.starts_of(TASK))  # noqa: B023 - called at once
    assert on_partition(world, RIGHT) == [OFTEN]
    assert "deleted" not in [kind for kind, _epoch in world.kinds(TASK)]


def test_a_deletion_on_the_wrong_partition_deletes(world: World) -> None:
    lane = a_lane(world)
    world.produce_to(world.topics.tasks, RIGHT, KEY, OFTEN)
    with running(lane):
        lane.wait("a slot ran", lambda: lane.runners.starts_of(TASK))
        world.produce_to(world.topics.tasks, WRONG, KEY, None)
        lane.wait("it is deleted", lambda: "deleted" in [kind for kind, _epoch in world.kinds(TASK)])
    assert on_partition(world, RIGHT) == [OFTEN, None]

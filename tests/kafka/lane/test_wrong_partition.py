"""Records that another client's partitioner landed on the wrong partition."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from fencepost.core.ids import partition_of
from fencepost.kafka.scan import Record
from tests.kafka.lane.fakes import FakeRunners, succeed
from tests.kafka.lane.harness import World, a_task, discard, make_lane, make_world, running

if TYPE_CHECKING:
    from fencepost.broker import Cluster

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "cases" / "partition_vectors.json").read_text(encoding="utf-8")
)
BY_COUNT = {
    count: list(vectors)
    for count, vectors in groupby(sorted(VECTORS, key=lambda item: item["n"]), key=lambda item: item["n"])
}
ANY = [a_task("*")]
MakeWorld = Callable[[int], World]


@pytest.fixture
def world_of(kafka: Cluster, namespace: str) -> Iterator[MakeWorld]:
    made: list[World] = []

    def make(partitions: int) -> World:
        made.append(make_world(kafka.bootstrap, namespace, partitions=partitions))
        return made[-1]

    yield make
    for each in made:
        discard(each)


def landed(world: World, topic: str, key: str) -> list[Record]:
    return [record for record in world.records(topic) if record.key == key.encode()]


@pytest.mark.parametrize("partitions", sorted(BY_COUNT))
def test_a_key_that_crc32_put_elsewhere_runs_once_under_its_one_owner(world_of: MakeWorld, partitions: int) -> None:
    """All of partition_vectors.json, through a producer with the client library's own default partitioner."""
    world, vectors = world_of(partitions), BY_COUNT[partitions]
    triggers = world.topics.triggers
    world.produce(((triggers, item["key"], {}) for item in vectors), partitioner="consistent_random")
    for item in vectors:
        assert partition_of(item["key"].encode(), partitions) == item["murmur2"]
        assert [record.partition for record in landed(world, triggers, item["key"])] == [item["crc32"]]
    lane = make_lane(world, runners=FakeRunners(at_once=succeed), tasks=ANY)
    keys = {item["key"] for item in vectors}
    with running(lane):
        lane.wait("all ran", lambda: keys <= {order.task for order in lane.runners.launched})
        lane.wait("ends", lambda: all(world.states()[key]["status"] == "idle" for key in keys if key in world.states()))
        lane.wait("nothing is left to take", lambda: lane.lane.idle)
    for item in vectors:
        places = [record.partition for record in landed(world, triggers, item["key"])]
        wrong = item["crc32"] != item["murmur2"]
        assert places.count(item["murmur2"]) == 1
        assert places.count(item["crc32"]) == 1
        assert len(places) == (2 if wrong else 1)
        assert lane.runners.starts_of(item["key"]) == [1]
        assert {record.partition for record in landed(world, world.topics.state, item["key"])} == {item["murmur2"]}


def test_a_record_without_a_key_belongs_to_the_task_that_its_body_names(world_of: MakeWorld) -> None:
    world = world_of(3)
    task = next(f"t-{n}" for n in range(100) if partition_of(f"t-{n}".encode(), 3) == 2)
    for partition in range(3):
        body = json.dumps({"task": task, "id": f"from-{partition}"}).encode()
        world.produce_to(world.topics.triggers, partition, None, body)
    lane = make_lane(world, runners=FakeRunners(at_once=succeed))
    with running(lane):
        lane.wait("all three ran", lambda: lane.runners.starts_of(task) == [1, 2, 3])
    assert {order.partition for order in lane.runners.launched} == {2}
    assert [record.partition for record in landed(world, world.topics.triggers, task)] == [2, 2]


def test_a_forwarded_record_that_somebody_replays_onto_the_wrong_partition_is_forwarded_again(
    world_of: MakeWorld,
) -> None:
    """Replayed with its headers by a client with another partitioner, it must not make a second owner of its ID."""
    world = world_of(3)
    task = next(f"t-{n}" for n in range(100) if partition_of(f"t-{n}".encode(), 3) == 2)
    producer = Producer({"bootstrap.servers": world.bootstrap})
    headers: list[tuple[str, str | bytes | None]] = [("fencepost-forwarded", b"somewhere-0-0")]
    producer.produce(world.topics.triggers, b"{}", task, 0, headers=headers)
    assert producer.flush(10) == 0
    lane = make_lane(world, runners=FakeRunners(at_once=succeed))
    with running(lane):
        lane.wait("it ran", lambda: lane.runners.starts_of(task) == [1])
    assert {order.partition for order in lane.runners.launched} == {2}
    assert {record.partition for record in landed(world, world.topics.state, task)} == {2}

"""Restoring a partition from whatever its log looks like (cases T01, T07)."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from fencepost.codec import loads
from fencepost.core.task import TaskState
from fencepost.kafka.cluster import Admin
from fencepost.wire.state import encode_state
from tests.kafka.lane.conftest import Proxied
from tests.kafka.lane.fakes import FakeRunners, succeed
from tests.kafka.lane.harness import World, make_lane, running, wait_until
from tests.kafka.lane.processes import LaneProcess

READY_S = 10.0
LIVES, BURST = 5, 5


def in_transaction(world: World, name: str, partition: int, keys: list[str], *, commit: bool) -> None:
    producer = Producer(
        {"bootstrap.servers": world.bootstrap, "transactional.id": f"{world.settings.namespace}.{name}"}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    for key in keys:
        value = encode_state(TaskState(key, epoch=3), "earlier", "earlier")
        producer.produce(world.topics.state, value, key, partition)
    producer.flush(10)
    if commit:
        producer.commit_transaction(10)
    else:
        producer.abort_transaction(10)


def begin_of(world: World, partition: int) -> int:
    return world.records(world.topics.state, partition, all_=True)[0].offset


def empty_above_zero(world: World, partition: int) -> None:
    """Records were there, and were deleted: the log is empty, and its end is not 0."""
    world.produce_to(world.topics.state, partition, b"gone", b"{}")
    admin = Admin(world.settings)
    admin.set_topic_config(world.topics.state, {"cleanup.policy": "compact,delete"})
    world.delete_records(world.topics.state, partition, -1)
    admin.set_topic_config(world.topics.state, {"cleanup.policy": "compact"})


def compacted(world: World, partition: int, value: bytes | None, left: int) -> None:
    """Many records of few keys, and the cleaner has been: what it leaves has gaps between."""
    admin = Admin(world.settings)
    admin.set_topic_config(
        world.topics.state,
        {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "86400000"},
    )
    keys = [world.task_on(partition, 50 + number) for number in range(left)]

    def cleaned() -> bool:
        for key in keys:  # each round ends a segment, and the cleaner takes the ones before
            world.produce_to(world.topics.state, partition, key.encode(), value)
        found = [record.offset for record in world.records(world.topics.state, partition, all_=True)]
        return found[-1] - found[0] + 1 > len(found) or found[0] > 0

    wait_until("the cleaner has been", cleaned)


def test_a_lane_is_ready_whatever_the_log_of_its_state_looks_like_t01(proxied: Proxied) -> None:
    """Empty above offset 0; only tombstones, compacted; gaps; ending in the markers of transactions."""
    world = proxied.world
    empty_above_zero(world, 0)
    compacted(world, 1, None, 2)
    compacted(world, 2, encode_state(TaskState("x", epoch=2), "earlier", "earlier"), 2)
    kept, dropped = world.task_on(3, 7), world.task_on(3, 8)
    in_transaction(world, "commits", 3, [kept], commit=True)
    in_transaction(world, "aborts", 3, [dropped], commit=False)
    lane = make_lane(world, runners=FakeRunners(at_once=succeed))
    tasks = [world.task_on(partition) for partition in range(4)]
    with running(lane):
        lane.wait("all held", lane.holds_all, READY_S)
        restored = lane.context.partitions[3].tasks
        assert kept in restored
        assert restored[kept].state.epoch == 3
        assert dropped not in restored
        world.trigger(*tasks, kept, dropped)
        lane.wait("all ran", lambda: {order.task for order in lane.runners.launched} == {*tasks, kept, dropped})
    assert lane.runners.starts_of(kept) == [4]
    assert lane.runners.starts_of(dropped) == [1]


@pytest.mark.slow
def test_a_worker_killed_again_and_again_loses_and_doubles_nothing_t07(classic_world: World, tmp_path: Path) -> None:
    """SIGKILL at moments drawn from a seed, between read, write, commit and read-back; then everything adds up."""
    world, draw = classic_world, random.Random(7)
    tasks = [world.task_on(partition, number) for partition in range(4) for number in range(2)]
    for _life in range(LIVES):
        with LaneProcess(world, tmp_path, worker="w", at_once=True) as process:
            process.wait("something is held", lambda: process.events_of("holding"))
            world.trigger(*tasks * BURST)
            process.wait_for_runs(draw.randrange(1, BURST * len(tasks)))
            process.kill()
    lane = make_lane(world, worker="w", static=True, runners=FakeRunners(at_once=succeed))

    def all_ended() -> bool:
        """Every trigger is a run that succeeded: runs that were lost with a worker were tried again."""
        done = Counter(
            (record.key_text, body["kind"])
            for record in world.records(world.topics.runs)
            if record.value is not None and (body := loads(record.value))
        )
        return all(done[task, "succeeded"] == LIVES * BURST for task in tasks)

    with running(lane):
        lane.wait("every trigger ran to its end", all_ended, 60)
        dump = {
            task_id: task.state
            for partition in lane.context.partitions.values()
            for task_id, task in partition.tasks.items()
        }
    for task in tasks:
        body = world.state(task)
        assert body is not None
        assert (dump[task].epoch, dump[task].status.value) == (body["epoch"], body["status"])
        started = [epoch for kind, epoch in world.kinds(task) if kind == "started"]
        assert started == list(range(1, body["epoch"] + 1))

"""Taking a partition over: what was released, what was not, and what a dead owner left open."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from confluent_kafka import Consumer, TopicPartition

from fencepost.core.lease import OffsetStamp, Watch, wait_s
from fencepost.wire.owners import decode_stamp
from tests.kafka.lane.fakes import FakeRunners, overlaps, succeed
from tests.kafka.lane.ghost import LANE, Ghost, make_ghost
from tests.kafka.lane.harness import Driven, World, make_lane, only_classic, running, wait_until

pytestmark = pytest.mark.faults

TTL_S = 3.0


@pytest.fixture
def ghost(world: World) -> Ghost:
    made = make_ghost(world)
    made.joined.until_all_owned()
    return made


def waiting(lane: Driven, task: str) -> float | None:
    """Until when (boot clock) the lane waits for the lease of the task's earlier run; None: it does not."""
    partition = lane.context.partitions.get(lane.world.partition(task))
    return None if partition is None else partition.waits.get(task)


def test_an_open_transaction_of_a_dead_owner_is_ended_by_the_next_one_long_before_it_times_out(
    world: World, ghost: Ghost
) -> None:
    """The transaction would last for 60 s; the newcomer has read nothing of the owners topic when it is assigned."""
    ghost.fence(1)
    ghost.leave_open(1)
    ghost.die()
    lane = make_lane(world, runners=FakeRunners(at_once=succeed))
    task = world.task_on(1)
    with running(lane):
        lane.wait("all held", lane.holds_all, 15)
        world.trigger(task)
        lane.wait("it ran", lambda: lane.runners.starts_of(task) == [1])
        assert lane.notes.of("ending earlier holders' producers")
    found = {record.key for record in world.records(world.topics.state, 1)}
    assert task.encode() in found
    assert b"never-committed" not in found
    assert b"never-committed" in {record.key for record in world.records(world.topics.state, 1, all_=True)}


@only_classic
def test_two_lanes_that_start_at_once_beside_an_open_transaction_both_serve_their_part_t03(
    world: World, ghost: Ghost
) -> None:
    for partition in range(4):
        ghost.fence(partition)
    ghost.leave_open(2)
    ghost.die()
    one, other = (make_lane(world, runners=FakeRunners(at_once=succeed), ordinal=n) for n in (1, 2))
    tasks = [world.task_on(partition) for partition in range(4)]
    with running(one, other):
        wait_until("two each", lambda: len(one.held()) == len(other.held()) == 2, 20)
        world.trigger(*tasks)
        for task in tasks:
            wait_until("it ran", lambda: one.runners.starts_of(task) + other.runners.starts_of(task) == [1])  # noqa: B023


def test_a_run_of_an_owner_that_released_nothing_is_waited_out_from_the_stable_answer(
    world: World, ghost: Ghost
) -> None:
    task, idle = world.task_on(0, 0), world.task_on(0, 1)
    ghost.fence(0)
    ghost.running(task, TTL_S)
    ghost.die()
    lane = make_lane(world)
    with running(lane):
        until_s = lane.wait("the wait", lambda: waiting(lane, task))
        answered_s = lane.context.partitions[0].holding.answered_boot_s
        assert until_s == answered_s + wait_s(TTL_S, world.settings.rate_error)
        world.trigger(idle)
        lane.wait("the idle task ran meanwhile", lambda: lane.runners.starts_of(idle) == [1])
        lane.wait("the next epoch", lambda: lane.runners.starts_of(task) == [2])
        assert lane.runners.lives[task, 2].began_s >= until_s
        lane.runners.finish(task)
        lane.runners.finish(idle)
    assert world.kinds(task) == [("interrupted", 1), ("started", 2), ("succeeded", 2)]


def ghost_seen_by(lane: Driven, world: World, ghost: Ghost) -> tuple[str, float]:
    """A ghost with a run whose renewal the lane saw; returns the task, and when it was seen."""

    def one_round() -> None:
        lane.lane.turn()
        ghost.joined.member.poll(0)

    def settled() -> bool:
        one_round()
        return len(lane.held()) == len(ghost.joined.owned) == 2

    wait_until("half each", settled)
    partition = min(ghost.joined.owned)
    task = world.task_on(partition)
    ghost.fence(partition)
    ghost.running(task, TTL_S)
    ghost.renew(5, partition, TTL_S)

    def seen() -> bool:
        one_round()
        return LANE in lane.context.watch.seen

    wait_until("the renewal is seen", seen)
    number, seen_s = lane.context.watch.seen[LANE]
    assert number == 5
    return task, seen_s


def test_a_renewal_that_was_seen_shortens_the_wait_to_from_when_it_was_seen(world: World) -> None:
    ghost, lane = make_ghost(world), make_lane(world).open()
    task, seen_s = ghost_seen_by(lane, world, ghost)
    ghost.die()
    until_s = lane.turn_until("the wait", lambda: waiting(lane, task))
    assert until_s == seen_s + wait_s(TTL_S, world.settings.rate_error)
    assert until_s < lane.context.partitions[world.partition(task)].holding.answered_boot_s + TTL_S
    lane.close()


@only_classic
def test_a_later_renewal_that_was_not_seen_makes_the_wait_count_from_the_answer_again(world: World) -> None:
    """Counting from an older renewal than the last one would be an overlap."""
    ghost, lane = make_ghost(world), make_lane(world).open()
    task, seen_s = ghost_seen_by(lane, world, ghost)
    partition = world.partition(task)
    with patch.object(Watch, "note", lambda *_: None):
        ghost.renew(6, partition, TTL_S)
        ghost.die()
        until_s = lane.turn_until("the wait", lambda: waiting(lane, task))
    answered_s = lane.context.partitions[partition].holding.answered_boot_s
    assert answered_s > seen_s
    assert until_s == answered_s + wait_s(TTL_S, world.settings.rate_error)
    lane.close()


def test_a_released_partition_is_taken_over_at_once_and_nobody_is_ended(world: World) -> None:
    task = world.task_on(3)
    first = make_lane(world)
    first.closing_limit_s = 0.0
    with running(first):
        first.wait("all held", first.holds_all)
        world.trigger(task)
        first.wait("it runs", lambda: first.runners.starts_of(task) == [1])
    waits: list[float] = []
    second = make_lane(world)
    with running(second):
        second.wait("all held", second.holds_all)
        waits += second.context.partitions[3].waits.values()
        second.wait("the next epoch", lambda: second.runners.starts_of(task) == [2])
        assert not second.notes.of("ending earlier holders' producers")
        second.runners.finish(task)
    assert waits == []
    assert overlaps(first.runners, second.runners, task=task) == []
    assert [fence.released for fence in world.fences(3)] == [False, True, False, True]
    assert world.kinds(task) == [("started", 1), ("interrupted", 1), ("started", 2), ("succeeded", 2)]
    (stopped,) = [body for body in world.history(task) if body["kind"] == "interrupted"]
    assert stopped["cause"] == "stopped"


@only_classic
def test_a_release_is_not_written_before_every_earlier_run_was_waited_out(world: World, ghost: Ghost) -> None:
    """The next owner has to wait as this one did."""
    task = world.task_on(0)
    ghost.fence(0)
    ghost.running(task, 30.0)
    ghost.die()
    lane = make_lane(world)
    with running(lane):
        lane.wait("the wait", lambda: waiting(lane, task))
        lane.wait("all held", lane.holds_all)
    assert {(fence.lane, fence.released) for fence in world.fences(0)} == {(LANE, False), (lane.context.lane, False)}
    assert [fence.released for fence in world.fences(1)] == [False, True], "as is one that had no such run"


def stamp_on(world: World, partition: int) -> OffsetStamp | None:
    """What the committed offset of the partition says of its last renewal."""
    consumer = Consumer({"bootstrap.servers": world.bootstrap, "group.id": world.settings.group})
    try:
        (answer,) = consumer.committed([TopicPartition(world.topics.triggers, partition)], timeout=10)
        return decode_stamp(answer.metadata)
    finally:
        consumer.close()


def test_a_renewal_of_somebody_who_held_the_partition_in_between_is_not_forgotten(classic_world: World) -> None:
    """Else the owner after this one would count its wait from this lane's own, older renewal: an overlap."""
    world = classic_world
    ghost, lane = make_ghost(world), make_lane(world).open()

    def settled() -> bool:
        lane.lane.turn()
        ghost.joined.member.poll(0)
        return len(lane.held()) == len(ghost.joined.owned) == 2

    wait_until("half each", settled)
    partition = min(lane.held())
    task, later = world.task_on(partition, 0), world.task_on(partition, 1)
    world.trigger(task)
    lane.turn_until("it runs, so the lane renewed", lambda: lane.runners.starts_of(task) == [1])
    lane.runners.finish(task)
    lane.turn_until("its end", lambda: (world.state(task) or {}).get("status") == "idle")
    before = lane.nonce(partition)
    ghost.fence(partition)
    ghost.renew(5, partition, TTL_S)
    lane.turn_until("held again", lambda: partition in lane.held() and lane.nonce(partition) not in ("", before))
    world.produce([(world.topics.triggers, later, {"delay": "1h"})])
    lane.turn_until("the trigger is taken", lambda: world.state(later))
    stamp = stamp_on(world, partition)
    assert stamp is not None
    assert (stamp.lane, stamp.renewed_by, stamp.renewal) == (lane.context.lane, LANE, 5)
    ghost.die()
    lane.close()

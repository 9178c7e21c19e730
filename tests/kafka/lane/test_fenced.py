"""A lane whose producers were ended by somebody, whose metadata is old, or who lost a partition in mid-transaction."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from fencepost.codec import loads
from fencepost.kafka.errors import Die
from fencepost.kafka.member import GroupMetadata
from fencepost.kafka.transaction import OutRecord, end_producers
from fencepost.worker.commit import Committer
from tests.kafka.lane.fakes import FakeRunners, overlaps, succeed
from tests.kafka.lane.harness import Driven, World, a_task, make_lane, only_classic, running, wait_until


def started(lane: Driven, world: World, task: str) -> None:
    """Hold everything, and have this task run."""
    lane.wait("all held", lane.holds_all)
    world.trigger(task)
    lane.wait("it runs", lambda: lane.runners.starts_of(task) == [1])


def fence(lane: Driven) -> None:
    end_producers(lane.world.settings, lane.context.ring, 10)


def test_a_lane_that_was_fenced_while_still_a_member_acquires_again_and_its_runs_go_on(world: World) -> None:
    lane, task, other = make_lane(world), world.task_on(0), world.task_on(1)
    with running(lane):
        started(lane, world, task)
        before = lane.nonce(0)
        fence(lane)
        world.trigger(other)  # so that it writes, and hears of it
        lane.wait("it was fenced", lambda: lane.notes.of("fenced: every partition is acquired again"))
        lane.wait("all held again", lambda: lane.holds_all() and lane.nonce(0) not in ("", before))
        after = lane.nonce(0)
        wait_until("the run is under the new nonce", lambda: (world.state(task) or {})["run"]["nonce"] == after)
        lane.wait("the other runs", lambda: lane.runners.starts_of(other) == [1])
        assert lane.runners.rebound == [(0, before, after)]
        lane.runners.finish(task)
        lane.runners.finish(other)
        lane.wait("its end", lambda: (world.state(task) or {})["status"] == "idle")
    assert lane.runners.starts_of(task) == [1]
    assert lane.runners.stopped == []
    assert world.kinds(task) == [("started", 1), ("adopted", 1), ("succeeded", 1)]


def test_without_the_guards_word_such_a_run_would_be_started_a_second_time_beside_itself(classic_world: World) -> None:
    """The test above can fail: a lane that believes its runs gone starts the next epoch while the first lives."""
    world = classic_world
    lane, task = make_lane(world), world.task_on(0)
    with running(lane):
        started(lane, world, task)
        with patch.object(FakeRunners, "holds", lambda *_: False):
            fence(lane)
            lane.wait("a second epoch", lambda: lane.runners.starts_of(task) == [1, 2])
        assert overlaps(lane.runners, task=task)


def test_a_fenced_lane_exits_where_a_newer_process_has_its_workers_id(classic_world: World) -> None:
    world = classic_world
    lane, task = make_lane(world, newer_incarnation=lambda: True), world.task_on(0)
    lane.start()
    started(lane, world, task)
    fence(lane)
    with pytest.raises(Die, match="two workers need two IDs"):
        lane.wait("it gives up", lambda: False)
    with pytest.raises(Die, match="two workers need two IDs"):
        lane.close()


def test_a_batch_refused_for_its_generation_goes_through_afterwards_and_runs_once(world: World) -> None:
    lane = make_lane(world, runners=FakeRunners(at_once=succeed))
    with running(lane):
        lane.wait("all held", lane.holds_all)
        old = lane.lane._member.metadata()
        visitor = make_lane(world, ordinal=1)
        with running(visitor):
            moved = min(visitor.wait("some of it", visitor.held))
        lane.wait("all held again", lane.holds_all)
        task = world.task_on(moved)
        fresh = lane.lane._member.metadata

        def old_until_refused() -> GroupMetadata:
            return fresh() if lane.notes.of("transaction aborted") else old

        with patch.object(lane.lane._member, "metadata", old_until_refused):
            world.trigger(task)
            lane.wait("it ran", lambda: lane.runners.starts_of(task) == [1])
        (aborted,) = lane.notes.of("transaction aborted")
        assert "ILLEGAL_GENERATION" in aborted["why"]
        lane.wait("its end", lambda: (world.state(task) or {}).get("status") == "idle")
    assert world.kinds(task) == [("started", 1), ("succeeded", 1)]


def test_no_run_is_lost_or_doubled_while_lanes_come_and_go(world: World) -> None:
    tasks = [world.task_on(partition, number) for partition in range(4) for number in range(3)]
    patient = [a_task(buffer_limit=100_000)]  # none is to be skipped because many wait
    lanes = [make_lane(world, runners=FakeRunners(at_once=succeed), tasks=patient)]
    rounds = 0
    with running(lanes[0]):
        lanes[0].wait("all held", lanes[0].holds_all)
        for ordinal in (1, 2):
            visitor = make_lane(world, runners=FakeRunners(at_once=succeed), tasks=patient, ordinal=ordinal).start()
            lanes.append(visitor)
            while not visitor.held():
                assert visitor.failure is None
                assert rounds < 2000
                world.trigger(*tasks)
                rounds += 1
                # Many are on their way at any time, but no more than can be run: the end is waited for below.
                let_run(lanes, visitor, len(tasks) * (rounds - 5))
            visitor.close()
        lanes[0].wait("every trigger ran to its end", lambda: succeeded(world) == dict.fromkeys(tasks, rounds), 120)
    for task in tasks:
        ran = sorted(epoch for lane in lanes for epoch in lane.runners.starts_of(task))
        recorded = [epoch for kind, epoch in world.kinds(task) if kind == "started"]
        assert ran == sorted(set(ran)), "an epoch was started twice"
        assert recorded == list(range(1, len(recorded) + 1))
        assert set(ran) <= set(recorded)


def let_run(lanes: list[Driven], visitor: Driven, runs: int) -> None:
    """Until so many were started, or the visitor has what it came for."""
    visitor.wait("runs", lambda: visitor.held() or sum(len(lane.runners.launched) for lane in lanes) > runs, 60)


def succeeded(world: World) -> dict[str, int]:
    """How many runs of each task succeeded."""
    bodies = [loads(record.value) for record in world.records(world.topics.runs) if record.value is not None]
    return dict(Counter(body["task"] for body in bodies if body["kind"] == "succeeded"))


def lose_in_mid_transaction(lane: Driven, task: str) -> Any:
    """The partition is lost after the records of a batch with this task were flushed, before the check."""
    ring = lane.lane._ring
    send = ring._send

    def losing(producer: Any, records: list[OutRecord], timeout_s: float) -> None:
        send(producer, records, timeout_s)
        if any(record.key == task.encode() for record in records):
            lane.lane._lost([lane.world.partition(task)])

    return patch.object(ring, "_send", losing)


@only_classic
def test_of_a_partition_lost_in_mid_transaction_nothing_becomes_visible(world: World) -> None:
    lane, task, kept = make_lane(world).open(), world.task_on(2), world.task_on(1)
    lane.turn_until("all held", lane.holds_all)
    with lose_in_mid_transaction(lane, task):
        world.trigger(task)
        lane.turn_until("refused", lambda: lane.notes.of("transaction aborted"))
    (aborted,) = lane.notes.of("transaction aborted")
    assert "is not held" in aborted["why"]
    assert world.state(task) is None
    assert world.history(task) == []
    assert task.encode() in {record.key for record in world.records(world.topics.state, 2, all_=True)}
    world.trigger(kept)
    lane.turn_until("the others go on", lambda: lane.runners.starts_of(kept) == [1])
    assert lane.runners.starts_of(task) == []
    lane.close()


@only_classic
def test_without_the_check_the_broker_would_have_made_it_visible(world: World) -> None:
    lane, task = make_lane(world).open(), world.task_on(2)
    lane.turn_until("all held", lane.holds_all)
    with patch.object(Committer, "_check", lambda *_: None), lose_in_mid_transaction(lane, task):
        world.trigger(task)
        lane.turn_until("it is written", lambda: (world.state(task) or {}).get("status") == "running")
    lane.close()

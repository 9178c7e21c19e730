"""A transaction that is open on a partition, and that nobody known has to end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from fencepost.core.ownership import FenceRecord, Phase
from fencepost.core.task import TaskState
from fencepost.kafka.hanging import close_transactions, open_records
from fencepost.kafka.transaction import OutRecord, make_producer, transactional_ids
from fencepost.wire.state import encode_state
from fencepost.worker.hanging import Hanging, first_lane, ring_of
from tests.kafka.lane.fakes import FakeRunners, succeed
from tests.kafka.lane.ghost import LANE, NONCE
from tests.kafka.lane.harness import World, make_lane, running
from tests.kafka.lane.members import LIMIT_S, make_member

pytestmark = pytest.mark.faults


def left_open(world: World, partition: int) -> Any:
    """A transaction that lasts for a minute, of a lane that `owners` does not name. The producer keeps it open."""
    patient = replace(world.settings, transaction_timeout_s=60.0)
    producer = make_producer(patient, transactional_ids(world.settings.namespace, "ghost", 0)[2], lambda _error: None)
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    value = encode_state(TaskState("never-committed", 7), LANE, NONCE)
    producer.produce(world.topics.state, value, b"never-committed", partition)
    assert producer.flush(LIMIT_S) == 0
    return producer


def test_a_transaction_of_a_lane_nobody_knows_is_closed_long_before_it_times_out(world: World) -> None:
    kept = left_open(world, 1)
    lane = make_lane(world, runners=FakeRunners(at_once=succeed))
    task = world.task_on(1)
    with running(lane):
        lane.wait("all held", lane.holds_all, 20)
        world.trigger(task)
        lane.wait("it ran", lambda: lane.runners.starts_of(task) == [1])
        lane.wait("it is told", lambda: lane.notes.of("a transaction that nobody ended was closed"))
    assert lane.notes.of("a transaction that nobody ended was closed") == [{"lanes": [LANE]}]
    assert b"never-committed" not in {record.key for record in world.records(world.topics.state, 1)}
    assert len(kept) == 0


def test_without_that_its_partition_is_not_served_while_it_is_open(classic_world: World) -> None:
    kept = left_open(classic_world, 1)
    lane = make_lane(classic_world, runners=FakeRunners(at_once=succeed))
    with patch.object(Hanging, "look", lambda *_: {}), running(lane):
        lane.wait("the others held", lambda: lane.held() == {0, 2, 3}, 20)
        assert lane.context.partitions[1].holding.phase is Phase.READING
        kept.abort_transaction(LIMIT_S)
        lane.wait("all held", lane.holds_all, 20)


def test_the_first_record_behind_the_committed_end_tells_whose_transaction_it_is(classic_world: World) -> None:
    kept = left_open(classic_world, 1)
    place = (classic_world.topics.state, 1)
    assert first_lane(open_records(classic_world.settings, place, 0, LIMIT_S)) == LANE
    member = make_member(classic_world, 9)
    member.until_all_owned()
    record = OutRecord(*place, b"closing", b"{}")
    ids = ring_of(classic_world.settings, LANE)
    offset = (classic_world.topics.triggers, 1)
    close_transactions(classic_world.settings, ids, [record], offset, member.member.metadata(), LIMIT_S)
    assert [found.key for found in classic_world.records(*place)] == []
    assert len(kept) == 0
    member.member.close()


def test_a_fenced_lane_does_not_end_a_holder_again_that_it_has_ended(classic_world: World) -> None:
    """Two lanes that had taken over from each other ended each other for minutes, each at every try of the other."""
    lane = make_lane(classic_world, runners=FakeRunners(at_once=succeed))
    lane.open()
    lane.turn_until("all held", lane.holds_all)
    other = FenceRecord(1, "other/0/bb", "other-nonce", ("other.0",), worker="other")
    partition = lane.context.partitions[1]
    stale = lane.context.pictures[1].fold(other)
    partition.holding = replace(partition.holding, picture=stale)  # as it was before the own fence record was read
    with patch("fencepost.worker.acquisition.end_producers") as ended:
        lane.lane._acquisitions.fenced()
        lane.turn_until("all held again", lane.holds_all)
    assert not ended.called
    lane.close()

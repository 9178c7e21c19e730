"""The checks of one transaction: what a broker lets pass, and what therefore must never be sent."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from confluent_kafka import Consumer

from fencepost.kafka.errors import StepDown
from fencepost.kafka.member import GroupMetadata, _parse
from fencepost.kafka.transaction import (
    Aborted,
    Committed,
    Refused,
    Ring,
    end_producers,
    make_producer,
    transactional_ids,
)
from tests.kafka.lane.harness import World, only_classic, wait_until
from tests.kafka.lane.members import LIMIT_S, Joined, make_member, make_ring, offer, offset_of, together, visible


@pytest.fixture
def ring(world: World) -> Ring:
    return make_ring(world)


@pytest.fixture
def joined(world: World) -> Iterator[Joined]:
    made = make_member(world)
    yield made
    made.member.close()


def metadata_of_a_stranger(world: World) -> GroupMetadata:
    """What the client library gives out for a consumer of this group that never joined it."""
    consumer = Consumer({"bootstrap.servers": world.bootstrap, "group.id": world.settings.group})
    try:
        return _parse(consumer.consumer_group_metadata())
    finally:
        consumer.close()


def test_metadata_of_a_member_that_never_joined_is_not_sent(world: World, ring: Ring, joined: Joined) -> None:
    joined.until_all_owned()
    stranger = metadata_of_a_stranger(world)
    assert (stranger.generation, stranger.member_id, stranger.joined) == (-1, "", False)
    outcome = offer(world, ring, "kept-back", lambda: stranger)
    assert outcome == Aborted("not a member of the group", refused=True)
    assert visible(world) == set()
    assert visible(world, all_=True) == {"kept-back"}
    assert offset_of(world) < 0


def test_without_that_check_the_broker_takes_the_word_of_a_member_that_never_joined(
    world: World, ring: Ring, joined: Joined
) -> None:
    joined.until_all_owned()
    stranger = metadata_of_a_stranger(world)
    with patch.object(GroupMetadata, "joined", True):
        outcome = offer(world, ring, "let-through", lambda: stranger)
    assert outcome == Committed()
    assert visible(world) == {"let-through"}
    assert offset_of(world) == 0


def test_metadata_of_a_member_that_left_the_group_is_not_sent(world: World, ring: Ring, joined: Joined) -> None:
    joined.until_all_owned()
    consumer = joined.member._consumer
    consumer.unsubscribe()
    joined.until("it has left", lambda: not joined.member.metadata().joined)
    assert offer(world, ring, "kept-back", joined.member.metadata) == Aborted("not a member of the group", refused=True)
    assert visible(world) == set()


@only_classic
def test_a_transaction_without_offsets_is_refused_before_anything_is_sent(
    world: World, ring: Ring, joined: Joined
) -> None:
    joined.until_all_owned()
    with pytest.raises(ValueError, match="without offsets is not checked"):
        offer(world, ring, "kept-back", joined.member.metadata, offsets={})
    assert visible(world, all_=True) == set()


@only_classic
def test_without_that_refusal_an_empty_list_of_offsets_commits_though_the_generation_is_long_past(
    world: World, joined: Joined
) -> None:
    joined.until_all_owned()
    past = joined.member.metadata()
    joined.member._consumer.unsubscribe()
    joined.until("it has left", lambda: not joined.member.metadata().joined)
    producer = make_producer(world.settings, f"{world.settings.namespace}.bare", lambda _error: None)
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(world.topics.state, b"{}", b"unchecked", 0)
    assert producer.flush(10) == 0
    producer.send_offsets_to_transaction([], past.raw, 10)
    producer.commit_transaction(10)
    assert visible(world) == {"unchecked"}


@only_classic
def test_nothing_becomes_visible_when_the_check_right_before_the_offsets_refuses(
    world: World, ring: Ring, joined: Joined
) -> None:
    joined.until_all_owned()

    def refuse() -> None:
        assert visible(world, all_=True) == {"kept-back"}, "the records were flushed before the check"
        raise Refused("partition 0 is not held any more")

    outcome = offer(world, ring, "kept-back", joined.member.metadata, check=refuse)
    assert outcome == Aborted("partition 0 is not held any more", refused=True)
    assert visible(world) == set()
    assert offset_of(world) < 0
    assert offer(world, ring, "next", joined.member.metadata) == Committed()
    assert visible(world) == {"next"}


def test_the_broker_itself_does_not_ask_which_partitions_the_member_owns(world: World, ring: Ring) -> None:
    """Why the check is ours to make: a member that owns half writes offsets of the other half."""
    one, other = make_member(world, 1), make_member(world, 2)
    try:
        together(one, other, until=lambda: len(one.owned) == len(other.owned) == 2 and not one.owned & other.owned)
        foreign = min(other.owned)
        assert offer(world, ring, "foreign", one.member.metadata, partition=foreign) == Committed()
        assert visible(world) == {"foreign"}
    finally:
        one.member.close()
        other.member.close()


@only_classic
def test_a_fenced_producer_raises_and_nothing_of_its_transaction_becomes_visible(
    world: World, ring: Ring, joined: Joined
) -> None:
    joined.until_all_owned()
    assert offer(world, ring, "before", joined.member.metadata) == Committed()

    def fence() -> None:
        end_producers(world.settings, ring.ids, 10)

    with pytest.raises(StepDown, match="was fenced"):
        offer(world, ring, "fenced", joined.member.metadata, check=fence)
    assert visible(world) == {"before"}
    ring.throw_away()
    ring.open(10)
    assert offer(world, ring, "after", joined.member.metadata) == Committed()
    assert visible(world) == {"before", "after"}


def test_metadata_of_an_earlier_generation_is_refused_once_and_fresh_metadata_goes_through(
    world: World, ring: Ring, joined: Joined
) -> None:
    """Classic refuses every older generation; the newer protocol only for partitions that moved away since."""
    joined.until_all_owned()
    earlier = joined.member.metadata()
    other = make_member(world, 2)
    try:
        together(joined, other, until=lambda: len(joined.owned) == len(other.owned) == 2)
        assert joined.member.metadata().generation > earlier.generation
        moved, kept = min(other.owned), min(joined.owned)
        outcome = offer(world, ring, "moved", lambda: earlier, partition=moved)
        assert isinstance(outcome, Aborted)
        assert "ILLEGAL_GENERATION" in outcome.reason
        outcome = offer(world, ring, "kept", lambda: earlier, partition=kept)
        if world.info.group_protocol == "classic":
            assert isinstance(outcome, Aborted)
            assert "ILLEGAL_GENERATION" in outcome.reason
            assert visible(world) == set()
        else:
            assert outcome == Committed()
            assert visible(world) == {"kept"}
        assert offer(world, ring, "fresh", joined.member.metadata, partition=kept) == Committed()
        assert "moved" not in visible(world)
        assert "fresh" in visible(world)
    finally:
        other.member.close()


def test_metadata_read_inside_the_revoke_callback_commits_and_metadata_taken_earlier_does_not(
    world: World, ring: Ring, joined: Joined
) -> None:
    """Two rebalances, so that "earlier" is a generation ago; both transactions are made while the callback runs."""
    joined.until_all_owned()
    first = joined.member.metadata()
    second = make_member(world, 2)
    together(joined, second, until=lambda: bool(second.owned))
    second.member.close()
    joined.until_all_owned()
    assert joined.member.metadata().generation > first.generation
    outcomes: dict[str, object] = {}

    def inside(numbers: list[int]) -> None:
        outcomes["fresh"] = offer(world, ring, "fresh", joined.member.metadata, partition=numbers[0])
        outcomes["earlier"] = offer(world, ring, "earlier", lambda: first, partition=numbers[0])

    joined.on_revoke = inside
    third = make_member(world, 3)
    try:
        together(joined, third, until=lambda: bool(outcomes))
    finally:
        joined.on_revoke = lambda _numbers: None
        third.member.close()
    assert outcomes["fresh"] == Committed()
    assert isinstance(outcomes["earlier"], Aborted)
    assert "ILLEGAL_GENERATION" in outcomes["earlier"].reason
    assert visible(world) == {"fresh"}


@only_classic
def test_a_ring_has_ids_that_a_successor_of_the_same_worker_ends(world: World, joined: Joined) -> None:
    joined.until_all_owned()
    first = make_ring(world, "same")
    assert first.ids == transactional_ids(world.settings.namespace, "same", 0)
    second = make_ring(world, "same")
    with pytest.raises(StepDown):
        offer(world, first, "predecessor", joined.member.metadata)
    assert offer(world, second, "successor", joined.member.metadata) == Committed()
    wait_until("the successor's record alone", lambda: visible(world) == {"successor"})


def test_a_question_that_was_left_open_keeps_nobody_waiting_for_the_answer_of_step_1(
    world: World, ring: Ring, joined: Joined
) -> None:
    """A lane died while it asked whether the group counts it in, and no record tells of it.

    That it asks with an offset of `owners` is what lets its successor go on: one of `triggers` would not.
    """
    joined.until_all_owned()
    triggers = world.topics.triggers
    with patch.object(Ring, "_abort", lambda *_args, **_more: None):
        joined.until("it counts", lambda: ring.counted_in((world.topics.owners, 0), joined.member.metadata, LIMIT_S))
        joined.until("an answer", lambda: 0 in joined.member.committed([0], triggers, 0.5))
        assert ring.counted_in((triggers, 0), joined.member.metadata, LIMIT_S)
        assert 0 not in joined.member.committed([0], triggers, 0.5)

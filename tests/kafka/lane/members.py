"""A member of the group and a ring of producers without a lane around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from confluent_kafka import Consumer, TopicPartition

from fencepost.kafka.errors import RetryLater
from fencepost.kafka.member import GroupMetadata, Member
from fencepost.kafka.transaction import OffsetMark, Outcome, OutRecord, Ring, transactional_ids
from tests.kafka.lane.harness import World, wait_until

SENTINEL = b"sentinel"
LIMIT_S = 5.0


@dataclass(slots=True)
class Joined:
    """A member that notes what the group says. `on_revoke` runs inside the callback."""

    world: World
    member: Member
    owned: set[int] = field(default_factory=set)
    on_revoke: Callable[[list[int]], None] = lambda _numbers: None
    lost: list[int] = field(default_factory=list)

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        def polled() -> bool:
            self.member.poll(0.01)
            return condition()

        wait_until(what, polled)

    def until_all_owned(self) -> Joined:
        self.until("all partitions owned", lambda: len(self.owned) == self.world.info.partitions)
        return self


def make_member(world: World, ordinal: int = 0) -> Joined:
    settings = replace(world.settings, session_timeout_s=world.info.session_timeout_s)
    holder: list[Joined] = []

    def assigned(numbers: list[int]) -> None:
        holder[0].owned.update(numbers)

    def revoked(numbers: list[int]) -> None:
        holder[0].on_revoke(numbers)
        holder[0].owned.difference_update(numbers)

    def lost(numbers: list[int]) -> None:
        holder[0].lost += numbers
        holder[0].owned.difference_update(numbers)

    member = Member(
        settings,
        topic=world.topics.triggers,
        protocol=world.info.group_protocol,
        ordinal=ordinal,
        instance_id=None,
        on_assigned=assigned,
        on_revoked=revoked,
        on_lost=lost,
    )
    holder.append(Joined(world, member))
    member.join()
    return holder[0]


def together(*members: Joined, until: Callable[[], bool]) -> None:
    """Poll all of them, so that a rebalance among them comes about."""

    def polled() -> bool:
        for each in members:
            each.member.poll(0.01)
        return until()

    wait_until("the group settles", polled)


def make_ring(world: World, worker: str = "w", size: int = 4) -> Ring:
    ring = Ring(world.settings, transactional_ids(world.settings.namespace, worker, 0)[:size])
    wait_until("a coordinator for transactions", lambda: _opened(ring))
    return ring


def _opened(ring: Ring) -> bool:
    try:
        ring.open(LIMIT_S)
    except RetryLater:
        return False
    return True


def offer(
    world: World,
    ring: Ring,
    key: str,
    metadata: Callable[[], GroupMetadata],
    *,
    partition: int = 0,
    offset: int = 0,
    check: Callable[[], None] = lambda: None,
    offsets: dict[tuple[str, int], OffsetMark] | None = None,
) -> Outcome:
    """One transaction with one record of the state topic and one offset."""
    state = world.topics.state
    marks = {(world.topics.triggers, partition): OffsetMark(offset, "{}")} if offsets is None else offsets
    record = OutRecord(state, partition, key.encode(), b"{}")
    return ring.commit([record], marks, metadata, check, OutRecord(state, partition, SENTINEL, b"{}"), LIMIT_S)


def offset_of(world: World, partition: int = 0) -> int:
    """The group's committed offset of a triggers partition; -1001: none."""
    consumer = Consumer({"bootstrap.servers": world.bootstrap, "group.id": world.settings.group})
    try:
        (answer,) = consumer.committed([TopicPartition(world.topics.triggers, partition)], timeout=10)
        return answer.offset
    finally:
        consumer.close()


def visible(world: World, *, all_: bool = False) -> set[str]:
    """Keys of the state topic, the sentinels left out."""
    found = world.records(world.topics.state, all_=all_)
    return {record.key_text for record in found if record.key != SENTINEL}

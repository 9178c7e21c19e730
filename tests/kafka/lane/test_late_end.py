"""The late end of a transaction: a delayed copy of an end strikes the producer's next transaction.

The client library repeats an end that is not answered. Here the first copy is held back by a proxy until the next
transaction has begun. Without the sentinel the client is told OK about half a transaction; with it, or with a producer
that is thrown away after such an end, nobody is told a lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from fencepost.kafka.errors import error_of
from fencepost.kafka.transaction import Aborted, Committed, Refused, Ring, make_producer
from tests.faults.proxy import Action, Api, Rule
from tests.kafka.lane.conftest import Proxied
from tests.kafka.lane.harness import World, wait_until
from tests.kafka.lane.members import SENTINEL, Joined, make_member, make_ring, offer, offset_of, visible

pytestmark = pytest.mark.faults

OFFSET = 7
LIMIT_S = 8.0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: which end comes late, what the second transaction does, and what is true afterwards."""

    name: str
    late: str
    steps: tuple[str, ...]
    told: str  # by the client, without the sentinel
    seen: frozenset[str]
    offset: bool = False  # whether the second transaction's offset is committed


ROWS = [
    Row("the first record is lost", "abort", ("B1", "release", "B2", "commit"), "ok", frozenset({"B2"})),
    Row("the record is lost, its offset not", "abort", ("B1", "release", "offsets", "commit"), "ok", frozenset(), True),
    Row("the offset is lost, its record not", "abort", ("offsets", "release", "B1", "commit"), "ok", frozenset({"B1"})),
    Row("an aborted record stays", "commit", ("B1", "release", "B2", "abort"), "ok", frozenset({"B1"})),
    Row("a commit fails", "abort", ("B1", "release", "commit"), "fatal", frozenset()),
    Row("an abort fails", "commit", ("B1", "release", "abort"), "fatal", frozenset({"B1"})),
]
BY_NAME = [row.name for row in ROWS]


@pytest.fixture
def slow(proxied: Proxied) -> World:
    """The world through the proxy, with a client that gives up on an answer after a second."""
    return proxied.through.with_client(socket_timeout_ms="1000")


@pytest.fixture
def joined(proxied: Proxied) -> Iterator[Joined]:
    made = make_member(proxied.world)
    yield made.until_all_owned()
    made.member.close()


class Script:
    """A producer of its own that does a row's steps."""

    def __init__(self, proxied: Proxied, world: World, joined: Joined) -> None:
        self._world = world
        self._joined = joined
        self._failed: list[KafkaError] = []  # records that were not taken
        self.producer: Producer = make_producer(world.settings, f"{world.settings.namespace}.late", lambda _error: None)
        wait_until("a producer", self._initialised)
        self.late = proxied.proxy.hold(Api.END_TXN, lambda request: request.names(f"{world.settings.namespace}.late"))

    def _initialised(self) -> bool:
        try:
            self.producer.init_transactions(LIMIT_S)
        except KafkaException as error:
            if not error_of(error).retriable():
                raise
            return False
        return True

    def first_transaction(self, end: str) -> None:
        """Ends twice: the first copy waits in the proxy, the second is answered."""
        self.producer.begin_transaction()
        self._record("A", 0)
        self.step(end)
        assert self.late.met

    def second_transaction(self, steps: tuple[str, ...], *, sentinel: bool) -> str:
        """What the client says of it: "ok", or the name of the first error, of its end or of a record."""
        self.producer.begin_transaction()
        try:
            for step in steps:
                if sentinel and step in ("commit", "abort"):
                    self._record(SENTINEL.decode(), 0 if "B1" in steps else 1)
                self.step(step)
        except KafkaException as error:
            return ("fatal " if error_of(error).fatal() else "") + error_of(error).name()
        return self._failed[0].name() if self._failed else "ok"

    def step(self, step: str) -> None:
        if step == "commit":
            self.producer.commit_transaction(LIMIT_S)
        elif step == "abort":
            self.producer.abort_transaction(LIMIT_S)
        elif step == "release":
            self.late.release()
            self.late.wait_answered()
        elif step == "offsets":
            mark = TopicPartition(self._world.topics.triggers, 0, OFFSET)
            self.producer.send_offsets_to_transaction([mark], self._joined.member.metadata().raw, LIMIT_S)
        else:
            self._record(step, 0 if step == "B1" else 1)

    def _record(self, key: str, partition: int) -> None:
        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                self._failed.append(error)

        self.producer.produce(self._world.topics.state, b"{}", key, partition, on_delivery=delivered)
        assert self.producer.flush(LIMIT_S) == 0


@pytest.mark.parametrize("row", ROWS, ids=BY_NAME)
def test_without_the_sentinel_a_late_end_makes_the_client_say_what_is_not_so(
    proxied: Proxied, slow: World, joined: Joined, row: Row
) -> None:
    script = Script(proxied, slow, joined)
    script.first_transaction(row.late)
    told = script.second_transaction(row.steps, sentinel=False)
    assert told == "ok" if row.told == "ok" else told.startswith("fatal")
    first = {"A"} if row.late == "commit" else set()
    wait_until("what the table says", lambda: visible(proxied.world) == row.seen | first)
    assert (offset_of(proxied.world) == OFFSET) is row.offset


RECORDS_FIRST = [row for row in ROWS if row.steps[0] == "B1"]


@pytest.mark.parametrize("row", RECORDS_FIRST, ids=[row.name for row in RECORDS_FIRST])
def test_with_the_sentinel_a_late_end_is_an_error_or_the_whole_transaction(
    proxied: Proxied, slow: World, joined: Joined, row: Row
) -> None:
    script = Script(proxied, slow, joined)
    script.first_transaction(row.late)
    told = script.second_transaction(row.steps, sentinel=True)
    if told == "ok":
        assert "commit" in row.steps
        wanted = {step for step in row.steps if step.startswith("B")} | ({"A"} if row.late == "commit" else set())
        wait_until("all of it", lambda: visible(proxied.world) == wanted)
        assert ("offsets" in row.steps) is (offset_of(proxied.world) == OFFSET)


def test_the_sentinel_cannot_see_offsets_that_went_before_the_records(
    proxied: Proxied, slow: World, joined: Joined
) -> None:
    """Why the ring sends and flushes its records first: the partition of the sentinel has to be in from the start."""
    (row,) = [row for row in ROWS if row.steps[0] == "offsets"]
    script = Script(proxied, slow, joined)
    script.first_transaction(row.late)
    assert script.second_transaction(row.steps, sentinel=True) == "ok"
    wait_until("the record alone", lambda: visible(proxied.world) == {"B1"})
    assert offset_of(proxied.world) != OFFSET


def one_place(proxied: Proxied, world: World) -> tuple[Ring, Rule]:
    """A ring of one, so that its next transaction is the same producer's; the rule is about its ends."""
    ring = make_ring(world, "late", size=1)
    (name,) = ring.ids
    return ring, proxied.proxy.hold(Api.END_TXN, lambda request: request.names(name))


def test_a_producer_whose_end_was_slow_is_thrown_away_and_its_late_end_does_no_harm(
    proxied: Proxied, slow: World, joined: Joined
) -> None:
    ring, late = one_place(proxied, slow)
    assert offer(slow, ring, "A", joined.member.metadata) == Committed()
    assert late.met
    assert offer(slow, ring, "B", joined.member.metadata, offset=OFFSET, check=lambda: strike(late)) == Committed()
    assert visible(proxied.world) == {"A", "B"}
    assert offset_of(proxied.world) == OFFSET


def test_what_was_refused_after_a_slow_end_stays_invisible_though_that_end_comes_late(
    proxied: Proxied, slow: World, joined: Joined
) -> None:
    ring, late = one_place(proxied, slow)
    assert offer(slow, ring, "A", joined.member.metadata) == Committed()

    def refuse() -> None:
        strike(late)
        raise Refused("not held any more")

    assert offer(slow, ring, "B", joined.member.metadata, check=refuse) == Aborted("not held any more", refused=True)
    assert offer(slow, ring, "C", joined.member.metadata) == Committed()
    assert visible(proxied.world) == {"A", "C"}


def test_a_producer_that_saw_a_disconnect_during_its_end_is_thrown_away_however_quick_the_end_was(
    proxied: Proxied, joined: Joined
) -> None:
    """The copy of the end survives in the network though its connection broke; the second copy is answered at once."""
    world = proxied.through
    ring, late = one_place(proxied, world)
    late.action = Action.DETACH
    assert offer(world, ring, "A", joined.member.metadata) == Committed()
    assert late.met

    def refuse() -> None:
        strike(late)
        raise Refused("not held any more")

    offer(world, ring, "B", joined.member.metadata, check=refuse)
    assert offer(world, ring, "C", joined.member.metadata) == Committed()
    assert visible(proxied.world) == {"A", "C"}


def strike(late: Rule) -> None:
    late.release()
    late.wait_answered()

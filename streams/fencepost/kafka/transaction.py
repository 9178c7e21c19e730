"""The transaction, and the ring of producers that take turns with it.

One class owns the transaction; `Ring.commit` says what became of it:

Committed   by the client's word. Nothing may be acted on before it is read back.
Aborted     certainly not there, and this producer is fit for the next one: offer the same changes again.
Unclear     it may or may not be there, now or later: `Ring.settle` first, then read to the end, then offer again.

and raises StepDown when the ring was fenced by somebody else.

Why so careful: this client library has no transactions v2 (KIP-890) and repeats an end of a transaction silently; a
delayed copy can strike the producer's *next* transaction. The sentinel (one more record to the first partition, after
everything else was flushed and the offsets were accepted) turns every wrong outcome that could be made to happen into
an error, and a producer whose end was slow, unclear, or saw a disconnect is thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from fencepost.kafka.bounded import BoundedCalls, Overdue
from fencepost.kafka.config import client_config, log
from fencepost.kafka.errors import (
    AbortAndOffer,
    Die,
    KafkaProblem,
    RetryLater,
    StepDown,
    classify,
    describe,
    error_of,
    problem_of,
)
from fencepost.kafka.member import GroupMetadata
from fencepost.kafka.topics import DEAD_LETTER_MAX_BYTES
from fencepost.settings import Settings

RING_SIZE = 4
SLOW_END_S = 1.0
OFFSETS_LIMIT_S = 3.0  # as long as a request may take; a client that waits longer waits for a broker it has forgotten
END_LIMIT_S = 5.0

Headers = list[tuple[str, str | bytes | None]]  # what the client library takes as it is


@dataclass(frozen=True, slots=True)
class OutRecord:
    """One record on its way. `value` None is a tombstone."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None


@dataclass(frozen=True, slots=True)
class OffsetMark:
    """Commit `offset` of the group's topic with `metadata`."""

    offset: int
    metadata: str


class Refused(Exception):
    """The check before the offsets said no: nothing of this transaction may become visible."""


@dataclass(frozen=True, slots=True)
class Committed:
    pass


@dataclass(frozen=True, slots=True)
class Aborted:
    """`refused`: by our own check, not by Kafka."""

    reason: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Unclear:
    """`accepted`: the offsets were accepted, so the group still counted us in."""

    reason: str
    accepted: bool


Outcome = Committed | Aborted | Unclear


def transactional_ids(namespace: str, worker: str, lane: int) -> tuple[str, ...]:
    """Stable per worker, lane and place, so that a new process ends what its predecessor left open."""
    return tuple(f"{namespace}.{worker}.{lane}.{place}" for place in range(RING_SIZE))


def make_producer(settings: Settings, transactional_id: str, on_error: Callable[[KafkaError], None]) -> Producer:
    """A transactional producer, not yet initialised. With stock backoffs a transaction takes 94 ms instead of 4."""
    config: dict[str, Any] = {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": int(settings.transaction_timeout_s * 1000),
        "retry.backoff.ms": 1,
        "retry.backoff.max.ms": 100,
        "linger.ms": 0,
        "batch.num.messages": 10_000,
        "queue.buffering.max.messages": 1_000_000,
        "message.max.bytes": DEAD_LETTER_MAX_BYTES,  # a dead letter is up to half again as large as what it holds
        "queue.buffering.max.kbytes": 262_144,
        "error_cb": on_error,
        # After all brokers were gone for a moment the client would forget them and start over from the bootstrap list,
        # but its cached group coordinator stays a forgotten one, and sending offsets then blocks for ever.
        "metadata.recovery.strategy": "none",
    }
    return Producer(client_config(settings, "lane", **config) | {"logger": _Ears(on_error)})


class _Ears:
    """Stands in for the client's log: a connection that broke or timed out is told there, and to no callback."""

    def __init__(self, on_error: Callable[[KafkaError], None]) -> None:
        self._on_error = on_error

    def log(self, level: int, message: str, *fields: Any) -> None:
        """Called while the client is polled. `fields`: facility, client, text."""
        if fields and fields[0] in ("FAIL", "REQTMOUT"):
            self._on_error(KafkaError(KafkaError._TRANSPORT, str(fields[-1])))
        log.log(level, message, *fields)


def initialise(producer: Producer, timeout_s: float) -> None:
    """init_transactions: ends whatever an earlier producer of this ID left open. Raises RetryLater or Die."""
    try:
        producer.init_transactions(timeout_s)
    except KafkaException as exception:
        raise problem_of(exception, "init_transactions") from exception


class _Place:
    """One producer of the ring, made anew when it cannot be trusted any more."""

    def __init__(self, settings: Settings, transactional_id: str) -> None:
        self._settings = settings
        self.transactional_id = transactional_id
        self.producer: Producer | None = None
        self.disconnected = False

    def ready(self, timeout_s: float) -> Producer:
        if self.producer is None:
            producer = make_producer(self._settings, self.transactional_id, self._on_error)
            initialise(producer, timeout_s)
            self.producer = producer
        return self.producer

    def throw_away(self) -> None:
        self.producer = None

    def look(self) -> None:
        """Have the client say what it has noticed. A fatal error comes out of the next call that matters, not here."""
        if self.producer is not None:
            with suppress(KafkaException, SystemError):
                self.producer.poll(0)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT):
            self.disconnected = True


class Ring:
    """Producers used in turn, one transaction after the other.

    With replication a single producer waits for its last transaction to settle before the next can begin (fixed 20 ms
    steps in the client library); four in turn do not.
    """

    def __init__(self, settings: Settings, ids: Sequence[str]) -> None:
        self.ids = tuple(ids)
        self._places = [_Place(settings, transactional_id) for transactional_id in ids]
        self._turn = 0
        self._calls = BoundedCalls()

    def open(self, timeout_s: float) -> None:
        """Initialise all of them at once. Raises RetryLater when no broker answers in time."""
        with ThreadPoolExecutor(len(self._places)) as pool:
            for done in [pool.submit(place.ready, timeout_s) for place in self._places]:
                done.result()

    def commit(
        self,
        records: Sequence[OutRecord],
        offsets: Mapping[tuple[str, int], OffsetMark],
        metadata: Callable[[], GroupMetadata],
        check: Callable[[], None],
        sentinel: OutRecord,
        timeout_s: float,
    ) -> Outcome:
        """One transaction: records, flush, check, offsets, sentinel, flush, end.

        `check` raises Refused where a partition is no longer owned under the nonce its records carry; it is called
        right before `metadata`. `records` begins with the partition that `sentinel` goes to. At least one offset must
        be named: an empty list commits with no check of the membership at all. Raises StepDown, Die, RetryLater (the
        last only if nothing was begun).
        """
        if not offsets:
            raise ValueError("a transaction without offsets is not checked by the group")
        if not records or (records[0].topic, records[0].partition) != (sentinel.topic, sentinel.partition):
            raise ValueError("the sentinel belongs on the transaction's first partition")
        place = self._places[self._turn]
        self._turn = (self._turn + 1) % len(self._places)
        producer = place.ready(timeout_s)
        place.look()
        place.disconnected = False  # what happened before does not concern this transaction
        accepted = False
        try:
            producer.begin_transaction()
            self._send(producer, records, timeout_s)
            check()
            group = metadata()
            if not group.joined:
                raise Refused("not a member of the group")
            marks = [TopicPartition(*at, mark.offset, metadata=mark.metadata) for at, mark in offsets.items()]
            self._send_offsets(producer, marks, group, timeout_s)
            accepted = True
            self._send(producer, [sentinel], timeout_s)
        except Refused as refusal:
            return self._abort(place, producer, str(refusal), refused=True, accepted=False)
        except _NotDelivered as failure:
            return self._abort(place, producer, str(failure), refused=False, accepted=accepted)
        except Overdue as overdue:
            self.throw_away()  # all of them remember the same coordinator
            return Unclear(f"offsets: {overdue}", accepted=False)
        except (KafkaException, SystemError) as raised:
            exception = _client_error(raised)
            self._raise_if_fenced(place, exception)
            return self._abort(place, producer, describe(error_of(exception)), refused=False, accepted=accepted)
        return self._end(place, producer)

    def counted_in(self, place: tuple[str, int], metadata: Callable[[], GroupMetadata], timeout_s: float) -> bool:
        """Whether the group counts this member in right now: it accepts an offset, in a transaction that is aborted.

        Raises StepDown, RetryLater.
        """
        turn = self._places[self._turn]
        self._turn = (self._turn + 1) % len(self._places)
        producer = turn.ready(timeout_s)
        turn.look()
        turn.disconnected = False
        group = metadata()
        if not group.joined:
            return False
        accepted = False
        try:
            producer.begin_transaction()
            self._send_offsets(producer, [TopicPartition(*place, 0)], group, timeout_s)
            accepted = True
        except Overdue:
            self.throw_away()
            return False
        except (KafkaException, SystemError) as raised:
            self._raise_if_fenced(turn, _client_error(raised))
        self._abort(turn, producer, "only a question", refused=True, accepted=accepted)
        return accepted

    def settle(self, timeout_s: float) -> None:
        """Make every producer that was thrown away again. When it returns, their earlier transactions are decided."""
        for place in self._places:
            place.ready(timeout_s)

    def throw_away(self) -> None:
        """After the ring was fenced, or at the end: no producer of it is used again; `open` makes new ones."""
        for place in self._places:
            place.throw_away()
        self._calls.close()

    def _send_offsets(
        self, producer: Producer, marks: list[TopicPartition], group: GroupMetadata, timeout_s: float
    ) -> None:
        limit_s = min(timeout_s, OFFSETS_LIMIT_S)
        self._calls.call(lambda: producer.send_offsets_to_transaction(marks, group.raw, limit_s), limit_s + 0.5)

    def _send(self, producer: Producer, records: Sequence[OutRecord], timeout_s: float) -> None:
        # No delivery callbacks: a record that fails makes the transaction abortable, which its end reports; and after a
        # fatal error the client library would call them with an exception pending.
        produce = producer.produce
        for record in records:
            while True:
                try:
                    if record.headers is not None:
                        produce(record.topic, record.value, record.key, record.partition, headers=record.headers)
                    else:
                        produce(record.topic, record.value, record.key, record.partition)
                    break
                except BufferError:
                    producer.poll(0.05)
        left = producer.flush(timeout_s)
        if left:
            raise _NotDelivered(f"{left} records were not delivered in {timeout_s:g} s")

    def _end(self, place: _Place, producer: Producer) -> Outcome:
        began = time.monotonic()
        try:
            producer.commit_transaction(END_LIMIT_S)
        except (KafkaException, SystemError) as raised:
            exception = _client_error(raised)
            self._raise_if_fenced(place, exception)
            error = error_of(exception)
            if classify(error) is AbortAndOffer:
                return self._abort(place, producer, describe(error), refused=False, accepted=True)
            place.throw_away()
            return Unclear(f"the end of the transaction: {describe(error)}", accepted=True)
        place.look()
        if place.disconnected or time.monotonic() - began > SLOW_END_S:
            place.throw_away()  # a copy of its end may still be on its way
        return Committed()

    def _abort(self, place: _Place, producer: Producer, reason: str, *, refused: bool, accepted: bool) -> Outcome:
        began = time.monotonic()
        try:
            producer.abort_transaction(END_LIMIT_S)
        except (KafkaException, SystemError) as raised:
            exception = _client_error(raised)
            self._raise_if_fenced(place, exception)
            place.throw_away()
            return Unclear(f"{reason}; then the abort: {describe(error_of(exception))}", accepted)
        place.look()
        if place.disconnected or time.monotonic() - began > SLOW_END_S:
            place.throw_away()
            return Unclear(f"{reason}; then a slow abort", accepted)
        return Aborted(reason, refused)

    def _raise_if_fenced(self, place: _Place, exception: KafkaException) -> None:
        error = error_of(exception)
        if classify(error) is StepDown:
            place.throw_away()
            raise StepDown(f"the producer {place.transactional_id} was fenced: {describe(error)}") from exception


def _client_error(raised: KafkaException | SystemError) -> KafkaException:
    """The client's own error. Python wraps it where a callback was to be run while it was pending."""
    if isinstance(raised, KafkaException):
        return raised
    inner = raised.__cause__ or raised.__context__
    if isinstance(inner, KafkaException):
        return inner
    raise raised


class _NotDelivered(Exception):
    pass


def end_producers(settings: Settings, ids: Sequence[str], timeout_s: float) -> None:
    """End the producers with these transactional IDs, all at once; what they had open is aborted when this returns.

    Raises RetryLater when it cannot be said of one of them.
    """

    def end(transactional_id: str) -> KafkaProblem | None:
        producer = make_producer(settings, transactional_id, lambda _error: None)
        try:
            initialise(producer, timeout_s)
        except StepDown:
            return None  # ended at the same moment by another: the same to us
        except KafkaProblem as problem:
            return problem
        return None

    with ThreadPoolExecutor(max(1, len(ids))) as pool:
        problems = [problem for problem in pool.map(end, ids) if problem is not None]
    if problems:
        first = problems[0]
        raise first if isinstance(first, Die) else RetryLater(str(first))

"""Bounded reads: everything in a topic up to where it ended when the read began.

The end is a position, not a number of records: compaction leaves gaps, a partition may be empty above offset 0, and
what ends a transaction takes an offset but is never handed out. So a partition is done when a record at or beyond the
last offset came, or when the client says that it stands at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from fencepost.core.ids import partition_of
from fencepost.kafka.config import client_config
from fencepost.kafka.errors import NotInitialised, Unavailable, describe, error_of, problem_of
from fencepost.kafka.patience import patiently
from fencepost.settings import Settings

EARLIEST = -2
_BATCH = 2000
# The client's own words while its metadata lacks the partition or its leader: right after a broker thawed.
_NOT_IN_CACHE = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
_AHEAD_KIB = 8192  # read ahead of the caller; 64 MiB by default, however small the records
_NO_GROUP = "fencepost-scan"  # the library wants a name; nothing is committed and no group is joined

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it lies in Kafka. `at_ms` is the time it was appended."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    at_ms: int

    @property
    def key_text(self) -> str:
        """The key for people: what is not UTF-8 shows as replacement signs."""
        return (self.key or b"").decode("utf-8", "replace")


def record_of(message: Message) -> Record:
    """The library's message as a value that holds on to nothing."""
    headers: Any = message.headers() or ()
    return Record(
        topic=message.topic() or "",
        partition=_number(message.partition()),
        offset=_number(message.offset()),
        key=message.key(),
        value=message.value(),
        headers=tuple((name, value) for name, value in headers),
        at_ms=message.timestamp()[1],
    )


def scan(
    settings: Settings,
    topic: str,
    partitions: Iterable[int] | None = None,
    from_: int | Mapping[int, int] = EARLIEST,
    isolation: str = "read_committed",
    stall_s: float = 15.0,
) -> Iterator[Record]:
    """All records of the partitions (None: all) up to their ends as of the call.

    The ends are taken when the first record is asked for; under read_committed the end is where the oldest open
    transaction begins. from_: an offset for all partitions or one for each; EARLIEST by default. Records of one
    partition come in order. Raises Unavailable if Kafka gives nothing for `stall_s`, NotInitialised for a topic that is
    not there.
    """
    consumer = open_reader(settings, "scan", isolation)
    try:
        numbers = partition_numbers(consumer, topic, stall_s) if partitions is None else list(partitions)
        todo = _bounds(consumer, topic, numbers, from_, stall_s)
        consumer.assign([TopicPartition(topic, number, start) for number, (start, _) in todo.items()])
        yield from _drain(consumer, {number: end for number, (_, end) in todo.items()}, stall_s)
    except KafkaException as error:
        raise problem_of(error, f"reading {topic}") from error
    finally:
        consumer.close()


def scan_key(settings: Settings, topic: str, key: str, partitions: int, **options: Any) -> Iterator[Record]:
    """The records of one key, from the partition that owns it. Options as for `scan`."""
    wanted = key.encode()
    for record in scan(settings, topic, [partition_of(wanted, partitions)], **options):
        if record.key == wanted:
            yield record


def open_reader(settings: Settings, role: str, isolation: str = "read_committed", **extra: Any) -> Consumer:
    """A consumer that is assigned by hand and says when it stands at the end of a partition."""
    return Consumer(
        client_config(
            settings,
            role,
            **{
                "group.id": _NO_GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",  # retention may pass the start while the read begins
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "fetch.wait.max.ms": 50,
                "queued.max.messages.kbytes": _AHEAD_KIB,
                **extra,
            },
        )
    )


def partition_numbers(consumer: Consumer, topic: str, timeout_s: float) -> list[int]:
    """The topic's partitions. Raises NotInitialised, Unavailable."""

    def ask() -> list[int]:
        try:
            described = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
        except KafkaException as error:
            raise Unavailable(f"no answer from Kafka: {describe(error_of(error))}") from error
        if described.error is None:
            return sorted(described.partitions)
        if described.error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            raise NotInitialised(f"topic {topic} does not exist: run `fencepost init`")
        raise problem_of(KafkaException(described.error), f"looking up {topic}")

    return patiently(ask, timeout_s)


def _bounds(
    consumer: Consumer, topic: str, numbers: Sequence[int], from_: int | Mapping[int, int], timeout_s: float
) -> dict[int, tuple[int, int]]:
    """Where to start and end, for partitions in which anything is to be read."""
    todo = {}
    for number in numbers:
        low, high = watermarks(consumer, topic, number, timeout_s)
        wanted = from_ if isinstance(from_, int) else from_.get(number, EARLIEST)
        start = max(low, wanted)
        if start < high:
            todo[number] = (start, high)
    return todo


def watermarks(consumer: Consumer, topic: str, number: int, timeout_s: float) -> tuple[int, int]:
    """The first offset, and the one after the last that the consumer's isolation level can see. Raises KafkaProblem."""

    def ask() -> tuple[int, int]:
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=timeout_s, cached=False)
        except KafkaException as error:
            doing = f"asking for the end of {topic}-{number}"
            if error_of(error).code() in _NOT_IN_CACHE:
                partition_numbers(
                    consumer, topic, timeout_s
                )  # what the client has cached would stay as it is for minutes
                raise Unavailable(f"{doing}: {describe(error_of(error))}") from error
            raise problem_of(error, doing) from error

    return patiently(ask, timeout_s)


def take(consumer: Consumer, limit: int, timeout_s: float) -> list[Message]:
    """What is there; waits for the first message only (`consume` alone would wait for all of `limit`)."""
    first = consumer.poll(timeout_s)
    return [] if first is None else [first, *consumer.consume(limit - 1, timeout=0)]


def _drain(consumer: Consumer, ends: dict[int, int], stall_s: float) -> Iterator[Record]:
    heard_s = time.monotonic()
    while ends:
        messages = take(consumer, _BATCH, 0.5)
        if messages:
            heard_s = time.monotonic()
        elif time.monotonic() - heard_s > stall_s:
            raise Unavailable(f"Kafka gave nothing for {stall_s:g} s; still missing: partitions {sorted(ends)}")
        for message in messages:
            yield from _take(message, ends, consumer)


def _take(message: Message, ends: dict[int, int], consumer: Consumer) -> Iterator[Record]:
    partition, offset = _number(message.partition()), _number(message.offset())
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        if error.retriable() or error.code() == KafkaError._ALL_BROKERS_DOWN:
            return
        raise KafkaException(error)
    if partition not in ends:
        return
    if error is None and offset < ends[partition]:
        yield record_of(message)
    if offset >= ends[partition] - (error is None):
        del ends[partition]
        consumer.pause([TopicPartition(message.topic() or "", partition)])


def _number(value: int | None) -> int:
    return -1 if value is None else value

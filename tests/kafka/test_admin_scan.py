"""Bounded reads and following: the end is a position (cases T01, T03)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.core.ids import partition_of
from fencepost.kafka.errors import NotInitialised, Unavailable
from fencepost.kafka.scan import open_reader, scan, scan_key, watermarks
from fencepost.kafka.tail import Tail
from fencepost.settings import Settings

if TYPE_CHECKING:
    from fencepost.broker import Cluster


@pytest.fixture
def settings(kafka: Cluster) -> Settings:
    return Settings(bootstrap=kafka.bootstrap)


@pytest.fixture
def topic(settings: Settings) -> Iterator[str]:
    name = f"scan-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result()
    yield name
    admin.delete_topics([name])[name].result()


def put(settings: Settings, topic: str, partition: int, values: list[bytes | None], **config: str) -> Producer:
    """Plain records; with a transactional ID they are left in an open transaction."""
    producer = Producer({"bootstrap.servers": settings.bootstrap, **config})
    if config:
        producer.init_transactions(10)
        producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value, f"k{number}", partition)
    assert producer.flush(10) == 0
    return producer


def marked(settings: Settings, topic: str, end: int) -> None:
    """Wait until committed readers see the end: the markers are written after the client was told."""
    consumer = open_reader(settings, "test")
    until_s = time.monotonic() + 20
    while watermarks(consumer, topic, 0, 10.0)[1] < end:
        assert time.monotonic() < until_s, "the transaction's marker does not appear"
    consumer.close()


def values(settings: Settings, topic: str, **options: object) -> list[bytes | None]:
    return [record.value for record in scan(settings, topic, stall_s=10.0, **options)]  # type: ignore[arg-type]


def test_a_topic_without_records_is_read_to_its_end(settings: Settings, topic: str) -> None:
    assert values(settings, topic) == []


def test_all_records_come_in_order_per_partition(settings: Settings, topic: str) -> None:
    put(settings, topic, 0, [b"a", b"b"])
    put(settings, topic, 2, [b"c", None])
    got = [(record.partition, record.offset, record.value) for record in scan(settings, topic)]
    assert sorted(got, key=lambda item: item[:2]) == [(0, 0, b"a"), (0, 1, b"b"), (2, 0, b"c"), (2, 1, None)]


def test_a_read_can_start_at_an_offset_and_be_of_one_partition(settings: Settings, topic: str) -> None:
    put(settings, topic, 0, [b"a", b"b", b"c"])
    put(settings, topic, 1, [b"d"])
    assert values(settings, topic, partitions=[0], from_=2) == [b"c"]
    assert values(settings, topic, partitions=[0, 1], from_={0: 1, 1: 5}) == [b"b", b"c"]


def test_a_partition_that_was_emptied_above_offset_zero_ends_at_once(settings: Settings, topic: str) -> None:
    put(settings, topic, 1, [b"a", b"b"])
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 1, 2)]).values():
        future.result()
    assert values(settings, topic) == []


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_partition_that_ends_in_a_transaction_marker_is_read_to_its_end(
    settings: Settings, topic: str, end: str
) -> None:
    put(settings, topic, 0, [b"before"])
    producer = put(settings, topic, 0, [b"within"], **{"transactional.id": topic})
    producer.commit_transaction(10) if end == "commit" else producer.abort_transaction(10)
    marked(settings, topic, 3)
    assert values(settings, topic) == ([b"before", b"within"] if end == "commit" else [b"before"])


def test_an_open_transaction_bounds_what_is_committed_and_holds_nobody_up(settings: Settings, topic: str) -> None:
    put(settings, topic, 0, [b"before"])
    producer = put(settings, topic, 0, [b"open"], **{"transactional.id": topic})
    put(settings, topic, 0, [b"behind"])
    assert values(settings, topic) == [b"before"]
    assert values(settings, topic, isolation="read_uncommitted") == [b"before", b"open", b"behind"]
    producer.abort_transaction(10)
    marked(settings, topic, 4)
    assert values(settings, topic) == [b"before", b"behind"]


def test_records_written_after_the_read_began_do_not_belong_to_it(settings: Settings, topic: str) -> None:
    put(settings, topic, 0, [b"a", b"b"])
    records = scan(settings, topic)
    first = next(records)
    put(settings, topic, 0, [b"later"])
    assert [first.value, *(record.value for record in records)] == [b"a", b"b"]


def test_one_key_is_read_from_the_partition_that_owns_it(settings: Settings, topic: str) -> None:
    producer = Producer({"bootstrap.servers": settings.bootstrap, "partitioner": "murmur2_random"})
    for number in range(20):
        producer.produce(topic, str(number), f"задача-{number % 4}")
    assert producer.flush(10) == 0
    got = list(scan_key(settings, topic, "задача-1", 3))
    assert [record.value for record in got] == [b"1", b"5", b"9", b"13", b"17"]
    assert {record.partition for record in got} == {partition_of("задача-1".encode(), 3)}


@pytest.mark.slow
def test_a_compacted_partition_with_gaps_and_tombstones_is_read_to_its_end(settings: Settings, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    name = f"{topic}-compacted"
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    }
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result()
    put(settings, name, 0, [b"a", b"b", b"c", b"kept"])  # the last one is never written again: it stays, before a gap
    for _ in range(20):
        put(settings, name, 0, [b"a", b"b", b"c"])
    put(settings, name, 0, [b"a", None, None])
    until_s = time.monotonic() + 90
    # Appending rolls the segment that is to be compacted; the broker's cleaner looks every few seconds.
    while len(left := list(scan(settings, name))) > 12:
        assert time.monotonic() < until_s, "the broker does not compact"
        put(settings, name, 0, [b"a"])
        time.sleep(0.5)
    offsets = [record.offset for record in left]
    assert offsets != list(range(offsets[0], offsets[0] + len(offsets)))  # gaps
    newest = {record.key: record.value for record in left}
    assert newest[b"k0"] == b"a"
    assert newest.get(b"k1") is None
    admin.delete_topics([name])[name].result()


def test_a_topic_that_is_not_there_is_named(settings: Settings) -> None:
    with pytest.raises(NotInitialised, match="nowhere"):
        list(scan(settings, "nowhere"))


def test_without_kafka_a_read_gives_up() -> None:
    with pytest.raises(Unavailable):
        list(scan(Settings(bootstrap="127.0.0.1:1"), "t", stall_s=1.0))


def test_following_starts_at_the_end_as_of_the_call(settings: Settings, topic: str) -> None:
    put(settings, topic, 0, [b"old"])
    with Tail(settings, topic) as tail:
        put(settings, topic, 0, [b"new"])
        records = tail.follow()
        assert next(records).value == b"new"


def test_following_can_start_at_a_time(settings: Settings, topic: str) -> None:
    put(settings, topic, 0, [b"a", b"b"])
    (first, _) = scan(settings, topic)
    with Tail(settings, topic, [0], since_ms=first.at_ms) as tail:
        records = tail.follow()
        assert [next(records).value, next(records).value] == [b"a", b"b"]


def test_a_partition_whose_leader_the_client_does_not_know_yet_is_asked_for_again() -> None:
    class Consumer:
        """What the client says right after a broker that stood still answers again: until it asks anew, the same."""

        knows = False

        def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
            if not self.knows:
                raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
            return 3, 7

        def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
            self.knows = timeout > 0
            return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    consumer = Consumer()
    assert watermarks(consumer, "t", 0, timeout_s=5.0) == (3, 7)  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        watermarks(Consumer(), "t", 0, timeout_s=0.0)  # type: ignore[arg-type]

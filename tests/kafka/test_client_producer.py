"""The plain producer: written, not written, or unknown (case E03)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.core.ids import partition_of
from fencepost.kafka.errors import DeliveryFailed, DeliveryUnknown
from fencepost.kafka.producer import Outgoing, Producer
from fencepost.kafka.scan import scan
from fencepost.settings import Settings

if TYPE_CHECKING:
    from fencepost.broker import Cluster


@pytest.fixture
def settings(kafka: Cluster) -> Settings:
    return Settings(bootstrap=kafka.bootstrap)


@pytest.fixture
def topic(settings: Settings) -> Iterator[str]:
    name = f"send-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    admin.create_topics([NewTopic(name, 12, 1, config={"max.message.bytes": "100000"})])[name].result()
    yield name
    admin.delete_topics([name])[name].result()


def test_a_record_lies_where_javas_partitioner_puts_its_key(settings: Settings, topic: str) -> None:
    keys = ["task-1", "task-2", "nightly-report", "billing", "задача-1"]
    with Producer(settings) as producer:
        sent = producer.send_all(Outgoing(topic, key, b"{}") for key in keys)
    assert [item.partition for item in sent] == [7, 6, 9, 9, 1]
    assert [item.partition for item in sent] == [partition_of(key.encode(), 12) for key in keys]


def test_headers_tombstones_and_a_named_partition_go_through(settings: Settings, topic: str) -> None:
    with Producer(settings) as producer:
        sent = producer.send(Outgoing(topic, "k", None, {"ce_id": "é"}, partition=3))
    (record,) = scan(settings, topic)
    assert (record.partition, record.offset, record.value) == (3, sent.offset, None)
    assert record.headers == (("ce_id", "é".encode()),)
    assert record.at_ms == sent.at_ms


def test_a_record_that_is_too_large_was_certainly_not_written(settings: Settings, topic: str) -> None:
    with Producer(settings) as producer, pytest.raises(DeliveryFailed, match="MSG_SIZE_TOO_LARGE"):
        producer.send(Outgoing(topic, "k", b"x" * 200_000))
    assert list(scan(settings, topic)) == []


def test_a_partition_that_is_not_there_is_a_failure(settings: Settings, topic: str) -> None:
    with Producer(settings) as producer, pytest.raises(DeliveryFailed, match="UNKNOWN_PARTITION"):
        producer.send(Outgoing(topic, "k", b"{}", partition=99))


@pytest.mark.slow
def test_a_record_without_an_answer_may_have_been_written(tmp_path: Path) -> None:
    """The broker is frozen after the producer has connected: nobody can say what became of the record."""
    from fencepost.broker import Cluster

    with Cluster(tmp_path / "kafka") as cluster:
        settings = Settings(bootstrap=cluster.bootstrap)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
        with Producer(settings, timeout_s=4.0) as producer:
            producer.send(Outgoing("t", "k", b"1"))
            cluster.freeze(1)
            try:
                with pytest.raises(DeliveryUnknown, match="may have been written"):
                    producer.send(Outgoing("t", "k", b"2"))
            finally:
                cluster.thaw(1)

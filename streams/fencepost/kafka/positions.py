"""Where a consumer group begins to read, written down before it does: a crash before its first commit loses nothing."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from fencepost.kafka.errors import problem_of
from fencepost.kafka.patience import patiently
from fencepost.kafka.scan import open_reader, partition_numbers, watermarks
from fencepost.settings import Settings

Place = tuple[str, int]


def commit_start(
    settings: Settings, group: str, topics: Iterable[str], from_beginning: bool, timeout_s: float = 30.0
) -> dict[Place, int]:
    """Commit an offset for each partition that has none: the end of the log, or its beginning. Returns those.

    Raises NotInitialised for a topic that is not there, KafkaProblem.
    """
    consumer = open_reader(settings, "positions", **{"group.id": group})
    try:
        places = [
            TopicPartition(topic, number)
            for topic in topics
            for number in partition_numbers(consumer, topic, timeout_s)
        ]
        known = patiently(lambda: _committed(consumer, places, timeout_s), timeout_s)
        fresh = []
        for place in (place for place in known if place.offset < 0):
            low, high = watermarks(consumer, place.topic, place.partition, timeout_s)
            fresh.append(TopicPartition(place.topic, place.partition, low if from_beginning else high))
        if fresh:
            patiently(lambda: _commit(consumer, fresh), timeout_s)
        return {(place.topic, place.partition): place.offset for place in fresh}
    finally:
        consumer.close()


def committed_offsets(
    settings: Settings, group: str, topic: str, numbers: Iterable[int], timeout_s: float = 30.0
) -> dict[int, int]:
    """By partition: where the group stands; partitions without an offset are left out. Raises KafkaProblem."""
    consumer = open_reader(settings, "positions", **{"group.id": group})
    try:
        places = [TopicPartition(topic, number) for number in numbers]
        known = patiently(lambda: _committed(consumer, places, timeout_s), timeout_s) if places else []
        return {place.partition: place.offset for place in known if place.offset >= 0}
    finally:
        consumer.close()


def _committed(consumer: Consumer, places: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
    try:
        return consumer.committed(places, timeout=timeout_s)
    except KafkaException as error:
        raise problem_of(error, "asking for a group's offsets") from error


def _commit(consumer: Consumer, places: list[TopicPartition]) -> None:
    try:
        consumer.commit(offsets=places, asynchronous=False)
    except KafkaException as error:
        raise problem_of(error, "committing where a group begins") from error

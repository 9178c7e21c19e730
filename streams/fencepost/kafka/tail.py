"""Following a topic as it grows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from fencepost.kafka.errors import RetryLater, classify, problem_of
from fencepost.kafka.patience import patiently
from fencepost.kafka.scan import Record, open_reader, partition_numbers, record_of, take, watermarks
from fencepost.settings import Settings

_BATCH = 500


class Tail:
    """Committed records of a topic from a point on. Use as a context manager.

    since_ms: the first record appended at or after this time; None: what is appended from now on.
    partitions: None for all. Raises NotInitialised for a topic that is not there, Unavailable without Kafka.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        partitions: Iterable[int] | None = None,
        since_ms: int | None = None,
        timeout_s: float = 15.0,
    ) -> None:
        self._topic = topic
        self._consumer = open_reader(settings, "tail")
        try:
            numbers = partition_numbers(self._consumer, topic, timeout_s) if partitions is None else list(partitions)
            self._places = self._starts(numbers, since_ms, timeout_s)
            self._consumer.assign(self._places)
        except KafkaException as error:
            self._consumer.close()
            raise problem_of(error, f"reading {topic}") from error
        except BaseException:
            self._consumer.close()
            raise

    def starts(self) -> dict[int, int]:
        """By partition: the offset it began at."""
        return {place.partition: place.offset for place in self._places}

    def poll(self, timeout_s: float) -> list[Record]:
        """What came within the time, in order per partition; an empty list if nothing did."""
        records = []
        for message in take(self._consumer, _BATCH, timeout_s):
            error = message.error()
            if error is None:
                records.append(record_of(message))
            elif error.code() != KafkaError._PARTITION_EOF and classify(error) is not RetryLater:
                raise problem_of(KafkaException(error), f"following {self._topic}")
        return records

    def follow(self) -> Iterator[Record]:
        """All records, without an end."""
        while True:
            yield from self.poll(1.0)

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Tail:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _starts(self, numbers: list[int], since_ms: int | None, timeout_s: float) -> list[TopicPartition]:
        if since_ms is not None:
            asked = [TopicPartition(self._topic, number, since_ms) for number in numbers]
            found = patiently(lambda: self._offsets(asked, timeout_s), timeout_s)
            return [place if place.offset >= 0 else self._end(place.partition, timeout_s) for place in found]
        return [self._end(number, timeout_s) for number in numbers]

    def _end(self, number: int, timeout_s: float) -> TopicPartition:
        """The end as an offset: the symbolic one would be looked up later, and miss what came in between."""
        _, high = watermarks(self._consumer, self._topic, number, timeout_s)
        return TopicPartition(self._topic, number, high)

    def _offsets(self, asked: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        try:
            return self._consumer.offsets_for_times(asked, timeout=timeout_s)
        except KafkaException as error:
            raise problem_of(error, f"looking up a time in {self._topic}") from error


def tail(settings: Settings, topic: str, partitions: Iterable[int] | None = None, since_ms: int | None = None) -> Tail:
    """See :class:`Tail`."""
    return Tail(settings, topic, partitions, since_ms)

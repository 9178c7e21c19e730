"""The reader of a lane: assigned by hand, committed records only; it works inside a rebalance callback too."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Message  # what `take` gives, for those who may not import the client library

from fencepost.kafka.config import client_config
from fencepost.kafka.errors import Die, RetryLater, WrongNamespace, classify, describe, problem_of
from fencepost.settings import Settings

Place = tuple[str, int]
BEGINNING = -2
_BATCH = 4000


class Reader:
    """Reads places (topic, partition) from given offsets, tells where it has read to."""

    def __init__(self, settings: Settings, ordinal: int) -> None:
        self._config = client_config(
            settings,
            "reader",
            ordinal,
            **{
                "group.id": f"{settings.namespace}-reader",  # never joined, never committed
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
                "queued.min.messages": 20_000,
                "queued.max.messages.kbytes": 32_768,
            },
        )
        self._consumer = Consumer(self._config)
        self._begin: dict[Place, int] = {}  # where reading was asked to begin
        self._position: dict[Place, int] = {}  # the next offset that can come
        self._paused: set[Place] = set()
        self.down = False  # no broker reachable, as far as the last event said
        self.events = 0  # records and ends of logs that came: while it stands still, nothing is heard of any broker

    def meet(self, topics: Iterable[str], timeout_s: float) -> None:
        """Look these topics up once: the first assignment of one that the client has not met waits a second for that.

        Raises RetryLater, Die.
        """
        try:
            for topic in topics:
                self._consumer.list_topics(topic, timeout=timeout_s)
        except KafkaException as exception:
            raise problem_of(exception, "looking up topics") from exception

    def assign(self, places: Iterable[tuple[str, int, int]]) -> None:
        """Read these (topic, partition, offset) too, from there; a place already read is read again from there."""
        wanted = list(places)
        self.unassign([(topic, partition) for topic, partition, _ in wanted])
        for topic, partition, offset in wanted:
            self._begin[topic, partition] = offset
            self._position[topic, partition] = max(offset, 0)
        if wanted:
            self._consumer.incremental_assign([TopicPartition(*item) for item in wanted])

    def unassign(self, places: Iterable[Place]) -> None:
        """Read these no more; records of them that were fetched already do not come either."""
        known = [place for place in places if place in self._position]
        for place in known:
            del self._position[place], self._begin[place]
            self._paused.discard(place)
        if known:
            self._consumer.incremental_unassign([TopicPartition(*place) for place in known])

    def pause(self, places: Iterable[Place]) -> None:
        new = [place for place in places if place in self._position and place not in self._paused]
        if new:
            self._consumer.pause([TopicPartition(*place) for place in new])
            self._paused.update(new)

    def resume(self, places: Iterable[Place]) -> None:
        old = [place for place in places if place in self._paused]
        if old:
            self._consumer.resume([TopicPartition(*place) for place in old])
            self._paused.difference_update(old)

    def position(self, topic: str, partition: int) -> int:
        """The offset below which everything committed was handed out; control records are counted at the end."""
        return self._position.get((topic, partition), -1)

    def positions(self) -> dict[Place, int]:
        """Of every place that is read and not paused."""
        return {place: position for place, position in self._position.items() if place not in self._paused}

    def renew(self) -> None:
        """Go on from the same positions with a client made anew."""
        old, self._consumer = self._consumer, Consumer(self._config)
        places = []
        for place, position in self._position.items():
            begin = self._begin[place]
            places.append(TopicPartition(*place, begin if position == max(begin, 0) else position))
        if places:
            self._consumer.incremental_assign(places)
        if self._paused:
            self._consumer.pause([TopicPartition(*place) for place in self._paused])
        old.close()

    def take(self, timeout_s: float, limit: int = _BATCH) -> list[Message]:
        """Records that are there; waits for the first one only.

        Raises WrongNamespace where the log begins beyond the position (records lost to retention or a topic made
        again), Die where the client cannot go on.
        """
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        batch = [first, *self._consumer.consume(limit - 1, 0)]
        self.events += len(batch)
        self.down = False
        good = []
        for message in batch:
            error = message.error()
            place: Place = (message.topic(), message.partition())  # type: ignore[assignment]
            offset: int = message.offset()  # type: ignore[assignment]
            if error is None:
                if place in self._position:
                    self._position[place] = offset + 1
                    good.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                if place in self._position:
                    self._position[place] = max(self._position[place], offset)
            else:
                self._failed(message, error)
        return good

    def close(self) -> None:
        self._consumer.close()

    def _failed(self, message: Message, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise WrongNamespace(
                f"{message.topic()}-{message.partition()} no longer holds what was to be read next ({error.str()}): "
                "retention is shorter than the backlog, or the topic was made again; "
                "see docs/operations.md, 'A log that begins too late'"
            )
        if error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
            raise WrongNamespace(f"{message.topic()}-{message.partition()} is gone: {describe(error)}")
        problem = classify(error)
        if problem is RetryLater:
            self.down = True
            return
        raise Die(f"the reader of {message.topic()}-{message.partition()}: {describe(error)}")

"""A plain producer: what is sent was written, or was not, or nobody can say, and the caller is told which.

Idempotent, so that the client's own repeats write nothing twice; not transactional. Keys land where Java's murmur2 puts
them, which is where their owner looks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as Client

from fencepost.kafka.config import PARTITIONER, client_config
from fencepost.kafka.errors import DeliveryFailed, DeliveryUnknown, KafkaProblem, describe, error_of
from fencepost.settings import Settings

# The answer did not come, or the record was dropped with a request in flight: it may have been written.
_UNKNOWN = {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._PURGE_INFLIGHT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to send. `partition` None: the one of its key. Value None: a tombstone."""

    topic: str
    key: str | bytes | None
    value: bytes | None
    headers: Mapping[str, str | bytes | None] = field(default_factory=dict)
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a record lies, and when it was appended."""

    topic: str
    partition: int
    offset: int
    at_ms: int


class Producer:
    """Sends and waits for the answers. Use as a context manager, or call `close`. One thread at a time."""

    def __init__(self, settings: Settings, timeout_s: float = 30.0) -> None:
        """timeout_s: how long a record may wait for its answer, repeats of the client included."""
        self._timeout_s = timeout_s
        self._client = Client(
            client_config(
                settings,
                "producer",
                **{
                    **PARTITIONER,
                    "enable.idempotence": True,
                    "acks": "all",
                    "message.timeout.ms": int(timeout_s * 1000),
                    "message.max.bytes": 4 * 1024 * 1024,
                    "linger.ms": 0,
                },
            )
        )

    def send(self, record: Outgoing) -> Sent:
        """One record. Raises DeliveryFailed (certainly not written) or DeliveryUnknown."""
        return self.send_all([record])[0]

    def send_all(self, records: Iterable[Outgoing]) -> list[Sent]:
        """Many records, in order per partition; all answers are awaited. Raises the worst problem any of them had."""
        results = self.send_each(records)
        problems = [result for result in results if isinstance(result, KafkaProblem)]
        if problems:
            raise next((problem for problem in problems if isinstance(problem, DeliveryUnknown)), problems[0])
        return [result for result in results if isinstance(result, Sent)]

    def send_each(self, records: Iterable[Outgoing]) -> list[Sent | KafkaProblem]:
        """As `send_all`, but what became of each is told: DeliveryFailed or DeliveryUnknown in its place."""
        answers: list[_Answer] = []
        for record in records:
            answers.append(answer := _Answer())
            self._produce(record, answer)
        self._await(answers)
        return [answer.sent or answer.problem or DeliveryUnknown("no answer") for answer in answers]

    def close(self) -> None:
        """Gives up what was not answered; nothing is left after `send` and `send_all` returned."""
        self._client.purge()
        with suppress(KafkaException):  # a fatal error, which `send` has told of
            self._client.poll(0)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _produce(self, record: Outgoing, answer: _Answer) -> None:
        place: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        headers: Any = [(name, _raw(value)) for name, value in record.headers.items()]
        until_s = time.monotonic() + self._timeout_s
        while True:
            try:
                self._client.produce(
                    record.topic, record.value, record.key, on_delivery=answer.take, headers=headers, **place
                )
                return
            except BufferError:
                if time.monotonic() > until_s:
                    answer.problem = DeliveryFailed(f"{record.topic}: the client's queue stayed full")
                    return
                self._client.poll(0.05)
            except KafkaException as error:  # too large, or no such partition: refused before it was sent
                answer.problem = DeliveryFailed(f"{record.topic}: {describe(error_of(error))}")
                return

    def _await(self, answers: list[_Answer]) -> None:
        until_s = time.monotonic() + self._timeout_s + 5.0
        for answer in answers:
            while answer.open and time.monotonic() < until_s:
                try:
                    self._client.poll(0.1)
                except KafkaException as fatal:  # no answer will come any more
                    for each in answers:
                        each.lose(error_of(fatal))
            if answer.open:
                answer.problem = DeliveryUnknown(f"no answer within {self._timeout_s:g} s")


@dataclass(slots=True)
class _Answer:
    sent: Sent | None = None
    problem: KafkaProblem | None = None

    @property
    def open(self) -> bool:
        return self.sent is None and self.problem is None

    def lose(self, error: KafkaError) -> None:
        """The client cannot go on. Without the right to write at all it never sent anything."""
        if self.open:
            certain = error.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
            self.problem = (DeliveryFailed if certain else DeliveryUnknown)(describe(error))

    def take(self, error: KafkaError | None, message: Message) -> None:
        topic = message.topic() or ""
        if error is None:
            self.sent = Sent(topic, message.partition() or 0, message.offset() or 0, message.timestamp()[1])
        elif error.code() in _UNKNOWN:
            self.problem = DeliveryUnknown(f"{topic}: no answer from Kafka, the record may have been written: "
                                           f"{describe(error)}")  # fmt: skip
        else:
            self.problem = DeliveryFailed(f"{topic}: {describe(error)}")


def _raw(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value

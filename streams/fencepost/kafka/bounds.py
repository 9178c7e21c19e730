"""Where logs begin and end, asked on a connection of its own.

On a consumer's connection such a question waits behind the fetch that is under way, up to `fetch.wait.max.ms` each.
A client that gave no answer is not asked again: it may have forgotten its brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from fencepost.kafka.config import client_config
from fencepost.kafka.errors import error_of, problem_of
from fencepost.kafka.reader import Place
from fencepost.settings import Settings

ANY_ID = "*"


class Bounds:
    """Asks for many places at once."""

    def __init__(self, settings: Settings, ordinal: int) -> None:
        self._config = client_config(settings, "bounds", ordinal)
        self._client: AdminClient | None = None

    def ends(self, places: Iterable[Place], timeout_s: float, *, committed_only: bool = False) -> dict[Place, int]:
        """The offset after the last record of each; `committed_only`: before the first open transaction.

        Raises RetryLater, Die.
        """
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        return self._ask(places, OffsetSpec.latest(), timeout_s, level)  # type: ignore[no-untyped-call]

    def begins(self, places: Iterable[Place], timeout_s: float) -> dict[Place, int]:
        """The first offset that each still holds. Raises RetryLater, Die."""
        return self._ask(places, OffsetSpec.earliest(), timeout_s, IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]

    def ask_ends(self, places: Iterable[Place], timeout_s: float) -> Question:
        """`ends(…, committed_only=True)` without waiting for it."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return Question(self, self._request(places, latest, timeout_s, IsolationLevel.READ_COMMITTED), timeout_s)

    def made_again(self, topic_ids: Mapping[str, str], timeout_s: float) -> list[str]:
        """Those of the topics (IDs by name) that are gone or have another ID now. Raises RetryLater, Die."""
        if not topic_ids:
            return []
        changed = []
        futures = self._asked().describe_topics(TopicCollection(list(topic_ids)), request_timeout=timeout_s)
        for name, future in futures.items():
            try:
                topic_id = str(future.result(timeout_s + 1).topic_id)
                if topic_ids[name] not in (topic_id, ANY_ID):
                    changed.append(name)
            except KafkaException as exception:
                if error_of(exception).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise problem_of(exception, f"describing topic {name}") from exception
                changed.append(name)
        return sorted(changed)

    def missing(self, topics: Iterable[str], timeout_s: float) -> list[str]:
        """Those of the topics that do not exist. Raises RetryLater, Die."""
        return self.made_again(dict.fromkeys(topics, ANY_ID), timeout_s)

    def _ask(self, places: Iterable[Place], spec: Any, timeout_s: float, level: IsolationLevel) -> dict[Place, int]:
        return Question(self, self._request(places, spec, timeout_s, level), timeout_s).answer()

    def _request(
        self, places: Iterable[Place], spec: Any, timeout_s: float, level: IsolationLevel
    ) -> dict[TopicPartition, Any]:
        asked = {TopicPartition(*place): spec for place in places}
        if not asked:
            return {}
        found: dict[TopicPartition, Any] = self._asked().list_offsets(
            asked, isolation_level=level, request_timeout=timeout_s
        )
        return found

    def _asked(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(self._config)
        return self._client

    def forget(self) -> None:
        """No answer came: the next question is asked by a client made anew."""
        self._client = None


class Question:
    """Offsets that were asked for."""

    def __init__(self, bounds: Bounds, futures: dict[TopicPartition, Any], timeout_s: float) -> None:
        self._bounds, self._futures, self._timeout_s = bounds, futures, timeout_s

    @property
    def answered(self) -> bool:
        """Whether `answer` would not wait."""
        return all(future.done() for future in self._futures.values())

    def answer(self) -> dict[Place, int]:
        """By place. Raises RetryLater, Die."""
        found: dict[Place, int] = {}
        try:
            for place, future in self._futures.items():
                found[place.topic, place.partition] = int(future.result(self._timeout_s + 1).offset)
        except KafkaException as exception:
            self._bounds.forget()
            raise problem_of(exception, "asking where logs begin and end") from exception
        return found

"""Where logs begin and end, asked on a connection of its own.

On a consumer's connection such a question waits behind the fetch that is under way, up to `fetch.wait.max.ms` each.
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


class Bounds:
    """Asks for many places at once."""

    def __init__(self, settings: Settings, ordinal: int) -> None:
        self._client = AdminClient(client_config(settings, "bounds", ordinal))

    def ends(self, places: Iterable[Place], timeout_s: float, *, committed_only: bool = False) -> dict[Place, int]:
        """The offset after the last record of each; `committed_only`: before the first open transaction.

        Raises RetryLater, Die.
        """
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        return self._ask(places, OffsetSpec.latest(), timeout_s, level)  # type: ignore[no-untyped-call]

    def begins(self, places: Iterable[Place], timeout_s: float) -> dict[Place, int]:
        """The first offset that each still holds. Raises RetryLater, Die."""
        return self._ask(places, OffsetSpec.earliest(), timeout_s, IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]

    def made_again(self, topic_ids: Mapping[str, str], timeout_s: float) -> list[str]:
        """Those of the topics (IDs by name) that are gone or have another ID now. Raises RetryLater, Die."""
        if not topic_ids:
            return []
        changed = []
        futures = self._client.describe_topics(TopicCollection(list(topic_ids)), request_timeout=timeout_s)
        for name, future in futures.items():
            try:
                if str(future.result(timeout_s + 1).topic_id) != topic_ids[name]:
                    changed.append(name)
            except KafkaException as exception:
                if error_of(exception).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise problem_of(exception, f"describing topic {name}") from exception
                changed.append(name)
        return sorted(changed)

    def _ask(self, places: Iterable[Place], spec: Any, timeout_s: float, level: IsolationLevel) -> dict[Place, int]:
        asked = {TopicPartition(*place): spec for place in places}
        if not asked:
            return {}
        found: dict[Place, int] = {}
        try:
            futures = self._client.list_offsets(asked, isolation_level=level, request_timeout=timeout_s)
            for place, future in futures.items():
                found[place.topic, place.partition] = int(future.result(timeout_s + 1).offset)
        except KafkaException as exception:
            raise problem_of(exception, "asking where logs begin and end") from exception
        return found

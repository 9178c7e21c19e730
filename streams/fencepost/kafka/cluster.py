"""What an administrator asks of Kafka and tells it: brokers, topics, their settings, groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._topic import TopicDescription
from confluent_kafka.cimpl import NewTopic

from fencepost.kafka.config import client_config
from fencepost.kafka.errors import Die, KafkaProblem, RetryLater, Unavailable, describe, error_of, problem_of
from fencepost.kafka.patience import patiently
from fencepost.settings import Settings

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it is. `topic_id` changes when a topic is deleted and made again."""

    name: str
    partitions: int
    replication: int
    topic_id: str


class Admin:
    """Administrative calls. Each raises Unavailable without Kafka, or a KafkaProblem that says what was refused."""

    def __init__(self, settings: Settings, timeout_s: float = 10.0) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._client = AdminClient(client_config(settings, "admin"))

    def broker_ids(self) -> list[int]:
        described = self._ask(lambda: self._client.describe_cluster(**self._limit), "describing the cluster")
        return sorted(node.id for node in described.nodes)

    def topics(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        """Those of the topics that exist."""
        found = {}
        for name in names:
            try:
                described = self._ask(partial(self._describe, name), f"describing topic {name}")
            except NoSuchTopic:
                continue
            replication = min((len(part.replicas) for part in described.partitions), default=0)
            found[name] = TopicFacts(name, len(described.partitions), replication, str(described.topic_id))
        return found

    def create(self, topic: str, partitions: int, replication: int, config: Mapping[str, str]) -> bool:
        """False if it was there already."""
        new = NewTopic(topic, partitions, replication, config=dict(config))
        limit = {"operation_timeout": self._timeout_s, **self._limit}
        try:
            self._ask(lambda: self._client.create_topics([new], **limit)[topic], f"creating topic {topic}")
        except TopicExists:
            return False
        return True

    def await_topics(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        """The topics' facts once all are there: a broker may answer before it has heard of a new topic."""
        wanted = set(names)
        until_s = time.monotonic() + self._timeout_s
        while wanted - (found := self.topics(wanted)).keys():
            if time.monotonic() > until_s:
                raise Unavailable(f"topics do not appear: {', '.join(sorted(wanted - found.keys()))}")
            time.sleep(0.1)
        return found

    def topic_config(self, topic: str) -> dict[str, str]:
        return self._config(ConfigResource(ResourceType.TOPIC, topic))

    def broker_config(self, broker_id: int) -> dict[str, str]:
        return self._config(ConfigResource(ResourceType.BROKER, str(broker_id)))

    def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        self._set(ResourceType.TOPIC, topic, config)

    def set_group_config(self, group: str, config: Mapping[str, str]) -> None:
        self._set(ResourceType.GROUP, group, config)

    def group_members(self, group: str) -> int:
        """How many members the consumer group has; 0 if there is none of that name."""
        try:
            described = self._ask(
                lambda: self._client.describe_consumer_groups([group], **self._limit)[group],
                f"describing group {group}",
            )
        except NoSuchGroup:
            return 0
        return len(described.members)

    @property
    def _limit(self) -> dict[str, Any]:
        return {"request_timeout": self._timeout_s}

    def _describe(self, topic: str) -> Future[TopicDescription]:
        return self._client.describe_topics(TopicCollection([topic]), **self._limit)[topic]

    def _config(self, resource: ConfigResource) -> dict[str, str]:
        entries = self._ask(
            lambda: self._client.describe_configs([resource], **self._limit)[resource],
            f"reading the settings of {resource.name}",
        )
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def _set(self, kind: ResourceType, name: str, config: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        self._ask(
            lambda: self._client.incremental_alter_configs([resource], **self._limit)[resource],
            f"changing the settings of {name}",
        )

    def _ask(self, call: Callable[[], Future[_T]], doing: str) -> _T:
        def once() -> _T:
            try:
                return call().result()
            except KafkaException as error:
                raise self._problem(error, doing) from error

        return patiently(once, self._timeout_s)

    def _problem(self, error: KafkaException, doing: str) -> KafkaProblem:
        inner = error_of(error)
        kind = _KINDS.get(inner.code())
        if kind is not None:
            return kind(f"{doing}: {describe(inner)}")
        problem = problem_of(error, doing)
        if isinstance(problem, RetryLater):
            return Unavailable(f"no answer from Kafka at {self._settings.bootstrap} ({problem})")
        return problem


class NoSuchTopic(KafkaProblem):
    """The topic does not exist."""


class TopicExists(KafkaProblem):
    """There is a topic of that name already."""


class NoSuchGroup(KafkaProblem):
    """There is no consumer group of that name."""


class Refused(Die):
    """The broker does not allow it: a setting outside its bounds, or a right that is missing."""


_KINDS: Mapping[int, type[KafkaProblem]] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: NoSuchTopic,
    KafkaError._UNKNOWN_TOPIC: NoSuchTopic,
    KafkaError.TOPIC_ALREADY_EXISTS: TopicExists,
    KafkaError.GROUP_ID_NOT_FOUND: NoSuchGroup,
    **dict.fromkeys(
        (
            KafkaError.INVALID_CONFIG,
            KafkaError.INVALID_REQUEST,
            KafkaError.POLICY_VIOLATION,
            KafkaError.UNSUPPORTED_VERSION,
            KafkaError._UNSUPPORTED_FEATURE,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.INVALID_REPLICATION_FACTOR,
            KafkaError.INVALID_PARTITIONS,
        ),
        Refused,
    ),
}

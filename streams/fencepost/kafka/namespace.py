"""The namespace's own record: what `fencepost init` decided, so that every worker and client agrees.

It lies under the key ``namespace`` on partition 0 of the owners topic and is written last: a namespace without it is
not complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost.codec import BadRecord, dumps, loads
from fencepost.core.times import format_ms, parse_rfc3339
from fencepost.kafka.cluster import Admin, TopicFacts
from fencepost.kafka.errors import NotInitialised, WrongNamespace
from fencepost.kafka.scan import scan
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings

KEY = b"namespace"
PARTITION = 0
VERSION = 1


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """What all members of a namespace must agree on. `topic_ids` by topic name, to notice a topic that was made again.

    `session_timeout_s`: what the group's members may ask for; longer than wanted where the broker's minimum is higher.
    """

    partitions: int
    group_protocol: str  # "classic" or "consumer": a group has one
    session_timeout_s: float
    created_ms: int
    topic_ids: Mapping[str, str] = field(default_factory=dict, hash=False)


def encode_namespace(info: NamespaceInfo) -> bytes:
    return dumps(
        {
            "v": VERSION,
            "partitions": info.partitions,
            "group_protocol": info.group_protocol,
            "session_timeout_s": info.session_timeout_s,
            "created": format_ms(info.created_ms),
            "topic_ids": dict(info.topic_ids),
        }
    )


def decode_namespace(value: bytes) -> NamespaceInfo:
    """Raises BadRecord where a field is missing or the version is not known."""
    body: Any = loads(value)
    if not isinstance(body, dict) or body.get("v") != VERSION:
        raise BadRecord(f"a namespace record of an unknown version; known: {VERSION}", "v")
    try:
        return NamespaceInfo(
            partitions=int(body["partitions"]),
            group_protocol=str(body["group_protocol"]),
            session_timeout_s=float(body["session_timeout_s"]),
            created_ms=parse_rfc3339(body["created"]),
            topic_ids=dict(body["topic_ids"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadRecord(f"not a namespace record: {error!r}", "namespace") from error


def read_namespace(settings: Settings) -> NamespaceInfo | None:
    """The record, or None where the owners topic has none. Raises NotInitialised without that topic, BadRecord."""
    found = None
    for record in scan(settings, Topics(settings.namespace).owners, [PARTITION]):
        if record.key == KEY:
            found = record.value
    return None if found is None else decode_namespace(found)


def load_namespace(settings: Settings, timeout_s: float = 10.0) -> NamespaceInfo:
    """What `init` decided, after a look at whether the topics are still those of then.

    Raises NotInitialised, WrongNamespace (another partition count, a topic made again), Unavailable.
    """
    topics = Topics(settings.namespace)
    found = Admin(settings, timeout_s).topics([spec.name for spec in topics.specs()])
    missing = [name for name in topics.needed if name not in found]
    command = "fencepost init" if topics.pool is None else f"fencepost init --pool {topics.pool}"
    hint = f"namespace {settings.namespace!r} at {settings.bootstrap} is not initialised: run `{command}`"
    if missing:
        raise NotInitialised(f"{hint} (missing: {', '.join(missing)})")
    info = read_namespace(settings)
    if info is None:
        raise NotInitialised(f"{hint} (its record is missing)")
    check_topics(info, found, topics)
    return info


def check_topics(info: NamespaceInfo, found: Mapping[str, TopicFacts], topics: Topics) -> None:
    """Raises WrongNamespace if a topic has another partition count than the record says, or was made again."""
    for spec in topics.specs():
        facts = found.get(spec.name)
        if facts is not None and spec.per_task and facts.partitions != info.partitions:
            raise WrongNamespace(other_count(topics.namespace, f"topic {spec.name} has {facts.partitions}", info))
    again = [name for name in topics.guarded if name in found and found[name].topic_id != info.topic_ids.get(name)]
    if again:
        raise WrongNamespace(
            f"{', '.join(again)}: deleted and made again since `fencepost init`; what it held is lost, and epochs "
            "would start again at 1. Restore the topic, or accept the loss with `fencepost init --accept-new-topics`"
        )


def other_count(namespace: str, found: str, info: NamespaceInfo) -> str:
    """The refusal of another partition count, with the way out."""
    return (
        f"namespace {namespace!r} has {info.partitions} partitions, but {found}. The count cannot change: each task's "
        "owner and epochs hang on it. To migrate: `fencepost init` another namespace with the count wanted, "
        "`fencepost apply` the tasks there, send triggers to it, and stop the old workers once nothing runs or waits"
    )

"""`fencepost init`: the topics of a namespace, as the promise needs them; safe to repeat."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fencepost.kafka.cluster import Admin, Refused, TopicFacts
from fencepost.kafka.errors import KafkaProblem, NotInitialised, WrongNamespace
from fencepost.kafka.groups import GroupChoice, choose_group
from fencepost.kafka.namespace import (
    KEY,
    PARTITION,
    NamespaceInfo,
    check_topics,
    encode_namespace,
    load_namespace,
    other_count,
    read_namespace,
)
from fencepost.kafka.producer import Outgoing, Producer
from fencepost.kafka.topics import Topics, TopicSpec
from fencepost.settings import Settings

DEFAULT_PARTITIONS = 16
MAX_PARTITIONS = 10_000

# Without these the protocol does not hold, so they are put right; what else an operator changed is left alone.
_ESSENTIAL = ("cleanup.policy", "message.timestamp.type", "unclean.leader.election.enable")


class BadRequest(KafkaProblem):
    """A value given to `init` is not allowed; the message names it and what is."""


@dataclass(frozen=True, slots=True)
class Report:
    """What `init` found and did. `warnings`: what the promise assumes and this cluster does not give."""

    info: NamespaceInfo
    created: tuple[str, ...]
    existing: tuple[str, ...]
    changed: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def init(
    settings: Settings,
    partitions: int | None = None,
    replication: int | None = None,
    accept_new_topics: bool = False,
    timeout_s: float = 30.0,
) -> Report:
    """Make what is missing, check what is there, and write the namespace's record.

    partitions: None for what the namespace has, or 16 for a new one. replication: None for 3, or as many as there are
    brokers. accept_new_topics: go on although a topic that held state was deleted. Raises BadRequest, WrongNamespace,
    Unavailable, Refused.
    """
    _check_request(partitions, replication)
    admin = Admin(settings, timeout_s)
    topics = Topics(settings.namespace)
    brokers = Admin(settings, min(timeout_s, 10.0)).broker_ids()  # without Kafka: say so soon
    copies = min(3, len(brokers)) if replication is None else replication
    if copies > len(brokers):
        raise BadRequest(f"--replication is {copies}; allowed: 1 to {len(brokers)}, the number of brokers")
    found = admin.topics([spec.name for spec in topics.specs()])
    known = _known(settings, found, topics, accept_new_topics)
    if topics.pool is not None:
        partitions = _count_of_main(settings, topics, partitions)
    count = _count(settings, partitions, known, found, topics)
    created = _create(admin, topics, found, count, copies)
    found = admin.await_topics([spec.name for spec in topics.specs()])
    changed = _restore(admin, topics)
    group = _group(admin, settings, known, admin.broker_config(brokers[0]))
    info = NamespaceInfo(
        partitions=count,
        group_protocol=group.protocol,
        session_timeout_s=group.session_timeout_s,
        created_ms=known.created_ms if known is not None else time.time_ns() // 1_000_000,
        topic_ids={name: facts.topic_id for name, facts in sorted(found.items())},
    )
    if info != known or accept_new_topics:  # `known` has the new topics' IDs already then, the record has not
        _write(settings, topics, info)
    return Report(
        info=info,
        created=created,
        existing=tuple(name for name in found if name not in created),
        changed=changed,
        notes=group.notes,
        warnings=_warnings(admin, settings, topics, found, brokers),
    )


def _check_request(partitions: int | None, replication: int | None) -> None:
    if partitions is not None and not 1 <= partitions <= MAX_PARTITIONS:
        raise BadRequest(f"--partitions is {partitions}; allowed: 1 to {MAX_PARTITIONS}")
    if replication is not None and replication < 1:
        raise BadRequest(f"--replication is {replication}; allowed: 1 to the number of brokers")


def _count_of_main(settings: Settings, topics: Topics, wanted: int | None) -> int:
    """A pool has as many partitions as its namespace: records go from one to the other by their number."""
    count = load_namespace(replace(settings, namespace=topics.main, pool=None)).partitions
    if wanted is not None and wanted != count:
        raise BadRequest(f"--partitions is {wanted}; allowed for a pool: {count}, as many as {topics.main} has")
    return count


def _known(
    settings: Settings, found: Mapping[str, TopicFacts], topics: Topics, accept_new_topics: bool
) -> NamespaceInfo | None:
    """The record of an earlier `init`, checked against the topics."""
    if topics.owners not in found:
        # The owners topic is made first, so others without it mean that it was lost, with the record in it.
        if found and not accept_new_topics:
            raise WrongNamespace(_lost(topics.owners))
        return None
    try:
        known = read_namespace(settings)
    except NotInitialised:
        return None
    if known is None:
        return None
    missing = [name for name in topics.guarded if name not in found]
    if missing and not accept_new_topics:
        raise WrongNamespace(_lost(", ".join(missing)))
    if accept_new_topics:
        known = replace(known, topic_ids={name: facts.topic_id for name, facts in found.items()})
    check_topics(known, found, topics)
    return known


def _lost(names: str) -> str:
    return (
        f"{names}: missing although the namespace was initialised; what it held is lost, and epochs may start again "
        "at 1. Restore the topic, or accept the loss with `fencepost init --accept-new-topics`"
    )


def _count(
    settings: Settings,
    wanted: int | None,
    known: NamespaceInfo | None,
    found: Mapping[str, TopicFacts],
    topics: Topics,
) -> int:
    if known is not None:
        if wanted is not None and wanted != known.partitions:
            raise WrongNamespace(other_count(settings.namespace, f"{wanted} were asked for", known))
        return known.partitions
    # No record: an earlier `init` may have been cut short. Its count is what it had made.
    counts = {found[spec.name].partitions for spec in topics.specs() if spec.per_task and spec.name in found}
    if len(counts) > 1 or (wanted is not None and counts - {wanted}):
        raise WrongNamespace(
            f"namespace {settings.namespace!r}: topics with {', '.join(map(str, sorted(counts)))} partitions exist, "
            f"but no record of the namespace; allowed: --partitions {min(counts)}, or another namespace"
        )
    return counts.pop() if counts else wanted or DEFAULT_PARTITIONS


def _create(
    admin: Admin, topics: Topics, found: Mapping[str, TopicFacts], partitions: int, replication: int
) -> tuple[str, ...]:
    in_sync = {"min.insync.replicas": str(2 if replication >= 3 else 1)}
    return tuple(
        spec.name
        for spec in topics.specs()
        if spec.name not in found
        and admin.create(spec.name, partitions if spec.per_task else 1, replication, {**spec.config, **in_sync})
    )


def _restore(admin: Admin, topics: Topics) -> tuple[str, ...]:
    changed = []
    for spec in topics.specs():
        wrong = _wrong(spec, admin.topic_config(spec.name))
        if wrong:
            admin.set_topic_config(spec.name, {name: spec.config[name] for name in wrong})
            changed += [f"{spec.name}: {name} was {was}, now {spec.config[name]}" for name, was in wrong.items()]
    return tuple(changed)


def _wrong(spec: TopicSpec, config: Mapping[str, str]) -> dict[str, str]:
    return {name: config.get(name, "") for name in _ESSENTIAL if config.get(name) != spec.config[name]}


def _group(admin: Admin, settings: Settings, known: NamespaceInfo | None, broker_config: dict[str, str]) -> GroupChoice:
    """One group has one protocol: it stays while there are members, and unless another one is asked for by name."""
    if known is not None and admin.group_members(settings.group):
        if settings.group_protocol not in ("auto", known.group_protocol):
            raise WrongNamespace(
                f"group {settings.group} uses the {known.group_protocol} protocol and has members; "
                f"stop all workers, then run `fencepost init` with group_protocol = {settings.group_protocol!r} again"
            )
        note = "workers are running: the group was left as it is"
        return GroupChoice(known.group_protocol, known.session_timeout_s, (note,))
    return choose_group(admin, settings, broker_config)


def _write(settings: Settings, topics: Topics, info: NamespaceInfo) -> None:
    with Producer(settings) as producer:
        producer.send(Outgoing(topics.owners, KEY, encode_namespace(info), partition=PARTITION))


def _warnings(
    admin: Admin, settings: Settings, topics: Topics, found: Mapping[str, TopicFacts], brokers: list[int]
) -> tuple[str, ...]:
    """What the promise assumes: acknowledged records survive the loss of a broker."""
    warnings = []
    thin = sorted({facts.replication for facts in found.values() if facts.replication < 3})
    if thin:
        nodes = "one node" if len(brokers) == 1 else f"{len(brokers)} brokers"
        warnings.append(
            f"replication is {thin[0]} ({nodes}): fit for development; the promise needs 3, so that what Kafka "
            "acknowledged survives the loss of a broker"
        )
    in_sync = {name: int(admin.topic_config(name).get("min.insync.replicas", 1)) for name in found}
    weak = [name for name, value in in_sync.items() if value < 2 and found[name].replication >= 2]
    if weak:
        warnings.append(f"min.insync.replicas is 1 for {', '.join(weak)}; the promise needs 2")
    warnings += _broker_warnings(admin.broker_config(brokers[0]), settings, len(brokers))
    return tuple(warnings)


def _broker_warnings(config: Mapping[str, str], settings: Settings, brokers: int) -> list[str]:
    warnings = []
    if brokers >= 3:
        for name, needed in (
            ("offsets.topic.replication.factor", 3),
            ("transaction.state.log.replication.factor", 3),
            ("transaction.state.log.min.isr", 2),
        ):
            if int(config.get(name, needed)) < needed:
                warnings.append(f"broker setting {name} is {config[name]}; the promise needs {needed}")
    longest_s = int(config.get("transaction.max.timeout.ms", 900_000)) / 1000
    if longest_s < settings.transaction_timeout_s:
        warnings.append(
            f"broker setting transaction.max.timeout.ms allows {longest_s:g} s; transaction_timeout_s is "
            f"{settings.transaction_timeout_s:g}, so workers could not begin a transaction"
        )
    return warnings


__all__ = ["BadRequest", "NamespaceInfo", "Refused", "Report", "init", "load_namespace"]

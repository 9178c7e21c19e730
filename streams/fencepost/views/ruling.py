"""The process of `fencepost rules`: reads the rules' topics, sends what they trigger."""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import AsyncIterator, Sequence
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from fencepost.kafka.namespace import load_namespace
from fencepost.kafka.positions import commit_start
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.views.firing import Batch, Firing
from fencepost.views.intake import Handle, Intake
from fencepost.views.record import SourceRecord
from fencepost.views.rule import Declared, Rule
from fencepost.views.rulefile import BadRule, check_names
from fencepost.views.sending import Sending
from fencepost.views.serve import serve


def group_of(settings: Settings) -> str:
    """The consumer group of a namespace's rules."""
    return f"{settings.namespace}-rules"


def check_sources(rules: Sequence[Rule], topics: Topics) -> None:
    """Raises BadRule for topics that a rule would feed itself."""
    for rule in rules:
        if rule.topic in (topics.triggers, topics.control, topics.dead_letter, topics.state, topics.owners):
            raise BadRule(f"rule {rule.name!r}: topic {rule.topic} is written for it: it would go round in circles")
        if rule.topic == topics.runs and isinstance(rule.function, Declared) and not rule.function.match:
            raise BadRule(
                f"rule {rule.name!r}: match is missing: each run that it triggers makes records in {rule.topic}, which "
                'would trigger again; say which, such as match = { "value.kind" = "succeeded", key = "report" }'
            )


def run(settings: Settings, rules: Sequence[Rule], group: str, from_beginning: bool) -> int:
    """Until told to stop. Returns the exit code. Raises BadRule, NotInitialised, KafkaProblem at the start."""
    topics = Topics(settings.namespace)
    check_names(list(rules))
    check_sources(rules, topics)
    log = structlog.get_logger("fencepost.rules").bind(group=group)
    firing = Firing(rules, topics, load_namespace(settings).partitions, f"/fencepost/{settings.namespace}/rules")
    fresh = commit_start(settings, group, firing.sources, from_beginning)
    log.info("rules", rules=[rule.name for rule in rules], topics=firing.sources, new_partitions=len(fresh))
    with Ruling(settings, firing, log) as ruling:
        return serve(settings, lambda: Intake(settings, group, firing.sources, log), ruling, ruling.exposition, log)


class Ruling:
    """Sends what records trigger, and counts. Use as a context manager."""

    tick_s = 5.0

    def __init__(self, settings: Settings, firing: Firing, log: Any) -> None:
        self._firing, self._log = firing, log
        self._sending = Sending(settings, log)
        self._tally: Tally[str] = Tally()
        self._registry = CollectorRegistry()
        self._records = Counter("fencepost_rules_records", "Source records read.", ["topic"], registry=self._registry)
        self._triggers = Counter("fencepost_rules_triggers", "Triggers sent.", registry=self._registry)
        self._bad = Counter(
            "fencepost_rules_bad_records", "Records a rule could not use.", ["rule"], registry=self._registry
        )

    def handle(self) -> Handle:
        return self._handle

    async def _handle(self, records: list[SourceRecord]) -> AsyncIterator[list[SourceRecord]]:
        """One batch after the other: each is acknowledged by Kafka before its offsets count."""
        batches = self._firing.batches(records)
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            await asyncio.to_thread(self._sending.send, self._firing.outgoing(batch))
            self._count(batch)
            yield [fired.record for fired in batch.fired]

    def tick(self) -> None:
        """Nothing waits for time here."""

    def counts(self) -> dict[str, Any]:
        return {name: self._tally[name] for name in ("records", "triggers", "bad")}

    def exposition(self) -> tuple[bytes, str]:
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4

    def _count(self, batch: Batch) -> None:
        for fired in batch.fired:
            record = fired.record
            self._records.labels(record.topic).inc()
            for rule, error in fired.bad:
                self._bad.labels(rule).inc()
                self._log.warning(
                    "a record could not be used: it is among the dead letters",
                    rule=rule, topic=record.topic, partition=record.partition, offset=record.offset, why=str(error),
                )  # fmt: skip
        self._triggers.inc(batch.weight)
        self._tally["records"] += len(batch.fired)
        self._tally["triggers"] += batch.weight
        self._tally["bad"] += sum(len(fired.bad) for fired in batch.fired)

    def __enter__(self) -> Ruling:
        return self

    def __exit__(self, *_error: object) -> None:
        self._sending.close()

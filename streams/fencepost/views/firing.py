"""From source records to triggers: pure, so that what a record triggers can be told without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fencepost.codec import BadRecord
from fencepost.core.ids import partition_of
from fencepost.kafka.producer import Outgoing
from fencepost.kafka.topics import Topics
from fencepost.views.record import SourceRecord
from fencepost.views.rule import Encoded, Rule
from fencepost.wire.dead_letter import encode_dead_letter, refused
from fencepost.wire.headers import ce_headers

# A task remembers the IDs of its last 100 triggers. What is sent but not yet committed may be sent once more.
MOST_IN_FLIGHT = 90
MOST_LETTER_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Fired:
    """What one record came to. `bad`: by rule, why it could not be applied."""

    record: SourceRecord
    triggers: tuple[Encoded, ...]
    bad: tuple[tuple[str, BadRecord], ...] = ()


@dataclass(slots=True)
class Batch:
    """Records in order, and what they triggered: sent together, then their offsets are committed."""

    fired: list[Fired] = field(default_factory=list)

    @property
    def weight(self) -> int:
        """Triggers in it."""
        return sum(len(each.triggers) for each in self.fired)

    def offsets(self) -> dict[tuple[str, int], int]:
        """By topic and partition: the offset after the last record."""
        return {(each.record.topic, each.record.partition): each.record.offset + 1 for each in self.fired}


class Firing:
    """Applies rules, and makes the records that go out."""

    def __init__(self, rules: Iterable[Rule], topics: Topics, partitions: int, source: str) -> None:
        """partitions: of the namespace. source: who says so, in `ce_source` and in dead letters."""
        self._by_topic: dict[str, list[Rule]] = {}
        for rule in rules:
            self._by_topic.setdefault(rule.topic, []).append(rule)
        self._topics, self._partitions, self._source = topics, partitions, source

    @property
    def sources(self) -> list[str]:
        """The topics that rules read."""
        return sorted(self._by_topic)

    def fire(self, record: SourceRecord) -> Fired:
        """All rules of the topic. One that cannot be applied does not hold up the others."""
        triggers: list[Encoded] = []
        bad = []
        for rule in self._by_topic.get(record.topic, ()):
            try:
                triggers += rule.apply(record, self._topics.runs)
            except BadRecord as error:
                bad.append((rule.name, error))
        return Fired(record, tuple(triggers), tuple(bad))

    def batches(self, records: Iterable[SourceRecord]) -> Iterator[Batch]:
        """Small enough that what is sent twice after a crash is still known to every task."""
        batch = Batch()
        for record in records:
            fired = self.fire(record)
            if batch.fired and batch.weight + len(fired.triggers) > MOST_IN_FLIGHT:
                yield batch
                batch = Batch()
            batch.fired.append(fired)
        if batch.fired:
            yield batch

    def outgoing(self, batch: Batch) -> list[Outgoing]:
        """The triggers, then the dead letters."""
        triggers = [self._trigger(item) for fired in batch.fired for item in fired.triggers]
        return triggers + [self._letter(each.record, *bad) for each in batch.fired for bad in each.bad]

    def _trigger(self, item: Encoded) -> Outgoing:
        headers = {name: raw.decode() for name, raw in ce_headers("trigger", item.task, self._source, item.id)}
        place = partition_of(item.task.encode(), self._partitions)
        return Outgoing(self._topics.triggers, item.task, item.value, headers, place)

    def _letter(self, record: SourceRecord, rule: str, error: BadRecord) -> Outgoing:
        value, cut = record.raw_value, ""
        if value is not None and len(value) > MOST_LETTER_BYTES:
            value, cut = (
                value[:MOST_LETTER_BYTES],
                f" (of {len(value):,} bytes the first {MOST_LETTER_BYTES:,} are kept)",
            )
        letter = refused(
            BadRecord(f"rule {rule}: {error.reason}{cut}", error.field),
            record.topic,
            record.partition,
            record.offset,
            record.raw_key,
            value,
            record.raw_headers,
            record.timestamp,
        )
        place = partition_of(record.raw_key or b"", self._partitions)
        body = encode_dead_letter(letter, self._source, "-")
        return Outgoing(self._topics.dead_letter, record.raw_key, body, {}, place)

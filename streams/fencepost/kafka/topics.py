"""The topics of a namespace: their names, how they are kept, and how many partitions they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_MIB = 1024 * 1024

POOL_MARK = ".pool-"  # between a namespace and the name of a pool of it

# A record of the dead-letter topic holds the original bytes in base64, headers and all.
DEAD_LETTER_MAX_BYTES = 4 * _MIB


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic. `per_task`: it has the namespace's partition count; else it has one partition."""

    name: str
    per_task: bool
    config: Mapping[str, str]

    @property
    def compacted(self) -> bool:
        return self.config["cleanup.policy"] == "compact"


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of a namespace's topics."""

    namespace: str

    @property
    def main(self) -> str:
        """The namespace that tasks are defined in: this one, or the one that this pool belongs to."""
        return self.namespace.partition(POOL_MARK)[0]

    @property
    def pool(self) -> str | None:
        """The pool whose topics these are; None: those of a namespace itself."""
        return self.namespace.partition(POOL_MARK)[2] or None

    def of(self, pool: str) -> Topics:
        """Those of a pool of the namespace; an empty text: of the namespace itself."""
        return Topics(f"{self.main}{POOL_MARK}{pool}" if pool else self.main)

    def _name(self, kind: str) -> str:
        return f"{self.namespace}.{kind}"

    @property
    def tasks(self) -> str:
        return self._name("tasks")

    @property
    def triggers(self) -> str:
        return self._name("triggers")

    @property
    def control(self) -> str:
        return self._name("control")

    @property
    def state(self) -> str:
        return self._name("state")

    @property
    def owners(self) -> str:
        return self._name("owners")

    @property
    def runs(self) -> str:
        return self._name("runs")

    @property
    def dead_letter(self) -> str:
        return self._name("dead-letter")

    @property
    def workers(self) -> str:
        return self._name("workers")

    @property
    def logs(self) -> str:
        return self._name("logs")

    @property
    def alerts(self) -> str:
        return self._name("alerts")

    @property
    def guarded(self) -> tuple[str, ...]:
        """Topics whose loss would break the promise: made again, they must not be taken for the old ones."""
        return (self.tasks, self.triggers, self.control, self.state, self.owners)

    @property
    def needed(self) -> tuple[str, ...]:
        """Topics without which nothing works: all but the one that is derived from others."""
        return tuple(spec.name for spec in self.specs() if spec.name != self.alerts)

    def specs(self) -> tuple[TopicSpec, ...]:
        """All topics, the owners topic first: it holds the record that says the namespace is complete."""
        return (
            TopicSpec(self.owners, True, _compact(segment_bytes=8 * _MIB, segment_ms=10 * _MINUTE_MS)),
            TopicSpec(self.tasks, True, _compact(segment_bytes=64 * _MIB, segment_ms=_DAY_MS)),
            TopicSpec(self.state, True, _compact(segment_bytes=64 * _MIB, segment_ms=_HOUR_MS)),
            TopicSpec(self.triggers, True, _kept(days=7)),
            TopicSpec(self.control, True, _kept(days=7)),
            TopicSpec(self.runs, True, _kept(days=30)),
            TopicSpec(self.dead_letter, True, {**_kept(days=30), "max.message.bytes": str(DEAD_LETTER_MAX_BYTES)}),
            TopicSpec(self.workers, False, _compact(segment_bytes=8 * _MIB, segment_ms=_HOUR_MS)),
            TopicSpec(self.logs, True, _kept(days=7)),
            TopicSpec(self.alerts, True, _kept(days=7)),
        )


# Append time: a client's own time stamps would decide what retention deletes.
_COMMON: Mapping[str, str] = {"message.timestamp.type": "LogAppendTime", "unclean.leader.election.enable": "false"}


def _compact(segment_bytes: int, segment_ms: int) -> dict[str, str]:
    """Compaction leaves the newest segment alone, so segments are small and end by time too, or nothing would shrink.

    A tombstone lasts a day: longer than any restore, so that none sees a record without the tombstone that ended it.
    """
    return {
        **_COMMON,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.1",
        "segment.bytes": str(segment_bytes),
        "segment.ms": str(segment_ms),
        "delete.retention.ms": str(_DAY_MS),
    }


def _kept(days: int) -> dict[str, str]:
    return {
        **_COMMON,
        "cleanup.policy": "delete",
        "retention.ms": str(days * _DAY_MS),
        "segment.bytes": str(256 * _MIB),
    }

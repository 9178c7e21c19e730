"""Topics as lists: one partition each, nothing compacted, offsets from 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A record. The methods are those of the Kafka client's messages, which the code that restores tasks reads."""

    topic: str
    number: int
    raw_key: bytes | None
    raw_value: bytes | None
    raw_headers: Headers
    at_ms: int

    def key(self) -> bytes | None:
        return self.raw_key

    def value(self) -> bytes | None:
        return self.raw_value


class Log:
    """All topics of a world."""

    def __init__(self) -> None:
        self._topics: dict[str, list[Entry]] = {}

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        at_ms: int,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> Entry:
        entries = self._topics.setdefault(topic, [])
        entry = Entry(topic, len(entries), key, value, tuple(headers or ()), at_ms)
        entries.append(entry)
        return entry

    def read(self, topic: str, start: int = 0) -> list[Entry]:
        """Records from an offset on."""
        return self._topics.get(topic, [])[start:]

    def end(self, topic: str) -> int:
        return len(self._topics.get(topic, ()))

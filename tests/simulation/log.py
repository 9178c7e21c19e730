"""Partition logs: offsets, transactions, the last stable offset, and what committed readers see of them.

A transaction has one `Piece` on each partition that it writes to: it is open until its marker is written there, which
may be later on one partition than on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Place = tuple[str, int]
Headers = list[tuple[str, bytes | None]]


@dataclass(slots=True, eq=False)
class Piece:
    """What one transaction wrote to one partition. `committed` None: still open."""

    first: int
    committed: bool | None = None
    ended_ms: int = 0


@dataclass(slots=True, eq=False)
class Entry:
    """One record. `piece` None: written outside of any transaction. `key` None and `value` None: a marker."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    at_ms: int
    piece: Piece | None
    marker: bool = False
    compacted: bool = False


@dataclass(slots=True)
class _Written:
    """What a partition's leader knows of a producer."""

    epoch: int
    next_sequence: int


@dataclass(slots=True, eq=False)
class Log:
    """One partition. `watchers` are called when more of it became readable."""

    place: Place
    entries: list[Entry] = field(default_factory=list)
    open: dict[int, Piece] = field(default_factory=dict)  # by producer
    producers: dict[int, _Written] = field(default_factory=dict)
    watchers: list[Callable[[], None]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def stable(self) -> int:
        """The last stable offset: committed readers see what is below."""
        if not self.open:
            return len(self.entries)
        return min(piece.first for piece in self.open.values())

    def append(
        self, key: bytes | None, value: bytes | None, headers: Headers | None, at_ms: int, producer: int | None = None
    ) -> Entry:
        piece = None
        if producer is not None:
            piece = self.open.get(producer)
            if piece is None:
                piece = self.open[producer] = Piece(len(self.entries))
        entry = Entry(len(self.entries), key, value, headers, at_ms, piece)
        self.entries.append(entry)
        if piece is None:
            self._tell()
        return entry

    def mark(self, producer: int, epoch: int, committed: bool, at_ms: int) -> None:
        """The end of the producer's transaction here."""
        known = self.producers.get(producer)
        if known is None or epoch > known.epoch:
            self.producers[producer] = _Written(epoch, 0)
        piece = self.open.pop(producer, None)
        if piece is None:
            return
        piece.committed, piece.ended_ms = committed, at_ms
        self.entries.append(Entry(len(self.entries), None, None, None, at_ms, None, marker=True))
        self._tell()

    def admit(self, producer: int, epoch: int, sequence: int) -> str | None:
        """What the leader says to a producer's batch: None (append it), "duplicate", or the name of an error."""
        known = self.producers.get(producer)
        if known is None or epoch > known.epoch:
            if sequence != 0:
                return "OUT_OF_ORDER_SEQUENCE_NUMBER"
            self.producers[producer] = _Written(epoch, 0)
            return None
        if epoch < known.epoch:
            return "INVALID_PRODUCER_EPOCH"
        if sequence < known.next_sequence:
            return "duplicate"
        return None if sequence == known.next_sequence else "OUT_OF_ORDER_SEQUENCE_NUMBER"

    def advance_sequence(self, producer: int, count: int) -> None:
        self.producers[producer].next_sequence += count

    def readable(self, position: int) -> Iterator[Entry]:
        """Committed records from `position` up to the last stable offset."""
        for entry in self.entries[position : self.stable]:
            if not entry.marker and not entry.compacted and (entry.piece is None or entry.piece.committed):
                yield entry

    def compact(self) -> None:
        """Leave the newest committed record of each key. Tombstones stay: they last longer than any restore."""
        newest: dict[bytes | None, Entry] = {}
        for entry in self.readable(0):
            older = newest.get(entry.key)
            if older is not None:
                older.compacted = True
            newest[entry.key] = entry

    def _tell(self) -> None:
        for watcher in self.watchers:
            watcher()

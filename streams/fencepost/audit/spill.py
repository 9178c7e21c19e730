"""What a check remembers of each task: the last few in memory, the others in a file that nobody else sees."""

from __future__ import annotations

import pickle
import sqlite3
from collections import OrderedDict
from collections.abc import Iterable
from types import TracebackType

from fencepost.core.verify import Known

KEPT = 10_000  # tasks in memory: about 10 MB
_CACHE_KIB = 8192


class Spill:
    """A store for `PartitionCheck`; see `core.verify.Store` for what it promises. Use as a context manager.

    The file is a temporary one that the database library makes itself and that is gone when it is closed, or when the
    process dies: in the folder that SQLITE_TMPDIR or TMPDIR names. It has a few hundred bytes for each task.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = max(1, kept)
        self._recent: OrderedDict[str, Known] = OrderedDict()
        self._size = 0
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("CREATE TABLE known (task TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
        self._file.execute("BEGIN")

    def get(self, task: str, /) -> Known | None:
        known = self._recent.get(task)
        if known is not None:
            self._recent.move_to_end(task)
            return known
        if self._size == len(self._recent):
            return None  # nothing was put on disk yet
        row = self._file.execute("SELECT value FROM known WHERE task = ?", (task,)).fetchone()
        if row is None:
            return None
        back: Known = pickle.loads(row[0])
        self._take(task, back)
        return back

    def __setitem__(self, task: str, known: Known, /) -> None:
        if self.get(task) is None:
            self._size += 1
        self._take(task, known)

    def items(self) -> Iterable[tuple[str, Known]]:
        """Every task, one after the other. What is changed meanwhile is not kept."""
        yield from self._recent.items()
        for task, value in self._file.execute("SELECT task, value FROM known"):
            if task not in self._recent:
                yield task, pickle.loads(value)

    def __len__(self) -> int:
        return self._size

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Spill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, task: str, known: Known) -> None:
        self._recent[task] = known
        self._recent.move_to_end(task)
        while len(self._recent) > self._kept:
            oldest, value = self._recent.popitem(last=False)
            dumped = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
            self._file.execute("INSERT OR REPLACE INTO known VALUES (?, ?)", (oldest, dumped))

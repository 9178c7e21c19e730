"""What lies around a schedule: bounds and a shift by a constant. Each has the three methods that find slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from fencepost.core.times import MAX_MS

ANY_NUMBER: Final = 10**12  # of slots: counted in a bounded number of steps


class Slots(Protocol):
    """What finds slots; see the package for what each method promises."""

    def next_after(self, after_ms: int) -> int | None: ...

    def latest_at_or_before(self, at_ms: int, not_before_ms: int) -> int | None: ...

    def count(self, after_ms: int, until_ms: int, limit: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Between:
    """The slots from `start_ms` on and before `end_ms`."""

    inner: Slots
    start_ms: int
    end_ms: int

    def next_after(self, after_ms: int) -> int | None:
        slot_ms = self.inner.next_after(max(after_ms, self.start_ms - 1))
        return None if slot_ms is None or slot_ms >= self.end_ms else slot_ms

    def latest_at_or_before(self, at_ms: int, not_before_ms: int) -> int | None:
        return self.inner.latest_at_or_before(min(at_ms, self.end_ms - 1), max(not_before_ms, self.start_ms - 1))

    def count(self, after_ms: int, until_ms: int, limit: int) -> int:
        after_ms, until_ms = max(after_ms, self.start_ms - 1), min(until_ms, self.end_ms - 1)
        return self.inner.count(after_ms, until_ms, limit) if after_ms < until_ms else 0


@dataclass(frozen=True, slots=True)
class Later:
    """Every slot later by the same time, so that they stay apart and in order."""

    inner: Slots
    by_ms: int

    def next_after(self, after_ms: int) -> int | None:
        slot_ms = self.inner.next_after(max(after_ms, -1) - self.by_ms)
        return None if slot_ms is None or slot_ms + self.by_ms > MAX_MS else slot_ms + self.by_ms

    def latest_at_or_before(self, at_ms: int, not_before_ms: int) -> int | None:
        at_ms, not_before_ms = min(at_ms, MAX_MS) - self.by_ms, not_before_ms - self.by_ms
        slot_ms = self.inner.latest_at_or_before(at_ms, not_before_ms)
        return None if slot_ms is None else slot_ms + self.by_ms

    def count(self, after_ms: int, until_ms: int, limit: int) -> int:
        return self.inner.count(after_ms - self.by_ms, min(until_ms, MAX_MS) - self.by_ms, limit)


def count_one_by_one(slots: Slots, after_ms: int, until_ms: int, limit: int) -> int:
    """How many slots lie in (after_ms, until_ms], at most `limit`, for what has no better way."""
    found = 0
    while found < limit and (slot_ms := slots.next_after(after_ms)) is not None and slot_ms <= until_ms:
        found += 1
        after_ms = slot_ms
    return found

"""When tasks need attention next."""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class Timers:
    """One time for each task at most; setting it again replaces it. Each step costs O(log n)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._at: dict[str, int] = {}  # an entry of the heap counts only if it agrees with this

    def set(self, task_id: str, at_ms: int | None) -> None:
        if at_ms is None:
            self._at.pop(task_id, None)
        elif self._at.get(task_id) != at_ms:
            self._at[task_id] = at_ms
            heapq.heappush(self._heap, (at_ms, task_id))

    def due(self, now_ms: int, limit: int) -> Iterator[str]:
        """Tasks whose time has come, at most `limit`, earliest first; each is set again by the caller."""
        heap, at = self._heap, self._at
        while heap and limit > 0 and heap[0][0] <= now_ms:
            at_ms, task_id = heapq.heappop(heap)
            if at.get(task_id) == at_ms:
                del at[task_id]
                limit -= 1
                yield task_id

    def next_ms(self) -> int | None:
        heap, at = self._heap, self._at
        while heap and at.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

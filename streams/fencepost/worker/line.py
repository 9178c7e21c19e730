"""The tasks of one partition that can start, in the order in which they will."""

from __future__ import annotations

import heapq

from fencepost.core.rank import rank
from fencepost.core.task import Task

_Place = tuple[int, int, int, str]  # rank, priority, order of becoming ready, task
_USUAL = 5  # the priority of what has none


class Line:
    """Mutable, of one thread. Who stands in it may have lost what it waited for: whoever takes a task looks again."""

    def __init__(self) -> None:
        self._heap: list[_Place] = []
        self._places: dict[str, _Place] = {}
        self._order = 0
        self._since_ms = 0

    def add(self, task_id: str, task: Task, now_ms: int) -> None:
        """Put it in line, or further ahead if something more urgent waits for it than did before."""
        self._since_ms = max(self._since_ms, now_ms)  # a clock that is put back must not let what comes overtake
        priority = _priority(task)
        place = (rank(priority, self._since_ms), priority, self._order + 1, task_id)
        known = self._places.get(task_id)
        if known is not None and known <= place:
            return
        self._order += 1
        self._places[task_id] = place
        heapq.heappush(self._heap, place)

    def take(self) -> str | None:
        """The first one, which is in line no more; None: nobody is."""
        while self._heap:
            place = heapq.heappop(self._heap)
            if self._places.get(place[3]) == place:  # else it was put further ahead since
                del self._places[place[3]]
                return place[3]
        return None

    def __len__(self) -> int:
        return len(self._places)


def _priority(task: Task) -> int:
    """Of what starts next: a retry goes before what waits, and what is owed comes after it."""
    work = task.state.work if task.state.work is not None else task.waiting[0] if task.waiting else None
    if work is not None:
        return work.priority
    return _USUAL if task.definition is None else task.definition.priority

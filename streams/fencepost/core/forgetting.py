"""When the state of a task that has been idle for long may go, so that not every ID stays for ever.

Its epoch does not go with it: the same transaction raises the partition's *epoch floor* to it, and an ID of which
nothing is known starts above the floor. So an epoch never starts again at 1, nor does the count of the task's requests.
"""

from __future__ import annotations

from fencepost.core.recent import KEPT_MS
from fencepost.core.task import Status, Task


def forgettable(task: Task, now_ms: int, after_ms: int) -> bool:
    """Whether nothing but its epoch is worth keeping: idle since `after_ms`, nothing planned, tied or paused.

    Trigger IDs are remembered for a day whatever `after_ms` says: forgotten, a second trigger of one ID would run.
    """
    state, definition = task.state, task.definition
    if state.last is None or state.status is not Status.IDLE or state.last.ended_ms + after_ms > now_ms:
        return False
    if task.waiting or task.delayed or task.checkpoint is not None or task.links is not None:
        return False
    if state.place is not None or state.permit is not None or task.group is not None:
        return False  # where a task is, and who holds what, must never be guessed
    if state.paused or state.defined_paused or state.next_slot_ms is not None or state.not_before_ms > now_ms:
        return False
    if definition is not None and (definition.schedule is not None or definition.after):
        return False
    if definition is not None and state.cancelled_to >= 0:
        return False  # triggers of what was cancelled may still come, long after the last run
    return all(at_ms + KEPT_MS <= now_ms for _id, at_ms in state.recent_ids)


def floor_of(task: Task) -> int:
    """What the partition's floor has to be raised to before the task is forgotten."""
    return max(task.state.epoch, task.state.next_seq - 1)

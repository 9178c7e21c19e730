"""The machine of one task: `step(task, event, now) -> (task, commands)`.

Pure: no clock, no randomness, no Kafka. What it returns is only an intention until the shell has written the records
and read them back; the acts (`Launch`, `Stop`) follow then. The same machine runs in workers, in simulation and in
`verify`.

`task.state is before.state` after a step means that nothing of the state record changed.
"""

from __future__ import annotations

from fencepost.core.commands import Command
from fencepost.core.events import Event
from fencepost.core.illegal import IllegalEvent
from fencepost.core.making import new_state, new_task_record
from fencepost.core.ready import startable, wake_at_ms, why_not_startable
from fencepost.core.restored import restored_task
from fencepost.core.steps.limit import follow
from fencepost.core.table import IDLE, RUNNING, TABLE, Handler
from fencepost.core.task import Status, Task

__all__ = ["IllegalEvent", "new_task", "restored_task", "startable", "step", "wake_at_ms", "why_not_startable"]

# By kind of event, then idle, running, backoff: looked up three times a run, and the hash of an enum's member is slow.
_HANDLERS: dict[type[Event], tuple[Handler | None, ...]] = {
    event: tuple(
        transition.handler if (transition := TABLE.get((status, event))) is not None else None for status in Status
    )
    for _, event in TABLE
}


def step(task: Task, event: Event, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """The task after the event, and what the shell must do for it. Raises IllegalEvent, and then nothing changed."""
    status = task.state.status
    handler = _HANDLERS[type(event)][0 if status is IDLE else 1 if status is RUNNING else 2]
    if handler is None:
        state = task.state
        raise IllegalEvent(state.task, state.status, type(event).__name__, "the table of transitions has no such pair")
    task, commands = handler(task, event, now_ms)
    definition = task.definition
    if task.state.permit is None and (definition is None or definition.limit is None):
        return task, commands
    task, more = follow(task, now_ms)
    return task, commands + more


def new_task(task_id: str, epoch_floor: int = 0) -> Task:
    """A task nothing is known of. Its epochs start above the floor of its partition, and so does the count of its work.

    That count names requests for those who must not do one twice (`idempotency_key`).
    """
    return new_task_record(new_state(task_id, epoch_floor, next_seq=epoch_floor + 1))

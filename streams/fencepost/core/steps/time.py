"""A time that the task waits for has come."""

from __future__ import annotations

from fencepost.core.admission import admit
from fencepost.core.commands import Command
from fencepost.core.events import Woken
from fencepost.core.making import with_delayed
from fencepost.core.slots import fire_slots
from fencepost.core.task import Task


def woken(task: Task, event: Woken, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """Delayed work that is due and slots that are due become requests. Too early or too often is harmless.

    While the task is paused slots wait with it, and become one missed series when it is resumed.
    """
    commands: tuple[Command, ...] = ()
    definition = task.definition
    if definition is None:
        return task, ()
    while task.delayed and task.delayed[0].due_ms <= now_ms:
        work = task.delayed[0]
        task, more = admit(with_delayed(task, task.delayed[1:]), definition, work, now_ms, recorded=True)
        commands += more
    if task.state.paused:
        return task, commands
    task, more = fire_slots(task, now_ms)
    return task, commands + more

"""A time that the task waits for has come."""

from __future__ import annotations

from fencepost.core.admission import admit
from fencepost.core.commands import Command
from fencepost.core.dependents import leave_out
from fencepost.core.ending import end_work
from fencepost.core.events import Woken
from fencepost.core.making import new_drop, with_delayed, with_waiting
from fencepost.core.slots import fire_slots
from fencepost.core.steps.limit import grant_due
from fencepost.core.task import Definition, Outcome, Status, Task, Work
from fencepost.core.time_limits import TOTAL, WAITED_TOO_LONG, first_limit_ms, over_by_ms, start_by_ms


def woken(task: Task, event: Woken, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """Delayed work that is due and slots that are due become requests. Too early or too often is harmless.

    While the task is paused slots wait with it, and become one missed series when it is resumed.
    """
    commands: tuple[Command, ...] = ()
    definition = task.definition
    if task.group is not None:
        task, commands = grant_due(task, now_ms)
    if definition is None:
        return task, commands
    if definition.start_timeout_s is not None or definition.total_timeout_s is not None:
        task, commands = _past_limits(task, definition, now_ms)
    while task.delayed and task.delayed[0].due_ms <= now_ms:
        work, task = task.delayed[0], with_delayed(task, task.delayed[1:])
        if _waited_too_long(definition, work, now_ms):  # not admitted first: it would take another request's place
            commands += _skip(task, work, now_ms)
            continue
        task, more = admit(task, definition, work, now_ms, recorded=True)
        commands += more
    if task.state.paused:
        return task, commands
    task, more = fire_slots(task, now_ms)
    return task, commands + more


def _past_limits(task: Task, definition: Definition, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """What waited too long is skipped; work whose attempts took too long in all is given up. A run that is on ends so
    by its own time limit, which is never longer than what is left."""
    commands: list[Command] = []
    first_ms = first_limit_ms(task)
    if first_ms is None or first_ms > now_ms:
        return task, ()
    late = [work for work in task.waiting if _waited_too_long(definition, work, now_ms)]
    if late:
        for work in late:
            commands += _skip(task, work, now_ms)
        gone = {work.seq for work in late}
        task = with_waiting(task, tuple([work for work in task.waiting if work.seq not in gone]))
    work_on = task.state.work
    if task.state.status is Status.BACKOFF and work_on is not None:
        over_ms = over_by_ms(definition, work_on)
        if over_ms is not None and over_ms <= now_ms:
            reason = f"no time left for another attempt: {definition.total_timeout_s:g} s for all of them"
            task, ended = end_work(task, Outcome.TIMED_OUT, TOTAL, now_ms, reason)
            commands += ended
    return task, tuple(commands)


def _waited_too_long(definition: Definition, work: Work, now_ms: int) -> bool:
    by_ms = start_by_ms(definition, work)
    return by_ms is not None and by_ms <= now_ms


def _skip(task: Task, work: Work, now_ms: int) -> tuple[Command, ...]:
    return (*leave_out(task, work, WAITED_TOO_LONG, now_ms), new_drop(work.seq))

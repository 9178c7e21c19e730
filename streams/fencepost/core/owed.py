"""Slots that were missed and still run: all of them, oldest first, one at a time, as soon as the task has nothing else.

What is kept is where to go on and where to end, whatever the number of slots in between. Slots that come due meanwhile
stand at the end, so that none goes before an older one; what grows older than the task's window was missed.
"""

from __future__ import annotations

from typing import Any

from fencepost.core.commands import Command
from fencepost.core.dependents import tell_missed
from fencepost.core.making import CATCH_UP, caught_up, new_history, new_work, with_state
from fencepost.core.schedule import Schedule
from fencepost.core.task import Definition, Owed, Task, TaskState, Work
from fencepost.core.times import format_ms

COUNTED = 1_000_000  # slots of one series; beyond it the record says `count_at_least`


def owes(state: TaskState) -> bool:
    """Whether a slot of the past is to run when nothing else waits."""
    return state.catching is not None or (state.backfill is not None and state.backfill.max_runs == 1)


def take_owed(task: Task, definition: Definition, now_ms: int) -> tuple[Task, Work]:
    """The next of them as work, and the task without it. The caller makes sure that there is one."""
    state = task.state
    owed = state.catching
    assert owed is not None
    work = new_work(
        state.next_seq, None, owed.next_ms, 0, now_ms, priority=definition.priority, asked_by=CATCH_UP
    )  # fmt: skip
    following = None if definition.schedule is None else definition.schedule.next_after(owed.next_ms)
    left = None if following is None or following > owed.until_ms else Owed(following, owed.until_ms)
    return with_state(task, caught_up(state, left, work.seq + 1)), work


def owe(
    task: Task, schedule: Schedule, first_ms: int, until_ms: int, told_from_ms: int, now_ms: int
) -> tuple[Task, Command]:
    """The slots from `first_ms` to `until_ms` are caught up with; those from `told_from_ms` on are news for history."""
    fields = {"asked_by": CATCH_UP, **series(schedule, told_from_ms, until_ms)}
    state = caught_up(task.state, Owed(first_ms, until_ms), task.state.next_seq)
    return with_state(task, state), new_history("triggered", None, now_ms, fields)


def drop_owed(task: Task, cause: str, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """They will not run any more: one record says so."""
    owed = task.state.catching
    if owed is None:
        return task, ()
    fields: dict[str, Any] = {"cause": cause, "first": format_ms(owed.next_ms), "last": format_ms(owed.until_ms)}
    definition = task.definition
    if definition is not None and definition.schedule is not None:
        fields |= series(definition.schedule, owed.next_ms, owed.until_ms)
    task = with_state(task, caught_up(task.state, None, task.state.next_seq))
    return task, (new_history("missed", None, now_ms, fields), *tell_missed(task, owed.next_ms, owed.until_ms))


def series(schedule: Schedule, first_ms: int, until_ms: int) -> dict[str, Any]:
    """How many slots there are from one that is one to `until_ms`, and which are the first and the last."""
    limit = min(COUNTED, schedule.countable)
    count = 1 + schedule.count(first_ms, until_ms, limit)
    last_ms = schedule.latest_at_or_before(until_ms, first_ms) or first_ms
    counted = {"count_at_least" if count > limit else "count": min(count, limit)}
    return {**counted, "first": format_ms(first_ms), "last": format_ms(last_ms)}

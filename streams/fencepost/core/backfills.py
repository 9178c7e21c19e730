"""Backfill: slots of a past range run, oldest first and one at a time, as soon as the task has nothing else.

An ID never overlaps, so one run follows the other; whatever else is asked for goes before the next of them, and waits
at most for the one that is on, whatever the overlap policy says of others. What is kept is where to go on and where to
end, and which slots are left out because they ran before, in a record of their own.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import Any, Final

from fencepost.core.commands import Command, DropLeftOut
from fencepost.core.making import backfilled, new_history, new_work, with_left_out, with_state
from fencepost.core.owed import series
from fencepost.core.schedule import Schedule
from fencepost.core.task import Backfill, Definition, Task, Work
from fencepost.core.times import format_ms

BACKFILL: Final = "backfill"
MOST_LEFT_OUT: Final = 1000
DROP_LEFT_OUT: Final = DropLeftOut()


def asked_by(backfill_id: str) -> str:
    return f"{BACKFILL} {backfill_id}"


def is_backfill(work: Work | None) -> bool:
    return work is not None and work.asked_by is not None and work.asked_by.startswith(f"{BACKFILL} ")


def next_of(schedule: Schedule, after_ms: int, until_ms: int, left_out: tuple[int, ...]) -> int | None:
    """The first slot after `after_ms` that is not left out; None: there is none up to `until_ms`."""
    following = schedule.next_after(after_ms)
    while following is not None and following <= until_ms:
        place = bisect_left(left_out, following)
        if place == len(left_out) or left_out[place] != following:
            return following
        following = schedule.next_after(following)
    return None


def take_backfill(task: Task, definition: Definition, now_ms: int) -> tuple[Task, Work, tuple[Command, ...]]:
    """The next slot as work, the task without it, and what else follows. The caller makes sure that there is one."""
    state = task.state
    backfill, schedule = state.backfill, definition.schedule
    assert backfill is not None
    work = new_work(
        state.next_seq, None, backfill.next_ms, 0, now_ms, priority=definition.priority, asked_by=asked_by(backfill.id)
    )
    following = None
    if schedule is not None:
        following = next_of(schedule, backfill.next_ms, backfill.until_ms, task.left_out)
    left = None if following is None else Backfill(backfill.id, following, backfill.until_ms, backfill.done + 1)
    task = with_state(task, backfilled(state, left, work.seq + 1))
    if left is None and task.left_out:
        return with_left_out(task, ()), work, (DROP_LEFT_OUT,)
    return task, work, ()


def drop_backfill(task: Task, cause: str, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """The slots that are left of it will not run: one record says so. Side by side, what is out is still waited for."""
    backfill = task.state.backfill
    if backfill is None or backfill.next_ms > backfill.until_ms:
        return task, ()
    fields: dict[str, Any] = {"asked_by": asked_by(backfill.id), "cause": cause}
    definition = task.definition
    if definition is not None and definition.schedule is not None:
        fields |= series(definition.schedule, backfill.next_ms, backfill.until_ms)
    else:
        fields |= {"first": format_ms(backfill.next_ms), "last": format_ms(backfill.until_ms)}
    commands: tuple[Command, ...] = (new_history("skipped", None, now_ms, fields),)
    if task.left_out:
        task, commands = with_left_out(task, ()), (*commands, DROP_LEFT_OUT)
    left = None if backfill.max_runs == 1 else replace(backfill, next_ms=backfill.until_ms + 1)
    return with_state(task, backfilled(task.state, left, task.state.next_seq)), commands

"""An operator asks for the slots of a past range, or has no more of them run."""

from __future__ import annotations

from typing import Any

from fencepost.core.backfills import asked_by, drop_backfill, next_of
from fencepost.core.commands import Command, PutLeftOut
from fencepost.core.events import Backfilled
from fencepost.core.making import backfilled, new_history, short, with_left_out, with_state
from fencepost.core.owed import series
from fencepost.core.spread import go_on, why_not_side_by_side
from fencepost.core.steps.operator import take_control
from fencepost.core.steps.trigger import why_undefined
from fencepost.core.task import Backfill, Task
from fencepost.core.times import format_ms


def backfill(task: Task, event: Backfilled, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """Take it once, by its offset. Only slots that were decided on are in it: later ones come by themselves."""
    taken = take_control(task, event.offset)
    if taken is None:
        return task, ()
    task = taken
    if event.stop:
        task, dropped = drop_backfill(task, short(event.reason) if event.reason else "stopped", now_ms)
        task, over = go_on(task, now_ms)
        return task, dropped + over
    made, why_not = _made(task, event, now_ms)
    who = {"asked_by": asked_by(event.id)}
    if made is None:
        fields = {**who, "cause": why_not, "first": format_ms(event.from_ms), "last": format_ms(event.until_ms)}
        return task, (new_history("skipped", None, now_ms, fields),)
    definition = task.definition
    assert definition is not None
    assert definition.schedule is not None
    left_out = tuple([slot_ms for slot_ms in event.left_out if made.next_ms < slot_ms <= made.until_ms])
    told: dict[str, Any] = {**who, **series(definition.schedule, made.next_ms, made.until_ms)}
    if left_out:
        told["left_out"] = len(left_out)
    if made.max_runs > 1:
        told["max_runs"] = made.max_runs
    task = with_state(task, backfilled(task.state, made, task.state.next_seq))
    commands: tuple[Command, ...] = (new_history("triggered", None, now_ms, told),)
    if left_out:
        task, commands = with_left_out(task, left_out), (*commands, PutLeftOut(left_out))
    task, more = go_on(task, now_ms)
    return task, commands + more


def _made(task: Task, event: Backfilled, now_ms: int) -> tuple[Backfill | None, str]:
    """The backfill, or why there is none."""
    state, definition = task.state, task.definition
    if definition is None:
        return None, why_undefined(state)
    if definition.schedule is None:
        return None, "it has no schedule"
    if state.backfill is not None:
        return None, f"{asked_by(state.backfill.id)} is not over"
    why_not = why_not_side_by_side(definition) if event.max_runs > 1 else None
    if why_not is not None:
        return None, why_not
    until_ms = min(event.until_ms, now_ms)
    if state.next_slot_ms is not None:
        until_ms = min(until_ms, state.next_slot_ms - 1)
    if state.catching is not None:
        until_ms = min(until_ms, state.catching.next_ms - 1)
    first_ms = next_of(definition.schedule, event.from_ms - 1, until_ms, event.left_out)
    if first_ms is None:
        return None, "no slot to run in the range"
    return Backfill(event.id, first_ms, until_ms, max_runs=event.max_runs), ""

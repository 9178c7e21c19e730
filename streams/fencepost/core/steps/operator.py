"""What operators ask for: cancel, pause, resume. Each control record is taken once, by its offset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost.core.admission import ask_to_stop, drop_waiting, grace_of
from fencepost.core.commands import Command
from fencepost.core.ending import end_work
from fencepost.core.events import Cancelled, Paused, Resumed
from fencepost.core.fans import call_off, follow_shards
from fencepost.core.making import new_history, short, took_control, with_state
from fencepost.core.slots import fire_slots, resume_slots
from fencepost.core.spread import follow_backfill, go_on
from fencepost.core.task import OnResume, Outcome, Status, Task


def cancelled(task: Task, event: Cancelled, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """End what is on, and what waits unless only the run is meant. Nothing there to cancel: nothing happens.

    Of a task that is fanned out, what is on are its requests whose shards have not all ended.
    """
    taken = take_control(task, event.offset)
    if taken is None:
        return task, ()
    task = taken
    commands: list[Command] = []
    cause = short(event.reason) if event.reason else "cancelled"
    if event.waiting:
        task, dropped = drop_waiting(task, cause, now_ms)
        commands += dropped
    if task.state.status is Status.BACKOFF:
        task, ended = end_work(task, Outcome.CANCELLED, cause, now_ms)
        commands += ended
    elif task.state.status is Status.RUNNING:
        task, stop = ask_to_stop(task, cause, grace_of(task))
        commands += stop
    if task.links is not None and task.links.fans:
        task, called_off = call_off(task, cause, now_ms)
        commands += called_off
    if task.state.backfill is not None:
        task, backfill = go_on(task, now_ms)
        commands += backfill
    return task, tuple(commands)


def paused(task: Task, event: Paused, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """Hold back every start, of its shards too. Slots that are due still count; later ones wait for `resume`."""
    taken = take_control(task, event.offset)
    if taken is None:
        return task, ()
    if _overtaken(taken, event.late):
        return taken, (_left_out("pause", now_ms),)
    taken = _said_here(taken, event.late)
    if taken.state.paused:
        return taken, ()
    task, commands = fire_slots(taken, now_ms)
    reason = short(event.reason) if event.reason else None
    fields: dict[str, Any] = {} if reason is None else {"cause": reason}
    if event.on_resume is not OnResume.MISS:
        fields["on_resume"] = event.on_resume.value
    state = replace(task.state, paused=True, pause_reason=reason, on_resume=event.on_resume)
    task, shards = _follow_shards(with_state(task, state), now_ms)
    return task, (*commands, new_history("paused", None, now_ms, fields), *shards)


def resumed(task: Task, event: Resumed, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """Starts are free again. The slots of the pause were missed, in one record, unless the pause said otherwise."""
    taken = take_control(task, event.offset)
    if taken is None:
        return task, ()
    if _overtaken(taken, event.late):
        return taken, (_left_out("resume", now_ms),)
    taken = _said_here(taken, event.late)
    if not taken.state.paused:
        return taken, ()
    task = taken
    task, commands = resume_slots(task, now_ms)
    state = replace(task.state, paused=False, pause_reason=None, on_resume=OnResume.MISS)
    task, shards = _follow_shards(with_state(task, state), now_ms)
    return task, (*commands, new_history("resumed", None, now_ms, {}), *shards)


def _overtaken(task: Task, late: bool) -> bool:
    """Whether the task was paused or resumed here since this was sent on to a pool."""
    return late and task.state.place is not None and task.state.place.spoken


def _left_out(op: str, now_ms: int) -> Command:
    return new_history("skipped", None, now_ms, {"cause": f"{op}: it was said otherwise here since, as the task moved"})


def _said_here(task: Task, late: bool) -> Task:
    """The namespace's word goes before what a pool still says, once the task was called back from it."""
    place, definition = task.state.place, task.definition
    if (
        late
        or place is None
        or place.spoken
        or place.left
        or (definition is not None and definition.arrival is not None)
    ):
        return task
    return with_state(task, replace(task.state, place=replace(place, spoken=True)))


def _follow_shards(task: Task, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    definition = task.definition
    if definition is None or (task.links is None and task.state.backfill is None):
        return task, ()
    task, shards = follow_shards(task, definition, now_ms)
    task, backfill = follow_backfill(task, definition, now_ms)
    return task, shards + backfill


def take_control(task: Task, offset: int) -> Task | None:
    """The task with the control record taken; None: it was taken before. A negative offset is never compared."""
    if offset < 0:
        return task
    if offset <= task.state.control_offset:
        return None
    return with_state(task, took_control(task.state, offset))

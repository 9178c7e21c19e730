"""The definition of a task is made, changed or taken away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from fencepost.core.admission import ask_to_stop, drop_waiting
from fencepost.core.backfills import drop_backfill
from fencepost.core.commands import Command
from fencepost.core.ending import FORGET, end_work
from fencepost.core.events import Defined, Deleted
from fencepost.core.fans import call_off, close_fans, follow_shards, forget_shards
from fencepost.core.joins import follow, unfollow
from fencepost.core.making import new_history, with_definition
from fencepost.core.owed import drop_owed
from fencepost.core.slots import arm, fingerprint_of, fire_slots
from fencepost.core.spread import end_backfill, follow_backfill, forget_ids
from fencepost.core.task import Definition, OnResume, Outcome, Overlap, Status, Task, TaskState
from fencepost.core.times import format_ms

DEFINED_AS_PAUSED: Final = "defined as paused"


def defined(task: Task, event: Defined, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """Take the definition. Only a changed schedule touches the next slot; the epoch goes on in any case.

    The same definition again changes nothing, so that a restart may hand in all of them. Slots that were due under the
    old schedule are decided on under it.
    """
    definition = event.definition
    commands: tuple[Command, ...] = ()
    if definition == task.definition:
        return task, ()
    if task.definition is not None and not task.state.paused:
        task, commands = fire_slots(task, now_ms)
    if _other_slots(task.state, definition):
        # Under another schedule they would be other slots; what they were is for the old one to say, where it is known.
        task, dropped = drop_owed(task, "another schedule", now_ms)
        task, more = drop_backfill(task, "another schedule", now_ms)
        commands += (*dropped, *more)
    state = _pause_as_defined(task.state, definition)
    # A change that was made while nobody owned the task may be as old as the last slot.
    from_ms = state.last_slot_ms if event.restored and state.last_slot_ms >= 0 else now_ms
    armed = arm(state, definition, from_ms)
    known_before = task.definition is not None or (event.restored and state.schedule_fingerprint is not None)
    fields = {"changed": known_before, **_schedule_told(state, armed, definition, from_ms)}
    if armed.deleted:
        armed = replace(armed, deleted=False)
    if not event.restored or "schedule" in fields:
        commands += (new_history("defined", None, now_ms, fields),)
    task, more = follow(with_definition(task, armed, definition), definition, now_ms)
    task, shards = follow_shards(task, definition, now_ms)
    task, backfill = follow_backfill(task, definition, now_ms)
    return task, commands + more + shards + backfill


def _other_slots(state: TaskState, definition: Definition) -> bool:
    schedule = definition.schedule
    return state.schedule_fingerprint != (None if schedule is None else fingerprint_of(schedule))


def _schedule_told(before: TaskState, armed: TaskState, definition: Definition, from_ms: int) -> dict[str, Any]:
    """What history says of another schedule than before: which one, and after which time its slots count."""
    if armed.schedule_fingerprint == before.schedule_fingerprint:
        return {}
    if definition.schedule is None:
        return {"schedule": None}
    told: dict[str, Any] = {"schedule": definition.schedule.to_json()}
    after_ms = before.last_slot_ms if definition.schedule.one_shot else max(from_ms, before.last_slot_ms)
    if after_ms >= 0:
        told["slots_after"] = format_ms(after_ms)
    return told


def _pause_as_defined(state: TaskState, definition: Definition) -> TaskState:
    """Follow a change of `paused` in the definition; without one, an operator's word stays."""
    if definition.paused == state.defined_paused:
        return state
    if definition.paused and not state.paused:
        return replace(state, defined_paused=True, paused=True, pause_reason=DEFINED_AS_PAUSED)
    if not definition.paused and state.pause_reason == DEFINED_AS_PAUSED:
        return replace(state, defined_paused=False, paused=False, pause_reason=None, on_resume=OnResume.MISS)
    return replace(state, defined_paused=definition.paused)


def deleted(task: Task, event: Deleted, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """No more slots, nothing waits; a run that is on may end, unless the overlap policy puts news before runs.

    The epoch stays, so that a task defined again under this ID goes on where it was. Unknown or twice is harmless.
    """
    definition = task.definition
    if definition is None and (task.state.deleted or task.state.never_defined):
        return task, ()
    commands: list[Command] = [new_history("deleted", None, now_ms, {})]
    task, dropped = drop_waiting(task, "deleted", now_ms)
    commands += dropped
    if definition is not None and definition.fans_out and definition.overlap in (Overlap.CANCEL, Overlap.TERMINATE):
        task, over = call_off(task, "deleted", now_ms, at_once=definition.overlap is Overlap.TERMINATE)
        commands += over
    task, over = end_backfill(task, "deleted", now_ms)
    commands += over
    for step in (unfollow, _no_fans):
        task, over = step(task, now_ms)
        commands += over
    if task.state.status is Status.BACKOFF:
        task, ended = end_work(task, Outcome.CANCELLED, "deleted", now_ms)
        commands += ended
    if task.state.status is Status.RUNNING:
        if definition is not None and definition.overlap in (Overlap.CANCEL, Overlap.TERMINATE):
            grace_s = 0.0 if definition.overlap is Overlap.TERMINATE else definition.grace_s
            task, stop = ask_to_stop(task, "deleted", grace_s)
            commands += stop
    else:
        commands.append(FORGET)
    state = replace(
        task.state,
        deleted=True,
        next_slot_ms=None,
        schedule_fingerprint=None,
        paused=False,
        pause_reason=None,
        on_resume=OnResume.MISS,
        defined_paused=False,
    )
    return with_definition(task, state, None), tuple(commands)


def _no_fans(task: Task, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    task, closed = close_fans(task, "deleted", now_ms)
    task, gone = forget_shards(task)
    task, more = forget_ids(task)
    return task, closed + gone + more

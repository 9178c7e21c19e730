"""A trigger arrives."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fencepost.core.admission import MAX_WAITING, admit, waits
from fencepost.core.commands import Command
from fencepost.core.dependents import leave_out
from fencepost.core.events import Trigger, Triggered
from fencepost.core.links import Origin, Shard
from fencepost.core.making import new_put, new_work, took_trigger, with_delayed, with_state
from fencepost.core.recent import remember
from fencepost.core.room import needs_own_record
from fencepost.core.task import Definition, Task, TaskState, Work
from fencepost.core.times import MAX_MS

DUPLICATE: Final = "duplicate"
CANCELLED: Final = "cancelled"


def triggered(task: Task, event: Triggered, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """Take a trigger once: by its offset, then by its ID; then as the overlap policy says, or when its time comes."""
    trigger, state = event.trigger, task.state
    offset = trigger.offset
    if offset < 0:
        offset = state.trigger_offset
    elif offset <= state.trigger_offset:
        return task, ()  # taken before; read again after a takeover
    recent = state.recent_ids
    if trigger.id is not None:
        remembered = remember(recent, trigger.id, now_ms)
        if remembered is None:
            return _refuse(task, trigger, offset, DUPLICATE, now_ms)
        recent = remembered
    if trigger.shard is not None and _was_cancelled(trigger, state):
        return _refuse(task, trigger, offset, CANCELLED, now_ms)
    definition = task.definition
    if definition is None:
        return _refuse(task, trigger, offset, why_undefined(state), now_ms)
    work = _work(trigger, definition, state.next_seq, now_ms)
    if trigger.shard is not None and trigger.shard.worker:
        work = _goes_on(work, trigger.shard)
    task = with_state(task, took_trigger(state, offset, recent, work.seq + 1))
    if work.due_ms > now_ms:
        return _delay(task, work, now_ms)
    return admit(task, definition, work, now_ms, recorded=False)


def _work(trigger: Trigger, definition: Definition, seq: int, now_ms: int) -> Work:
    # A producer's time stamp may be anything. What has come cannot come in the future, and never puts a run off.
    arrived_ms = trigger.arrived_ms if 0 < trigger.arrived_ms < now_ms else now_ms
    due_ms = trigger.run_at_ms or 0
    if trigger.delay_ms is not None:
        due_ms = min(arrived_ms + trigger.delay_ms, MAX_MS)
    return new_work(
        seq,
        trigger.id,
        trigger.slot_ms,
        due_ms,
        arrived_ms,
        trigger.payload,
        trigger.headers,
        definition.priority if trigger.priority is None else trigger.priority,
        trigger.offset,
        own_record=needs_own_record(trigger.size, trigger.task),
        replays=trigger.replays,
        origin=_origin(trigger),
        asked_by=trigger.asked_by,
    )


def _was_cancelled(trigger: Trigger, state: TaskState) -> bool:
    """Whether it is of a request that was cancelled before it came. One sent again was asked for by somebody since."""
    shard = trigger.shard
    return shard is not None and shard.number <= state.cancelled_to and not trigger.replays


def _goes_on(work: Work, shard: Shard) -> Work:
    """A worker's part of a broadcast has the attempts that it had on another partition."""
    origin = replace(work.origin, shard=replace(shard, attempt=0, losses=0)) if work.origin is not None else None
    return replace(work, attempt=shard.attempt, losses=shard.losses, origin=origin)


def _origin(trigger: Trigger) -> Origin | None:
    return None if trigger.cycle is None else Origin(trigger.cycle, (), trigger.upstream, trigger.shard)


def _delay(task: Task, work: Work, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    if len(task.waiting) + len(task.delayed) >= MAX_WAITING:
        return task, leave_out(task, work, "buffer full", now_ms)
    place = len(task.delayed)
    while place and task.delayed[place - 1].due_ms > work.due_ms:
        place -= 1
    delayed = (*task.delayed[:place], work, *task.delayed[place:])
    return with_delayed(task, delayed), (waits(work, now_ms), new_put(work))


def _refuse(task: Task, trigger: Trigger, offset: int, cause: str, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    state = task.state
    taken = took_trigger(state, offset, state.recent_ids, state.next_seq)
    # Of a duplicate the first one tells how it ended.
    origin = None if cause == DUPLICATE else _origin(trigger)
    slot_ms, asked_by = trigger.slot_ms, trigger.asked_by  # of a backfill: which slot will not run
    work = new_work(0, trigger.id, slot_ms, offset=trigger.offset, origin=origin, asked_by=asked_by)
    return with_state(task, taken), leave_out(task, work, cause, now_ms)


def why_undefined(state: TaskState) -> str:
    return "deleted" if state.deleted or state.epoch else "not defined"

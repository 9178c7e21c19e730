"""A past run is asked for once more: a request like any other, with what the first one was given."""

from __future__ import annotations

from typing import Final

from fencepost.core.admission import admit
from fencepost.core.commands import Command
from fencepost.core.dependents import leave_out
from fencepost.core.events import Rerun
from fencepost.core.making import took_request, with_state
from fencepost.core.recent import remember
from fencepost.core.room import needs_own_record
from fencepost.core.steps.operator import take_control
from fencepost.core.steps.trigger import why_undefined
from fencepost.core.task import Task, Work

RERUN: Final = "rerun"


def rerun(task: Task, event: Rerun, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """Take it once, by its offset and then by its ID; then the overlap policy decides, as for a trigger.

    It is a new request: its attempts are counted from the first, and it has an idempotency key of its own. No slot
    moves by it, not even where it is a slot that runs again.
    """
    taken = take_control(task, event.offset)
    if taken is None:
        return task, ()
    task = taken
    state, definition = task.state, task.definition
    request_id = event.id or f"{RERUN}-{event.offset}"
    asked_by = RERUN if event.epoch is None else f"{RERUN} of epoch {event.epoch}"
    work = Work(
        state.next_seq,
        request_id,
        event.slot_ms,
        arrived_ms=now_ms,
        payload=event.payload,
        headers=event.headers,
        priority=_priority(task, event),
        own_record=needs_own_record(event.size, state.task),
        asked_by=asked_by,
    )
    if definition is None:
        return task, leave_out(task, work, why_undefined(state), now_ms)
    recent = remember(state.recent_ids, request_id, now_ms)
    if recent is None:
        return task, leave_out(task, work, "duplicate", now_ms)
    task = with_state(task, took_request(state, recent, work.seq + 1))
    return admit(task, definition, work, now_ms, recorded=False)


def _priority(task: Task, event: Rerun) -> int:
    if event.priority is not None:
        return event.priority
    return 5 if task.definition is None else task.definition.priority

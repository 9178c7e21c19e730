"""The records of the hot path, made by `evolve`; and the few fields that name work in the history."""

from __future__ import annotations

from typing import Any, Final

from fencepost.core.commands import DropWork, GiveUp, History, Launch, PutWork, Stop
from fencepost.core.events import Ended, Started, Triggered
from fencepost.core.evolve import builder, changer
from fencepost.core.task import Definition, LastRun, Run, Task, TaskState, Work
from fencepost.core.times import format_ms

new_triggered = builder(Triggered)
new_started = builder(Started)
new_ended = builder(Ended)
new_state = builder(TaskState)
new_task_record = builder(Task)
new_history = builder(History)
new_put = builder(PutWork)
new_drop = builder(DropWork)
new_give_up = builder(GiveUp)
new_launch = builder(Launch)
new_stop = builder(Stop)
new_work = builder(Work)
new_run = builder(Run)
new_last = builder(LastRun)

_named = changer(Definition, "task", "schedule")
with_state = changer(Task, "state")
with_definition = changer(Task, "state", "definition")
with_waiting = changer(Task, "waiting")
with_state_and_waiting = changer(Task, "state", "waiting")
with_delayed = changer(Task, "delayed")
with_links = changer(Task, "links")
started_task = changer(Task, "state", "waiting", "checkpoint")
ended_task = changer(Task, "state", "checkpoint")

took_trigger = changer(TaskState, "trigger_offset", "recent_ids", "next_seq")
took_control = changer(TaskState, "control_offset")
took_request = changer(TaskState, "recent_ids", "next_seq")
backfilled = changer(TaskState, "backfill", "next_seq")
with_left_out = changer(Task, "left_out")
caught_up = changer(TaskState, "catching", "next_seq")
armed_slot = changer(TaskState, "next_slot_ms", "schedule_fingerprint")
fired_slot = changer(TaskState, "next_slot_ms", "last_slot_ms", "next_seq")
began_run = changer(TaskState, "epoch", "status", "run", "work", "retry_at_ms")
with_run = changer(TaskState, "run")
# status, run, work, retry_at_ms, not_before_ms, last: all that the end of a run or of its work touches.
ended_run = changer(TaskState, "status", "run", "work", "retry_at_ms", "not_before_ms", "last")

with_attempt = changer(Work, "attempt")
as_batch = changer(Work, "own_record", "members")
began_first = changer(Work, "attempt", "began_ms")
with_payload = changer(Work, "payload")
after_loss = changer(Work, "attempt", "losses", "resumed", "past")
asked_to_stop = changer(Run, "stopping", "stop_cause")
with_nonce = changer(Run, "nonce")

CATCH_UP: Final = "catch up"  # who asked for a slot that was missed
ERROR_BYTES: Final = 4096
REASON_BYTES: Final = 120
_UNESCAPED: Final = str.maketrans({'"': "'", "\\": "/", **{chr(code): " " for code in (*range(32), 127)}})


def named(definition: Definition, task: str) -> Definition:
    """The definition under the ID of a task, which also chooses what its schedule leaves open. Raises ScheduleError."""
    schedule = definition.schedule
    return _named(definition, task, None if schedule is None else schedule.for_task(task))


def naming(work: Work) -> dict[str, Any]:
    """What tells people and `--wait` which request it was: the trigger's ID and offset, or the slot."""
    fields: dict[str, Any] = {}
    if work.trigger_id is not None:
        fields["trigger"] = work.trigger_id
    if work.slot_ms is not None:
        fields["slot"] = format_ms(work.slot_ms)
    if work.offset >= 0:
        fields["offset"] = work.offset
    if work.origin is not None:
        fields["cycle"] = work.origin.cycle
    if work.asked_by is not None:
        fields["asked_by"] = work.asked_by
    if work.members:
        fields["batch"] = [naming(member) for member in work.members]
    return fields


def of_schedule(asked_by: str | None) -> bool:
    """Whether the schedule itself asked for a slot, and not somebody beside it."""
    return asked_by is None or asked_by == CATCH_UP


def due_since_ms(work: Work) -> int:
    """Since when the request could have run. A slot that somebody asks for again is due since then."""
    if work.slot_ms is not None and of_schedule(work.asked_by):
        return work.slot_ms
    return work.due_ms or work.arrived_ms


def skipped(work: Work, cause: str, now_ms: int) -> History:
    """The history of a request that will not become a run."""
    return new_history("skipped", None, now_ms, {**naming(work), "cause": cause})


def short(reason: str) -> str:
    """An operator's reason as the state keeps it: so that it stays small as JSON, without what JSON has to escape."""
    return bounded(reason.translate(_UNESCAPED), REASON_BYTES)


def bounded(text: str, limit: int = ERROR_BYTES) -> str:
    """Text of at most `limit` bytes of UTF-8; a cut is shown. Lone surrogates become replacement characters."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode()
    return raw[: limit - 3].decode("utf-8", "ignore") + "…"

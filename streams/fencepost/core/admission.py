"""What happens to a request that has come due: it waits for its turn, is skipped, or ends what is on."""

from __future__ import annotations

from typing import Final

from fencepost.core.backfills import drop_backfill, is_backfill
from fencepost.core.commands import Command
from fencepost.core.dependents import leave_out
from fencepost.core.ending import end_work
from fencepost.core.making import (
    asked_to_stop,
    naming,
    new_drop,
    new_history,
    new_put,
    new_stop,
    with_delayed,
    with_run,
    with_state,
    with_state_and_waiting,
    with_waiting,
)
from fencepost.core.owed import drop_owed
from fencepost.core.rank import behind_its_level, in_order
from fencepost.core.task import BACKOFF, CANCELLED, IDLE, RUNNING, Definition, Overlap, Task, Work

_GRACE_S: Final = 5.0  # where no definition says it any more
MAX_WAITING: Final = 10_000  # of one task, buffered and delayed together
_SUPERSEDING: Final = (Overlap.CANCEL, Overlap.TERMINATE)


def admit(
    task: Task, definition: Definition, work: Work, now_ms: int, *, recorded: bool
) -> tuple[Task, tuple[Command, ...]]:
    """The task with `work` taken, or left out, by its overlap policy.

    The policy counts what is ahead: the run that is on (or waits for its next attempt) and the due requests that wait.
    An idle task with a request still waiting for a free runner is therefore as busy as a running one: the answer does
    not depend on how quickly a runner is found. `recorded`: the work has a record already (it was delayed).
    """
    idle = task.state.status is IDLE and (task.links is None or not task.links.broadcasting)
    if idle and not task.waiting:
        return with_waiting(task, (work,)), () if recorded else (new_put(work),)
    if not task.waiting and is_backfill(task.state.work):
        return _queue(task, work, now_ms, recorded)  # what fills up the past costs nobody a turn
    if definition.overlap in _SUPERSEDING:
        return _supersede(task, definition, work, now_ms, recorded)
    ahead = len(task.waiting) + (not idle)
    full = _why_full(definition, ahead, len(task.waiting) + len(task.delayed))
    if full is not None:
        left = leave_out(task, work, full, now_ms)
        return task, (*left, new_drop(work.seq)) if recorded else left
    return _queue(task, work, now_ms, recorded)


def _why_full(definition: Definition, ahead: int, held: int) -> str | None:
    if definition.overlap is Overlap.SKIP:
        return "overlap"
    room = 1 + (1 if definition.overlap is Overlap.BUFFER_ONE else definition.buffer_limit)
    return "buffer full" if ahead >= room or held >= MAX_WAITING else None


def _queue(task: Task, work: Work, now_ms: int, recorded: bool) -> tuple[Task, tuple[Command, ...]]:
    commands: tuple[Command, ...] = ()
    if not recorded:
        work = behind_its_level(task.waiting, work)
        commands = (waits(work, now_ms), new_put(work))
    return with_waiting(task, in_order(task.waiting, work)), commands


def waits(work: Work, now_ms: int) -> Command:
    """The history of a request that cannot start at once."""
    return new_history("triggered", None, now_ms, naming(work))


def _supersede(
    task: Task, definition: Definition, work: Work, now_ms: int, recorded: bool
) -> tuple[Task, tuple[Command, ...]]:
    """The new request goes before everything: what waits is dropped, what runs is asked to stop."""
    commands: list[Command] = []
    for older in task.waiting:
        commands += (*leave_out(task, older, "overlap", now_ms), new_drop(older.seq))
    task = with_waiting(task, ())
    if task.state.status is RUNNING:
        grace_s = 0.0 if definition.overlap is Overlap.TERMINATE else definition.grace_s
        task, stop = ask_to_stop(task, "overlap", grace_s)
        commands += stop
    elif task.state.status is BACKOFF:
        task, ended = end_work(task, CANCELLED, "overlap", now_ms)
        commands += ended
    if not recorded:
        commands += (waits(work, now_ms), new_put(work))
    return with_waiting(task, (work,)), tuple(commands)


def grace_of(task: Task) -> float:
    """How long a run of the task may go on after it was asked to stop, in seconds."""
    return _GRACE_S if task.definition is None else task.definition.grace_s


def ask_to_stop(task: Task, cause: str, grace_s: float) -> tuple[Task, tuple[Command, ...]]:
    """Ask the run that is on to stop as cancelled. Asked before: only a shorter grace (0) is news."""
    run = task.state.run
    assert run is not None
    if run.stopping is not None:
        return task, (new_stop(run.epoch, run.stopping, 0.0),) if grace_s == 0.0 else ()
    stopping = with_run(task.state, asked_to_stop(run, "cancelled", cause))
    return with_state(task, stopping), (new_stop(run.epoch, "cancelled", grace_s),)


def drop_waiting(task: Task, cause: str, now_ms: int) -> tuple[Task, list[Command]]:
    """Nothing waits any more, buffered or delayed; each request is accounted for."""
    commands: list[Command] = []
    for work in (*task.waiting, *task.delayed):
        commands += (*leave_out(task, work, cause, now_ms), new_drop(work.seq))
    if commands:
        task = with_state_and_waiting(task, task.state, ())
        task = with_delayed(task, ())
    task, owed = drop_owed(task, cause, now_ms)
    task, backfill = drop_backfill(task, cause, now_ms)
    return task, [*commands, *owed, *backfill]

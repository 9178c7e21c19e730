"""How a run, or work that waits for its next attempt, ends."""

from __future__ import annotations

from typing import Any, Final

from fencepost.core.commands import Command, DropCheckpoint, Forget, History
from fencepost.core.dependents import tell
from fencepost.core.making import (
    ended_run,
    ended_task,
    naming,
    new_drop,
    new_give_up,
    new_history,
    new_last,
)
from fencepost.core.task import IDLE, Attempt, Cause, Outcome, Run, Task, Work

DROP_CHECKPOINT: Final = DropCheckpoint()
FORGET: Final = Forget()
PAST_KEPT: Final = 4  # runs of one request that are remembered for its dead letter


def history_of_end(
    run: Run, work: Work, outcome: Outcome, fields: dict[str, Any], now_ms: int
) -> tuple[dict[str, Any], Command]:
    """The history event of a run's end, and its fields while they may still be added to."""
    told = naming(work)
    told["attempt"] = run.attempt
    told["duration_s"] = max(0, now_ms - run.started_ms) / 1000
    told.update(fields)
    return told, new_history(outcome._value_, run.epoch, now_ms, told)


def past_with(work: Work, run: Run, outcome: Outcome, cause: str | None, now_ms: int) -> tuple[Attempt, ...]:
    """The work's last runs with the one that ends now."""
    return (*work.past[1 - PAST_KEPT :], Attempt(run.epoch, outcome, cause, now_ms))


def finish(
    task: Task,
    outcome: Outcome,
    cause: Cause | None,
    now_ms: int,
    record: Command,
    given_up: str | None = None,
    error: str | None = None,
) -> tuple[Task, tuple[Command, ...]]:
    """The run is over and so is its work. `given_up`: the reason for which it becomes a dead letter."""
    state, work = task.state, task.state.work
    run = state.run
    assert run is not None
    assert work is not None
    commands: tuple[Command, ...] = (record,)
    if given_up is not None:
        why = None if cause is None else cause.value
        commands += _give_up(work, given_up, past_with(work, run, outcome, why, now_ms), error)
    commands += _drop_records(work)
    if task.checkpoint is not None:
        commands += (DROP_CHECKPOINT,)
    if state.deleted:
        commands += (FORGET,)
    if task.links is not None or work.origin is not None:
        assert isinstance(record, History)
        commands += tell(task, work, outcome._value_, run.epoch, record.fields.get("result"))
    last = new_last(run.epoch, outcome, cause, now_ms)
    ended = ended_run(state, IDLE, None, None, None, settled_at_ms(task, now_ms), last)
    return ended_task(task, ended, None), commands


def _give_up(work: Work, reason: str, attempts: tuple[Attempt, ...], error: str | None) -> tuple[Command, ...]:
    """A dead letter for each request of the work."""
    return tuple([new_give_up(each, reason, attempts, error) for each in (work, *work.members)])


def _drop_records(work: Work) -> tuple[Command, ...]:
    if not work.own_record:
        return ()
    return (new_drop(work.seq), *[new_drop(member.seq) for member in work.members])


def settled_at_ms(task: Task, now_ms: int) -> int:
    """Before when the epoch after one that died now must not start; 0: at once."""
    definition = task.definition
    return 0 if definition is None or definition.settle_s == 0 else now_ms + round(definition.settle_s * 1000)


def end_work(
    task: Task,
    outcome: Outcome,
    cause: str,
    now_ms: int,
    given_up: str | None = None,
    word: tuple[Command, ...] | None = None,
) -> tuple[Task, tuple[Command, ...]]:
    """Work that waits for its next attempt ends without one (cancelled, superseded, deleted, over its time).

    word: what others are told instead of that.
    """
    state, work = task.state, task.state.work
    assert work is not None
    fields = {"attempt": work.attempt, **naming(work), "cause": cause}
    commands: tuple[Command, ...] = (new_history(outcome._value_, state.epoch, now_ms, fields),)
    if given_up is not None:
        fields["given_up"] = given_up
        commands += _give_up(work, given_up, work.past, None)
    commands += _drop_records(work)
    if task.checkpoint is not None:
        commands += (DROP_CHECKPOINT,)
    if word is not None:
        commands += word
    elif task.links is not None or work.origin is not None:
        commands += tell(task, work, outcome._value_, state.epoch)
    idle = ended_run(state, IDLE, None, None, None, state.not_before_ms, state.last)
    return ended_task(task, idle, None), commands

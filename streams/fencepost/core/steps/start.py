"""A run starts, goes on under another nonce, or saves a checkpoint."""

from __future__ import annotations

from fencepost.core.backfills import take_backfill
from fencepost.core.batches import members_of
from fencepost.core.broadcasts import ask_again, broadcast, not_here
from fencepost.core.commands import Command, PutCheckpoint
from fencepost.core.ending import DROP_CHECKPOINT
from fencepost.core.events import Adopted, Checkpointed, Started
from fencepost.core.fans import fan_out
from fencepost.core.illegal import IllegalEvent
from fencepost.core.making import (
    as_batch,
    began_first,
    began_run,
    due_since_ms,
    ended_task,
    naming,
    new_drop,
    new_history,
    new_launch,
    new_put,
    new_run,
    started_task,
    with_attempt,
    with_nonce,
    with_payload,
    with_run,
    with_state,
    with_waiting,
)
from fencepost.core.owed import take_owed
from fencepost.core.ready import why_not_startable
from fencepost.core.task import IDLE, RUNNING, Definition, Overlap, Run, Task, Work


def started(task: Task, event: Started, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """The next work becomes a run under the next epoch: the retry if there is one, else what waits; or of shards."""
    state, definition = task.state, task.definition
    why_not = why_not_startable(task, now_ms)
    if why_not is not None or definition is None:
        raise IllegalEvent(state.task, state.status, "Started", why_not or "it is not defined")
    if definition.broadcast and state.status is IDLE:
        return _broadcast(task, definition, event, now_ms)
    waiting = task.waiting
    drop = False
    more: tuple[Command, ...] = ()
    if state.status is IDLE and not waiting:
        task, work, more = _of_the_past(task, definition, now_ms)
        if definition.shards or definition.map:
            task, commands_of_fan = fan_out(with_waiting(task, (work,)), definition, now_ms)
            return task, (*more, new_put(work), *commands_of_fan)
        state = task.state
    elif state.status is IDLE:
        if definition.shards or definition.map:
            return fan_out(task, definition, now_ms)
        work, waiting = waiting[0], waiting[1:]
        if waiting and definition.overlap is Overlap.BATCH and definition.batch_limit > 1:
            members = members_of(waiting, definition.batch_limit - 1)
            waiting = waiting[len(members) :]
            # Too much for the state record: each stays in the record it waited in until the batch has ended.
            work = as_batch(work, True, members)
        drop = not work.own_record
    else:
        assert state.work is not None
        work = state.work
    shard = None if work.origin is None else work.origin.shard
    if shard is not None and shard.worker:
        elsewhere = not_here(task, event, work, shard, now_ms)
        if elsewhere is not None:
            return elsewhere
    epoch = state.epoch + 1
    if definition.total_timeout_s is None or work.began_ms:
        work = with_attempt(work, work.attempt + 1)
    else:
        work = began_first(work, work.attempt + 1, now_ms)
    run = new_run(epoch, work.attempt, event.lane, event.nonce, event.lease_ttl_s, now_ms)
    fields = naming(work)
    fields["attempt"] = work.attempt
    if shard is not None and shard.worker:
        fields["worker"] = shard.worker
    fields["lease_ttl_s"] = event.lease_ttl_s
    fields["waited_s"] = max(0, now_ms - due_since_ms(work)) / 1000
    commands: list[Command] = [new_history("started", epoch, now_ms, fields), *more]
    if drop:
        commands.append(new_drop(work.seq))
    checkpoint = task.checkpoint
    if checkpoint is not None and not work.resumed:
        commands.append(DROP_CHECKPOINT)
        checkpoint = None
    launched = with_payload(work, definition.payload) if work.payload is None else work
    commands.append(new_launch(run, launched, checkpoint))
    state = began_run(state, epoch, RUNNING, run, work, None)
    return started_task(task, state, waiting, checkpoint), tuple(commands)


def _broadcast(task: Task, definition: Definition, event: Started, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """The next request of the task becomes runs on all workers, or those that moved are asked again."""
    if event.attendance is None:
        raise IllegalEvent(task.state.task, task.state.status, "Started", "it does not say who is there")
    if task.links is not None and task.links.asks_again:
        return ask_again(task, definition, event.attendance, now_ms)
    more: tuple[Command, ...] = ()
    if not task.waiting:
        task, work, more = _of_the_past(task, definition, now_ms)
        task, more = with_waiting(task, (work,)), (*more, new_put(work))
    task, commands = broadcast(task, definition, event.attendance, now_ms)
    return task, more + commands


def _of_the_past(task: Task, definition: Definition, now_ms: int) -> tuple[Task, Work, tuple[Command, ...]]:
    """The next slot that is caught up with, or of the backfill, as work."""
    if task.state.catching is None:
        return take_backfill(task, definition, now_ms)
    task, work = take_owed(task, definition, now_ms)
    return task, work, ()


def adopted(task: Task, event: Adopted, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """The run goes on in the same process under a new acquisition of the partition."""
    run = current_run(task, event.epoch, "Adopted")
    state = with_run(task.state, with_nonce(run, event.nonce))
    fields = {"attempt": run.attempt, "earlier_nonce": run.nonce}
    return with_state(task, state), (new_history("adopted", run.epoch, now_ms, fields),)


def checkpointed(task: Task, event: Checkpointed, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """What the run saved is kept for the next one of the same work."""
    current_run(task, event.epoch, "Checkpointed")
    if event.data is None:
        return (ended_task(task, task.state, None), (DROP_CHECKPOINT,)) if task.checkpoint is not None else (task, ())
    return ended_task(task, task.state, event.data), (PutCheckpoint(event.data),)


def current_run(task: Task, epoch: int, event: str) -> Run:
    """The run that is on, if it has this epoch. Raises IllegalEvent."""
    run = task.state.run
    if run is None or run.epoch != epoch:
        on = "none is on" if run is None else f"epoch {run.epoch} is on"
        raise IllegalEvent(task.state.task, task.state.status, event, f"it names epoch {epoch}, {on}")
    return run

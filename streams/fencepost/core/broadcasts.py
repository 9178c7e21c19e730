"""Broadcast: a request of one task becomes a run on every worker that is there, and ends when they all have.

An ID belongs to a partition, not to a worker. So each worker is asked by a shard whose ID lies on a partition that the
worker holds (`TASK/on/7.3`: partition 7, and the first number that makes it lie there), and the request says which
worker it is for. Whoever has the partition when it would start looks at that:

- It is that worker: the shard runs, retries and ends like any other.
- It is another one: nothing runs there. The parent is told, looks who is there by now, and asks the worker on a
  partition that it holds then. A worker that holds none has left.

One request at a time is out, as the shards' IDs may be others from one to the next: so no two of them meet on a worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from fencepost.core.attendance import Attendance
from fencepost.core.commands import Ask, Command, Send
from fencepost.core.dependents import SKIPPED, leave_out
from fencepost.core.ending import end_work
from fencepost.core.events import Started, Trigger
from fencepost.core.fans import (
    GATHERED,
    LEFT,
    cycle_begun,
    define_on,
    end_fan,
    fan_of,
    gather,
    id_of,
    keep_fan,
    on_id,
    place_on,
    was_cancelled,
)
from fencepost.core.joins import left_out_of_cycle
from fencepost.core.links import MAX_SHARDS, Fan, Origin, Shard, ShardEnd, Target
from fencepost.core.making import naming, new_drop, new_history, skipped, with_waiting
from fencepost.core.signals import ShardMoved
from fencepost.core.task import Definition, Outcome, Status, Task, Work

Commands = tuple[Command, ...]

MAX_TRIES: Final = 20  # how often one worker is asked, each time because its partition had moved
MOVED: Final = "its partition is another worker's now"
NO_HANDLER: Final = "this worker has no handler for it"


def broadcast(task: Task, definition: Definition, there: Attendance, now_ms: int) -> tuple[Task, Commands]:
    """The next request of the task becomes a trigger for each worker that is there."""
    work = task.waiting[0]
    task = with_waiting(task, task.waiting[1:])
    commands: Commands = (new_drop(work.seq),)
    task_id = task.state.task
    origin = work.origin or Origin(cycle_begun(task_id, work))
    payload = definition.payload if work.payload is None else work.payload
    kept = replace(work, payload=payload, own_record=False, origin=origin)
    targets = tuple([Target(worker, place_on(task_id, home, there.partitions)) for worker, home in there.homes])
    fan = Fan(work.seq, len(targets), now_ms, kept, targets=targets)
    if not 0 < len(targets) <= MAX_SHARDS:
        problem = f"{len(targets)} workers hold partitions; a broadcast is for 1 to {MAX_SHARDS}"
        return end_fan(task, replace(fan, targets=(), shards=0), "failed", now_ms, {"error": problem}, commands)
    commands += (_told(task_id, fan, range(fan.shards), now_ms),)
    task, defined = define_on(task, definition, [target.at for target in targets])
    task, put = keep_fan(task, fan)
    return task, (*commands, *defined, *put, *[_ask(task_id, fan, number) for number in range(fan.shards)])


def ask_again(task: Task, definition: Definition, there: Attendance, now_ms: int) -> tuple[Task, Commands]:
    """Workers whose partition had moved are asked where they are now; those that are nowhere have left."""
    commands: Commands = ()
    for fan in () if task.links is None else task.links.fans:
        if any(target.again for target in fan.targets):
            task, more = _ask_again(task, definition, fan, there, now_ms)
            commands += more
    return task, commands


def _ask_again(task: Task, definition: Definition, fan: Fan, there: Attendance, now_ms: int) -> tuple[Task, Commands]:
    task_id, targets, ends = task.state.task, list(fan.targets), list(fan.done)
    asked: list[int] = []
    told: list[Command] = []
    for number, target in enumerate(fan.targets):
        if not target.again:
            continue
        home = there.home_of(target.worker)
        if home is not None and target.tries < MAX_TRIES:
            at = place_on(task_id, home, there.partitions)
            targets[number] = replace(target, at=at, tries=target.tries + 1, again=False)
            asked.append(number)
            continue
        targets[number] = replace(target, again=False)
        ends = [end for end in ends if end.shard != number]
        ends.append(ShardEnd(number, LEFT if home is None else SKIPPED))
        why = f"worker {target.worker} holds no partition any more"
        if home is not None:
            why = f"the partitions of worker {target.worker} moved {MAX_TRIES} times before it could run"
        told.append(left_out_of_cycle(_cycle(fan), id_of(task_id, fan, number), why, now_ms))
    fan = replace(fan, targets=tuple(targets), done=tuple(ends))
    if asked:
        told.append(_told(task_id, fan, asked, now_ms, again=True))
    task, defined = define_on(task, definition, [targets[number].at for number in asked])
    task, put = gather(task, fan, now_ms)
    return task, (*told, *defined, *put, *[_ask(task_id, fan, number) for number in asked])


def shard_moved(task: Task, signal: ShardMoved, sender: str, now_ms: int) -> tuple[Task, Commands]:
    """A worker could not be asked by this shard: it is asked again with the next look at who is there."""
    fan = fan_of(task, signal.number)
    if fan is None and was_cancelled(task, signal.number):
        return task, ()
    if fan is None or not 0 <= signal.shard < len(fan.targets):
        return task, (left_out_of_cycle(signal.cycle, sender, GATHERED, now_ms),)
    target = fan.targets[signal.shard]
    if target.again or sender != on_id(task.state.task, target.at):
        return task, (left_out_of_cycle(signal.cycle, sender, "its worker is asked on another partition", now_ms),)
    moved = replace(target, again=True, attempt=signal.attempt, losses=signal.losses)
    targets = (*fan.targets[: signal.shard], moved, *fan.targets[signal.shard + 1 :])
    return keep_fan(task, replace(fan, targets=targets))


def not_here(task: Task, event: Started, work: Work, shard: Shard, now_ms: int) -> tuple[Task, Commands] | None:
    """What becomes of a worker's part of a broadcast that this worker does not run; None: it does."""
    if event.worker != shard.worker:
        word = Send(shard.of, ShardMoved(_cycle_of(work), shard.number, shard.shard, work.attempt, work.losses))
        return _over(task, work, MOVED, (skipped(work, MOVED, now_ms), word), (word,), now_ms)
    if event.able:
        return None
    return _over(task, work, NO_HANDLER, leave_out(task, work, NO_HANDLER, now_ms), None, now_ms)


def _over(
    task: Task, work: Work, cause: str, before_it_ran: Commands, word: Commands | None, now_ms: int
) -> tuple[Task, Commands]:
    if task.state.status is Status.BACKOFF:
        return end_work(task, Outcome.INTERRUPTED, cause, now_ms, word=word)
    return with_waiting(task, task.waiting[1:]), (*before_it_ran, new_drop(work.seq))


def _ask(task_id: str, fan: Fan, number: int) -> Ask:
    work, target = fan.work, fan.targets[number]
    part = Shard(task_id, fan.number, number, fan.shards, target.worker, target.attempt, target.losses)
    return Ask(
        Trigger(
            id_of(task_id, fan, number),
            payload=work.payload,
            headers=work.headers,
            priority=work.priority,
            cycle=_cycle(fan),
            upstream=None if work.origin is None else work.origin.upstream,
            shard=part,
        )
    )


def _told(task_id: str, fan: Fan, numbers: Iterable[int], now_ms: int, *, again: bool = False) -> Command:
    """The history of workers that are asked."""
    workers = [{"worker": fan.targets[number].worker, "task": id_of(task_id, fan, number)} for number in numbers]
    fields: dict[str, Any] = {**naming(fan.work), "shards": fan.shards, "workers": workers}
    return new_history("fanned_out", None, now_ms, {**fields, "cause": MOVED} if again else fields)


def _cycle(fan: Fan) -> str:
    return _cycle_of(fan.work)


def _cycle_of(work: Work) -> str:
    assert work.origin is not None
    return work.origin.cycle


def needs_attendance(task: Task) -> bool:
    """Whether the next start of a task that broadcasts asks workers: what is left of a run from before does not."""
    return task.state.status is Status.IDLE


def is_for_a_worker(task: Task) -> bool:
    """Whether what starts next is a worker's part of a broadcast."""
    work = task.state.work if task.state.status is Status.BACKOFF else task.waiting[0] if task.waiting else None
    origin = None if work is None else work.origin
    return origin is not None and origin.shard is not None and bool(origin.shard.worker)

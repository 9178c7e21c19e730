"""The task that this one is a shard of was cancelled."""

from __future__ import annotations

from dataclasses import replace

from fencepost.core.admission import ask_to_stop, grace_of
from fencepost.core.commands import Command
from fencepost.core.dependents import leave_out
from fencepost.core.ending import end_work
from fencepost.core.fans import is_shard_of
from fencepost.core.making import new_drop, with_delayed, with_state, with_waiting
from fencepost.core.signals import CancelShard
from fencepost.core.task import Outcome, Status, Task, Work


def cancel_shard(task: Task, signal: CancelShard, sender: str, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """End what waits, is tried again or runs of exactly these requests; what has not come yet will not start."""
    if not signal.numbers or not is_shard_of(task.state.task, sender):
        return task, ()
    commands: list[Command] = []
    meant = [work for work in (*task.waiting, *task.delayed) if _is_of(work, sender, signal.numbers)]
    for work in meant:
        commands += (*leave_out(task, work, signal.cause, now_ms), new_drop(work.seq))
    if meant:
        gone = {work.seq for work in meant}
        task = with_waiting(task, tuple([work for work in task.waiting if work.seq not in gone]))
        task = with_delayed(task, tuple([work for work in task.delayed if work.seq not in gone]))
    cancelled_to = max(task.state.cancelled_to, *signal.numbers)
    if cancelled_to != task.state.cancelled_to:
        task = with_state(task, replace(task.state, cancelled_to=cancelled_to))
    on = task.state.work
    if on is None or not _is_of(on, sender, signal.numbers):
        return task, tuple(commands)
    if task.state.status is Status.BACKOFF:
        task, ended = end_work(task, Outcome.CANCELLED, signal.cause, now_ms)
        return task, (*commands, *ended)
    task, stop = ask_to_stop(task, signal.cause, 0.0 if signal.at_once else grace_of(task))
    return task, (*commands, *stop)


def _is_of(work: Work, parent: str, numbers: tuple[int, ...]) -> bool:
    shard = None if work.origin is None else work.origin.shard
    return shard is not None and shard.of == parent and shard.number in numbers

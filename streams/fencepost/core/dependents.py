"""The end of a request, told to the tasks that run after this one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost.core.commands import Command, Send
from fencepost.core.links import MAX_PATH
from fencepost.core.making import skipped
from fencepost.core.place import MAIN
from fencepost.core.signals import ShardDone, TellChildren, UpstreamDone, UpstreamMissed
from fencepost.core.task import Task, Work
from fencepost.core.times import format_ms, parse_rfc3339

SUCCEEDED = "succeeded"
SKIPPED = "skipped"


def cycle_of(task_id: str, work: Work, epoch: int) -> str:
    """The cycle that a request belongs to, or begins."""
    if work.origin is not None:
        return work.origin.cycle
    if work.slot_ms is not None:
        return slot_cycle(work.slot_ms)
    return f"run:{task_id}/{epoch if work.trigger_id is None else work.trigger_id}"


def slot_cycle(slot_ms: int) -> str:
    """The cycle of a slot, the same for all tasks that have it."""
    return f"slot:{format_ms(slot_ms)}"


def slot_of_cycle(cycle: str) -> int | None:
    """The slot that a cycle is named by; None for any other."""
    if not cycle.startswith("slot:"):
        return None
    try:
        return parse_rfc3339(cycle.removeprefix("slot:"))
    except ValueError:
        return None  # somebody's own name for a cycle


def tell(task: Task, work: Work, outcome: str, epoch: int, result: Any = None) -> tuple[Command, ...]:
    """A word to each child, and to the task it is a shard of, on the final end of a request, or of each of a batch.

    `epoch` 0: nothing of it ran.
    """
    if work.members:
        alone = replace(work, members=())
        return tuple(
            [command for each in (alone, *work.members) for command in tell(task, each, outcome, epoch, result)]
        )
    links, origin = task.links, work.origin
    if origin is not None and origin.shard is not None:
        shard = origin.shard
        done = ShardDone(origin.cycle, shard.number, shard.shard, outcome, epoch, result)
        return (Send(shard.of, done), *_tell_children(task, work, outcome, epoch, result))
    if (links is None or not links.children) and not _is_away(task):
        return ()
    return _tell_children(task, work, outcome, epoch, result)


def _tell_children(task: Task, work: Work, outcome: str, epoch: int, result: Any) -> tuple[Command, ...]:
    path = () if work.origin is None else work.origin.path
    return tell_of_cycle(task, cycle_of(task.state.task, work, epoch), path, outcome, epoch, result)


def tell_of_cycle(
    task: Task, cycle: str, path: tuple[str, ...], outcome: str, epoch: int = 0, result: Any = None
) -> tuple[Command, ...]:
    """The same where no request was made of the cycle; `path`: the tasks before this one.

    The children of a task that is in a pool (or has left this one) are known there, and told from there.
    """
    links, way = task.links, (*path, task.state.task)[-MAX_PATH:]
    tolerated = outcome != SUCCEEDED and _tolerated(task)
    if _is_away(task):
        assert task.state.place is not None
        there = task.state.place.pool or MAIN
        return (Send(task.state.task, TellChildren(cycle, outcome, way, epoch, result, tolerated), there),)
    if links is None:
        return ()
    told = UpstreamDone(cycle, outcome, way, epoch, result, None, tolerated)
    return tuple([Send(child, told) for child in links.children])


def pass_on(task: Task, signal: TellChildren) -> tuple[Command, ...]:
    """What was to be told to the children, where they are."""
    if _is_away(task):
        assert task.state.place is not None
        return (Send(task.state.task, signal, task.state.place.pool or MAIN),)
    told = UpstreamDone(
        signal.cycle, signal.outcome, signal.path, signal.epoch, signal.result, None, signal.tolerated
    )  # fmt: skip
    return tuple([Send(child, told) for child in (() if task.links is None else task.links.children)])


def tell_missed(task: Task, first_ms: int, last_ms: int) -> tuple[Command, ...]:
    """One word to each child on a series of slots that were missed, however many."""
    links = task.links
    if links is None or not links.children:
        return ()
    told = UpstreamMissed(first_ms, last_ms, _tolerated(task))
    return tuple([Send(child, told) for child in links.children])


def _is_away(task: Task) -> bool:
    return task.state.place is not None and task.state.place.away


def _tolerated(task: Task) -> bool:
    return task.definition is not None and not task.definition.propagate_failure


def leave_out(task: Task, work: Work, cause: str, now_ms: int) -> tuple[Command, ...]:
    """The history of a request that will not become a run; children that may wait for its cycle are told.

    A trigger without a cycle of its own would have begun one with its run: nobody waits for that.
    """
    history = skipped(work, cause, now_ms)
    if work.origin is None and (task.links is None or work.slot_ms is None):
        return (history,)
    return (history, *tell(task, work, SKIPPED, 0))

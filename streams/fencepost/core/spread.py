"""A backfill whose slots run side by side: on IDs of its own, `TASK/backfill/0` and so on, as one ID never overlaps.

The task's owner gives each of these IDs one slot at a time, by a trigger in the transaction that records it, and the
next one when it was told of the end. So there are never more on than IDs, whoever dies. What is kept is where to go on,
and each slot that is out, as a request with a single shard (`core.fans`). The IDs have the task's definition without
what makes requests. They stay for the next backfill, and go with the task.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from fencepost.core.backfills import DROP_LEFT_OUT, asked_by, drop_backfill, next_of
from fencepost.core.commands import Ask, Command, Define
from fencepost.core.dependents import SKIPPED, SUCCEEDED, slot_cycle
from fencepost.core.events import Trigger
from fencepost.core.fans import FAN_BYTES, call_off, fan_of, gathered, keep_fan, shard_of, slot_id
from fencepost.core.ids import MAX_ID_BYTES
from fencepost.core.joins import keep_links
from fencepost.core.links import Fan, Links, Origin, Shard
from fencepost.core.making import backfilled, naming, new_history, new_work, with_left_out, with_state
from fencepost.core.recent import hash_of
from fencepost.core.schedule import Schedule
from fencepost.core.signals import ShardDone
from fencepost.core.sizes import json_bytes
from fencepost.core.task import Backfill, Definition, Task

Commands = tuple[Command, ...]

MAX_RUNS: Final = 100  # of one backfill at once


def why_not_side_by_side(definition: Definition) -> str | None:
    """Why no backfill of the task can have more than one run at once; None: it can."""
    if definition.fans_out:
        return "max_runs above 1 is not for a task that is fanned out: its shards run side by side"
    if definition.pool is not None:
        return "max_runs above 1 is not for a task in a pool"
    if MAX_RUNS * json_bytes(definition.payload) > FAN_BYTES:
        return f"max_runs above 1 is not for a task whose payload has more than {FAN_BYTES // MAX_RUNS:,} bytes"
    if not has_room_for_slots(definition.task):
        return f"an ID of {MAX_ID_BYTES} bytes at most leaves no room for the IDs of a backfill with max_runs above 1"
    return None


def has_room_for_slots(task_id: str) -> bool:
    """Whether the IDs of its backfills would not be too long."""
    return len(slot_id(task_id, MAX_RUNS - 1).encode()) <= MAX_ID_BYTES


def go_on(task: Task, now_ms: int) -> tuple[Task, Commands]:
    """Give each ID that is free the next slot; say how it all ended once nothing is out any more."""
    backfill, definition = task.state.backfill, task.definition
    if backfill is None or backfill.max_runs == 1:
        return task, ()
    commands: Commands = ()
    taken = {fan.place for fan in _out(task, backfill)}
    if definition is not None and definition.schedule is not None and not task.state.paused:
        for place in range(backfill.max_runs):
            if place not in taken and backfill.next_ms <= backfill.until_ms:
                task, more = _give(task, definition, definition.schedule, backfill, place, now_ms)
                taken.add(place)
                commands += more
                assert task.state.backfill is not None
                backfill = task.state.backfill
    if taken or backfill.next_ms <= backfill.until_ms:
        return task, commands
    task, over = _end(task, backfill, now_ms)
    return task, commands + over


def shard_done(task: Task, signal: ShardDone, sender: str, now_ms: int) -> tuple[Task, Commands]:
    """The request of a shard has ended, or a slot that was given to one of the backfill's IDs."""
    backfill = task.state.backfill
    fan = fan_of(task, signal.number)
    if fan is None or fan.place is None:
        return gathered(task, signal, sender, now_ms)
    if backfill is not None and fan.work.asked_by == asked_by(backfill.id):
        counted = _counted(backfill, fan, signal.outcome)
        task = with_state(task, backfilled(task.state, counted, task.state.next_seq))
    task, commands = gathered(task, signal, sender, now_ms)
    task, more = go_on(task, now_ms)
    return task, commands + more


def follow_backfill(task: Task, definition: Definition, now_ms: int) -> tuple[Task, Commands]:
    """The task has this definition now, or is paused or resumed: the IDs of its backfills follow it."""
    commands: Commands = ()
    if task.links is None and task.state.backfill is None:
        return task, ()
    if why_not_side_by_side(definition) is not None:
        task, commands = end_backfill(task, "it cannot have a backfill side by side any more", now_ms)
        task, gone = forget_ids(task)
        return task, commands + gone
    if task.links is not None and task.links.backfill_ids:
        task, commands = _define(task, definition, task.links.backfill_ids)
    task, more = go_on(task, now_ms)
    return task, commands + more


def end_backfill(task: Task, cause: str, now_ms: int) -> tuple[Task, Commands]:
    """Nothing of it goes on, what is out included."""
    backfill = task.state.backfill
    if backfill is None or backfill.max_runs == 1:
        return task, ()
    task, commands = drop_backfill(task, cause, now_ms)
    task, off = call_off(task, cause, now_ms)
    task, over = go_on(task, now_ms)
    return task, commands + off + over


def forget_ids(task: Task) -> tuple[Task, Commands]:
    """No more IDs of backfills: their definitions are deleted."""
    links = task.links
    if links is None or not links.backfill_ids:
        return task, ()
    gone = tuple([Define(slot_id(task.state.task, place), None) for place in range(links.backfill_ids)])
    task, put = keep_links(task, replace(links, backfill_ids=0, backfill_definition=""))
    return task, (*gone, *put)


def _give(
    task: Task, definition: Definition, schedule: Schedule, backfill: Backfill, place: int, now_ms: int
) -> tuple[Task, Commands]:
    """The next slot becomes a request of the ID at this place."""
    slot_ms, seq, name = backfill.next_ms, task.state.next_seq, task.state.task
    who, cycle = asked_by(backfill.id), slot_cycle(slot_ms)
    work = new_work(
        seq, None, slot_ms, 0, now_ms, priority=definition.priority, origin=Origin(cycle), asked_by=who
    )  # fmt: skip
    following = next_of(schedule, slot_ms, backfill.until_ms, task.left_out)
    next_ms = backfill.until_ms + 1 if following is None else following
    left = replace(backfill, next_ms=next_ms, done=backfill.done + 1)
    task = with_state(task, backfilled(task.state, left, seq + 1))
    task, defined = _define(task, definition, place + 1)
    task, put = keep_fan(task, Fan(seq, 1, now_ms, work, place=place))
    fields = {**naming(work), "shards": 1, "to": slot_id(name, place)}
    trigger = Trigger(
        slot_id(name, place),
        priority=definition.priority,
        cycle=cycle,
        shard=Shard(name, seq, 0, 0),
        slot_ms=slot_ms,
        asked_by=who,
    )
    return task, (new_history("fanned_out", None, now_ms, fields), *defined, *put, Ask(trigger))


def _define(task: Task, definition: Definition, count: int) -> tuple[Task, Commands]:
    """The IDs' definitions, where these are not the ones that were written last."""
    links, name = task.links or Links(), task.state.task
    told = hash_of(repr(shard_of(definition, name, name, paused=task.state.paused)))
    known = links.backfill_ids if links.backfill_definition == told else 0
    if count <= known:
        return task, ()
    count = max(count, links.backfill_ids)
    commands = tuple(
        [
            Define(slot_id(name, place), shard_of(definition, name, slot_id(name, place), paused=task.state.paused))
            for place in range(known, count)
        ]
    )
    task, put = keep_links(task, replace(links, backfill_ids=count, backfill_definition=told))
    return task, (*put, *commands)


def _end(task: Task, backfill: Backfill, now_ms: int) -> tuple[Task, Commands]:
    told: dict[str, Any] = {"asked_by": asked_by(backfill.id)}
    if backfill.done:
        told["count"] = backfill.done
    told |= {"succeeded": backfill.succeeded, "failed": backfill.failed, "skipped": backfill.skipped}
    cancelled = backfill.done - backfill.succeeded - backfill.failed - backfill.skipped
    if cancelled:
        told["cancelled"] = cancelled
    commands: Commands = ()
    if task.left_out:
        told["left_out"] = len(task.left_out)
        task, commands = with_left_out(task, ()), (DROP_LEFT_OUT,)
    task = with_state(task, backfilled(task.state, None, task.state.next_seq))
    return task, (new_history("backfilled", None, now_ms, told), *commands)


def _counted(backfill: Backfill, fan: Fan, outcome: str) -> Backfill:
    """One that did not succeed and was sent again may do so after all; then it counts where it ends last.

    A slot of an earlier backfill of the same name, sent again now, never counts where nothing of this one did.
    """
    count = _counter(outcome)
    if fan.failed:
        before = _counter(fan.done[-1].outcome)
        if getattr(backfill, before) == 0:
            return backfill
        backfill = replace(backfill, **{before: getattr(backfill, before) - 1})
    return replace(backfill, **{count: getattr(backfill, count) + 1})


def _counter(outcome: str) -> str:
    """The field that counts slots which ended so."""
    return outcome if outcome in (SUCCEEDED, SKIPPED) else "failed"


def _fans(task: Task) -> tuple[Fan, ...]:
    return () if task.links is None else task.links.fans


def _out(task: Task, backfill: Backfill) -> list[Fan]:
    """Slots of it that were given to an ID and have not ended."""
    who = asked_by(backfill.id)
    return [fan for fan in _fans(task) if fan.place is not None and not fan.failed and fan.work.asked_by == who]

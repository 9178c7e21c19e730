"""Another task's owner tells this one something. Each signal is taken once, by its offset in the control topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from fencepost.core.broadcasts import shard_moved
from fencepost.core.commands import Command, Send
from fencepost.core.dependents import pass_on
from fencepost.core.events import Signalled
from fencepost.core.joins import keep_links, undefined, upstream_done, upstream_missed
from fencepost.core.links import MAX_CHILDREN, Links
from fencepost.core.making import new_history
from fencepost.core.place import MAIN, Place
from fencepost.core.signals import (
    KIND_OF,
    Ask,
    CancelShard,
    Carry,
    GaveBack,
    GiveBack,
    Grant,
    ShardDone,
    ShardMoved,
    Signal,
    Subscribe,
    TellChildren,
    Unsubscribe,
    UpstreamDone,
    UpstreamMissed,
)
from fencepost.core.spread import shard_done
from fencepost.core.steps.limit import asked, given_back, granted
from fencepost.core.steps.move import carried, gave_back
from fencepost.core.steps.operator import take_control
from fencepost.core.steps.shard import cancel_shard
from fencepost.core.task import Task

# (task, signal, ID of the sender, now_ms) -> (task afterwards, commands)
Taker = Callable[[Task, Any, str, int], tuple[Task, tuple[Command, ...]]]


def signalled(task: Task, event: Signalled, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """What the kind of the signal says. For a task that is not defined most kinds are left out, with a word on it."""
    signal = event.signal
    taken = take_control(task, event.offset)
    if taken is None:
        return task, ()
    if task.definition is None and type(signal) not in _ALSO_UNDEFINED:
        left = left_out(task, signal, event.sender, now_ms)
        if not task.state.never_defined:  # of an ID that is no task at all nothing is kept for that
            task = taken
        # Whoever tells what is no child any more is asked to stop, so that it does not go on for ever.
        return task, (left, Send(event.sender, Unsubscribe())) if isinstance(signal, UpstreamDone) else (left,)
    return _TAKERS[type(signal)](taken, signal, event.sender, now_ms)


def left_out(task: Task, signal: Signal, sender: str, now_ms: int, cause: str | None = None) -> Command:
    """The history of a signal that changes nothing here."""
    fields = {"signal": KIND_OF[type(signal)], "from": sender, "cause": cause or undefined(task)}
    if isinstance(signal, UpstreamDone):
        fields["cycle"] = signal.cycle
    return new_history("skipped", None, now_ms, fields)


def _subscribe(task: Task, signal: Subscribe, sender: str, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    place = task.state.place
    if signal.number and place is not None and _moved_on(place, signal.number):
        return task, (Send(task.state.task, Subscribe(place.number), place.pool or MAIN, sender),)
    links = task.links or Links()
    if sender in links.children:
        return task, ()
    if len(links.children) >= MAX_CHILDREN:
        return task, (left_out(task, signal, sender, now_ms, f"{MAX_CHILDREN} tasks run after this one already"),)
    return keep_links(task, replace(links, children=(*links.children, sender)))


def _moved_on(place: Place, number: int) -> bool:
    """Whether what went along in this move comes after the task, which has gone on. It may also come before the task:
    then it is kept here, as the task may run as soon as it is here."""
    return place.number >= number if place.left else place.pool is not None and place.number > number


def _unsubscribe(task: Task, _signal: Unsubscribe, sender: str, _now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    links = task.links
    if links is None or sender not in links.children:
        return task, ()
    return keep_links(task, replace(links, children=tuple(child for child in links.children if child != sender)))


def _tell_children(task: Task, signal: TellChildren, _sender: str, _now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    return task, pass_on(task, signal)


_TAKERS: Final[dict[type[Signal], Taker]] = {
    Subscribe: _subscribe,
    Unsubscribe: _unsubscribe,
    UpstreamDone: upstream_done,
    UpstreamMissed: upstream_missed,
    ShardDone: shard_done,
    CancelShard: cancel_shard,
    ShardMoved: shard_moved,
    Carry: carried,
    TellChildren: _tell_children,
    GaveBack: gave_back,
    Ask: asked,
    GiveBack: given_back,
    Grant: granted,
}
# A child may be defined before its parent: the parent finds it there when it comes.
_ALSO_UNDEFINED: Final = frozenset(
    (Subscribe, Unsubscribe, CancelShard, Carry, TellChildren, GaveBack, Ask, GiveBack, Grant)
)

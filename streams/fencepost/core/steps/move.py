"""A task moves: into a pool, from one pool to another, or back into the namespace.

The namespace's owner of the ID decides, and hands on what comes for a task that is in a pool. Nothing of a task starts
where it is not, so two pools never run one ID at once, and its epoch goes along, so none is given out twice:

- Out: once no run is on. In one transaction the state says that the task is away, everything that waits is carried to
  the pool, and the pool is given the definition with the luggage. A pool starts a task only by such a definition.
- Back, also on the way to another pool: the pool is given the definition with a recall. Once no run is on there, its
  transaction says that the task has left, and carries what waits and the luggage home. Only then is it the namespace's.

What decides stays with the namespace, only runs move. A task that fans out never runs itself: it stays, and its shards
move. The cycles of one that runs after others are joined in the namespace (`core.joins`); each goes to the pool as the
request it has become. Who runs after the task goes along with it: they are told where it ends.

Requests are counted on wherever the task is: a number names one request for those who must not do it twice
(`idempotency_key`), and one ask for a limit.

Moves are numbered, so that a definition or an answer that is of an earlier move says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from fencepost.core.admission import admit, waits
from fencepost.core.backfills import drop_backfill
from fencepost.core.commands import Command, Hand, PutCheckpoint, Send
from fencepost.core.dependents import leave_out
from fencepost.core.ending import DROP_CHECKPOINT
from fencepost.core.events import Defined, Deleted, Ended, Interrupted
from fencepost.core.joins import follow, keep_links
from fencepost.core.links import When
from fencepost.core.making import naming, new_drop, new_history, new_put, with_delayed, with_state, with_waiting
from fencepost.core.owed import drop_owed
from fencepost.core.place import MAIN, Arrival, Luggage, Place
from fencepost.core.rank import behind_its_level, in_order, line_up
from fencepost.core.recent import KEPT
from fencepost.core.room import needs_own_record
from fencepost.core.signals import Carry, GaveBack, Subscribe
from fencepost.core.slots import fingerprint_of, fire_slots
from fencepost.core.spread import end_backfill, forget_ids
from fencepost.core.steps import definition as here
from fencepost.core.steps import end
from fencepost.core.task import Definition, Status, Task, TaskState, Work

Stepped = tuple[Task, tuple[Command, ...]]


def defined(task: Task, event: Defined, now_ms: int) -> Stepped:
    """Take the definition, and go where it says that the task belongs."""
    definition, place = event.definition, task.state.place
    if place is None and _pool_of(definition) is None:
        return here.defined(task, event, now_ms)
    if definition == task.definition:
        return task, ()
    if definition.arrival is not None:
        return _defined_in_pool(task, event, definition.arrival, now_ms)
    if place is not None and place.pool is not None:
        return _defined_while_away(task, event, place, place.pool, now_ms)
    task, commands = here.defined(task, event, now_ms)
    task, more = _moves_on(task, now_ms)
    return task, commands + more


def deleted(task: Task, event: Deleted, now_ms: int) -> Stepped:
    """Taken away here, it is taken away in the pool as well; where it is stays known, for when it is defined again."""
    task, commands = here.deleted(task, event, now_ms)
    place = task.state.place
    if not commands or place is None or place.pool is None:
        return task, commands
    state = replace(task.state, place=replace(place, sent=None))
    return with_state(task, state), (*commands, Hand(place.pool, None))


def ended(task: Task, event: Ended, now_ms: int) -> Stepped:
    """The run is over: a task that belongs elsewhere moves now."""
    task, commands = end.ended(task, event, now_ms)
    if task.definition is None or task.definition.pool is None:
        return task, commands
    task, more = _moves_on(task, now_ms)
    return task, commands + more


def interrupted(task: Task, event: Interrupted, now_ms: int) -> Stepped:
    """The same for a run that was stopped from outside."""
    task, commands = end.interrupted(task, event, now_ms)
    if task.definition is None or task.definition.pool is None:
        return task, commands
    task, more = _moves_on(task, now_ms)
    return task, commands + more


def carried(task: Task, signal: Carry, _sender: str, now_ms: int) -> Stepped:
    """A request that came along with the task: it waits here, with the attempts it had.

    The task may have been called back by a definition that was read before it: then it goes after the task.
    """
    state = task.state
    if state.place is not None and state.place.away and not state.place.recalled:
        on = Carry(_light(signal.work), signal.checkpoint, signal.new, signal.next_seq)
        return task, (Send(state.task, on, state.place.pool or MAIN),)
    seq = _number_of(task, signal)
    work = replace(signal.work, seq=seq, offset=-1, own_record=needs_own_record(signal.size, state.task))
    definition = task.definition
    if definition is None:
        return task, leave_out(task, work, "deleted", now_ms)
    task = with_state(task, replace(state, next_seq=max(state.next_seq, seq + 1)))
    if signal.new:
        return admit(task, definition, work, now_ms, recorded=False)
    room: tuple[Command, ...] = ()
    if seq < state.next_seq:  # its own: what came here meanwhile may have it
        task, room = _renumbered(task, lambda other: other.seq == seq)
    if work.due_ms <= now_ms:
        work = behind_its_level(task.waiting, work)
    commands: tuple[Command, ...] = (*room, waits(work, now_ms), new_put(work))
    if signal.checkpoint is not None:
        task = replace(task, checkpoint=signal.checkpoint)
        commands += (PutCheckpoint(signal.checkpoint),)
    if work.due_ms > now_ms:
        delayed = sorted((*task.delayed, work), key=lambda item: (item.due_ms, item.seq))
        return replace(task, delayed=tuple(delayed)), commands
    return replace(task, waiting=in_order(task.waiting, work)), commands


def gave_back(task: Task, signal: GaveBack, _sender: str, now_ms: int) -> Stepped:
    """The pool has nothing of the task any more: it is here, or goes on to where it belongs by now."""
    place = task.state.place
    if place is None or place.pool is None or place.number != signal.number:
        return task, ()
    luggage = Luggage(**{name: getattr(signal, name) for name in Luggage.__slots__})
    task = with_state(task, _unpacked(task.state, luggage))
    history = new_history("moved", luggage.epoch or None, now_ms, {"from": _pool(place.pool)})
    # What came here meanwhile may have the number of a request that ran in the pool.
    task, room = _renumbered(task, lambda work: not _ran(work) and work.seq < luggage.next_seq)
    if task.definition is None:
        return task, (history, *room)
    definition = task.definition
    task, commands = defined(replace(task, definition=None), _as_new(definition, luggage), now_ms)
    return task, (history, *room, *commands)


def _defined_in_pool(task: Task, event: Defined, arrival: Arrival, now_ms: int) -> Stepped:
    luggage, place = arrival.luggage, task.state.place
    commands: tuple[Command, ...] = ()
    if place is None or luggage.number > place.number:
        task = with_state(task, _unpacked(task.state, luggage))
        commands = (new_history("moved", luggage.epoch or None, now_ms, {"to": _pool(event.definition.pool)}),)
        if not event.restored:
            event = _as_new(event.definition, luggage)
    elif luggage.number < place.number or place.left:
        return task, ()
    task, more = here.defined(task, event, now_ms)
    task, last = _moves_on(task, now_ms)
    return task, commands + more + last


def _defined_while_away(task: Task, event: Defined, place: Place, pool: str, now_ms: int) -> Stepped:
    """The pool is told; and asked to give the task back, where it belongs elsewhere now."""
    definition = event.definition
    recall = place.recalled or _pool_of(definition) != pool
    sent = _fingerprint(definition)
    state = replace(task.state, deleted=False, place=replace(place, sent=sent, recalled=recall))
    task = replace(task, definition=definition)
    commands: tuple[Command, ...] = ()
    if state != task.state:
        commands = (Hand(pool, _handed(definition, pool, Arrival(_luggage(state, place.number), recall))),)
        if not event.restored:
            commands += (new_history("defined", None, now_ms, {"changed": True}),)
        task = with_state(task, state)
    task, followed = follow(task, definition, now_ms)
    return task, commands + followed


def _moves_on(task: Task, now_ms: int) -> Stepped:
    """Leave for where the task belongs, if that is elsewhere and no run is on."""
    definition, state = task.definition, task.state
    pool = None if definition is None else _pool_of(definition)
    if definition is None or pool is None or state.status is Status.RUNNING:
        return task, ()
    if definition.arrival is None:
        return _leave_for(task, definition, pool, now_ms)
    if definition.arrival.recall and not (state.place is not None and state.place.left):
        return _leave_for(task, definition, MAIN, now_ms)
    return task, ()


def _leave_for(task: Task, definition: Definition, pool: str, now_ms: int) -> Stepped:
    commands: tuple[Command, ...] = ()
    if not task.state.paused:
        task, commands = fire_slots(task, now_ms)  # what is due is a request by now, and goes along
    task, more = _taken_apart(task, now_ms)
    number = (0 if task.state.place is None else task.state.place.number) + (pool != MAIN)
    commands += (*more, *_packed(task, pool, number, now_ms))
    task, more = _children_gone(task)
    commands += more
    if pool == MAIN:
        luggage = _luggage(task.state, number)
        fields = {name: getattr(luggage, name) for name in Luggage.__slots__}
        commands += (Send(task.state.task, GaveBack(**fields), MAIN),)
        place = Place(number, left=True)
    else:
        arrival = Arrival(_luggage(task.state, number))
        commands += (Hand(pool, _handed(definition, pool, arrival)),)
        place = Place(number, pool, _fingerprint(definition))
    if task.state.schedule_fingerprint is not None:
        commands += (new_history("defined", None, now_ms, {"changed": True, "schedule": None}),)
    state = replace(
        task.state,
        status=Status.IDLE,
        work=None,
        retry_at_ms=None,
        next_slot_ms=None,
        schedule_fingerprint=None,
        place=place,
    )
    return replace(task, state=state, waiting=(), delayed=(), checkpoint=None), commands


def _taken_apart(task: Task, now_ms: int) -> Stepped:
    """The requests of a batch go one by one; slots of the past are no requests yet, and do not go along."""
    work = task.state.work
    if work is not None and work.members:
        state = replace(task.state, work=replace(work, members=()))
        task = replace(task, state=state, waiting=(*work.members, *task.waiting))
    task, owed = drop_owed(task, "moved", now_ms)
    task, side_by_side = end_backfill(task, "moved", now_ms)
    task, gone = forget_ids(task)
    task, backfill = drop_backfill(task, "moved", now_ms)
    return task, (*owed, *side_by_side, *gone, *backfill)


def _packed(task: Task, pool: str, number: int, now_ms: int) -> tuple[Command, ...]:
    """Everything that waits goes along, and is accounted for here."""
    state = task.state
    to = {"to": _pool(pool)}
    works = [*task.waiting, *task.delayed]
    commands: list[Command] = [new_drop(work.seq) for work in works]
    if state.work is not None:
        if state.work.own_record:
            commands.append(new_drop(state.work.seq))
        retried = replace(state.work, due_ms=max(state.work.due_ms, state.retry_at_ms or 0))
        works.insert(0, retried)
    if task.checkpoint is not None:
        commands.append(DROP_CHECKPOINT)
    if task.links is not None:
        commands += [Send(state.task, Subscribe(number), pool, child) for child in task.links.children]
    for work in works:
        checkpoint = task.checkpoint if work.resumed else None
        commands.append(Send(state.task, Carry(_light(work), checkpoint, next_seq=state.next_seq), pool))
        commands.append(new_history("moved", None, now_ms, {**naming(work), **to}))
    commands.append(new_history("moved", state.epoch or None, now_ms, {**to, "carried": len(works)}))
    return tuple(commands)


def _children_gone(task: Task) -> Stepped:
    """Who runs after the task goes along; whom it runs after, and their cycles, stay with the namespace."""
    links = task.links
    if links is None or not links.children:
        return task, ()
    return keep_links(task, replace(links, children=()))


def _ran(work: Work) -> bool:
    """Whether a run of it was on, which was told its number (`idempotency_key`)."""
    return bool(work.attempt or work.losses or work.past or work.resumed)


def _number_of(task: Task, signal: Carry) -> int:
    """The number of a request that came along: its own where a run of it knows that, as all attempts have one.

    Otherwise one above those of both places, so that it need not be numbered again once the task is here.
    """
    work, fresh = signal.work, max(task.state.next_seq, signal.next_seq)
    if not _ran(work):
        return fresh
    here_on = task.state.work
    taken = {other.seq for other in (*task.waiting, *task.delayed) if _ran(other)}
    if work.seq in taken or (here_on is not None and here_on.seq == work.seq):
        return fresh
    return work.seq


def _renumbered(task: Task, meant: Callable[[Work], bool]) -> Stepped:
    """These requests have new numbers, in their order."""
    fresh: dict[int, Work] = {}
    for work in sorted((*task.waiting, *task.delayed), key=lambda work: work.seq):
        if meant(work):
            fresh[work.seq] = replace(work, seq=task.state.next_seq + len(fresh))
    if not fresh:
        return task, ()
    task = with_state(task, replace(task.state, next_seq=task.state.next_seq + len(fresh)))
    task = with_waiting(task, line_up([fresh.get(work.seq, work) for work in task.waiting]))
    delayed = sorted([fresh.get(work.seq, work) for work in task.delayed], key=lambda work: (work.due_ms, work.seq))
    drops = tuple([new_drop(seq) for seq in fresh])
    return with_delayed(task, tuple(delayed)), (*drops, *[new_put(work) for work in fresh.values()])


def _pool_of(definition: Definition) -> str | None:
    """Where the task itself belongs. What is run by shards has no runs of its own: it stays, and they move."""
    return None if definition.fans_out else definition.pool


def _handed(definition: Definition, pool: str, arrival: Arrival) -> Definition:
    """As a pool gets it: without what makes requests of others' ends, and parts of requests."""
    return replace(definition, pool=pool, arrival=arrival, after=(), when=When.ALL_SUCCEEDED, shards=0, map="", chunk=1)


def _light(work: Work) -> Work:
    return replace(work, own_record=False)


def _luggage(state: TaskState, number: int) -> Luggage:
    return Luggage(
        number,
        state.epoch,
        state.last_slot_ms,
        state.not_before_ms,
        state.paused,
        state.pause_reason,
        state.schedule_fingerprint,
        tuple(f"{hashed} {at_ms}" for hashed, at_ms in state.recent_ids),
        state.cancelled_to,
        state.next_seq,
        state.defined_paused,
    )


def _unpacked(state: TaskState, luggage: Luggage) -> TaskState:
    place = state.place
    spoken = place is not None and place.pool is not None and place.spoken
    recent = dict(state.recent_ids)
    for entry in luggage.recent:
        hashed, _, at_ms = entry.partition(" ")
        recent[hashed] = max(int(at_ms), recent.get(hashed, 0))
    newest = sorted(recent.items(), key=lambda item: item[1])[-KEPT:]
    return replace(
        state,
        epoch=max(state.epoch, luggage.epoch),
        last_slot_ms=max(state.last_slot_ms, luggage.last_slot_ms),
        not_before_ms=max(state.not_before_ms, luggage.not_before_ms),
        paused=state.paused if spoken else luggage.paused,
        pause_reason=state.pause_reason if spoken else luggage.pause_reason,
        defined_paused=luggage.defined_paused,
        recent_ids=tuple(newest),
        cancelled_to=max(state.cancelled_to, luggage.cancelled_to),
        next_seq=max(state.next_seq, luggage.next_seq),
        place=Place(luggage.number, spoken=spoken),
    )


def _as_new(definition: Definition, luggage: Luggage) -> Defined:
    """A schedule that goes on counts from its last slot, as after a takeover; another one from now."""
    schedule = definition.schedule
    goes_on = schedule is not None and luggage.schedule == fingerprint_of(schedule)
    return Defined(definition, restored=goes_on)


def _fingerprint(definition: Definition) -> str:
    return blake2b(repr(definition).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _pool(pool: str | None) -> Any:
    return pool or "the namespace"

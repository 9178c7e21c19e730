"""A task that runs after others: one request for each cycle, once its parents have ended as it wants.

Whatever the order in which parents end, and however often one of them ends again (retried, replayed), a cycle becomes
one request. Cycles that never come to an end are bounded: the oldest goes, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from fencepost.core.admission import admit
from fencepost.core.commands import Command, DropJoin, DropLinks, PutJoin, PutLinks, Send
from fencepost.core.dependents import SKIPPED, SUCCEEDED, slot_of_cycle, tell_of_cycle
from fencepost.core.links import KEPT_RAN, MAX_JOINS, MAX_PATH, RESULTS_BYTES, Done, Join, Links, Origin, When
from fencepost.core.making import bounded, naming, new_history, new_work, with_links, with_state
from fencepost.core.recent import hash_of
from fencepost.core.room import escapes, needs_own_record
from fencepost.core.signals import Carry, Subscribe, Unsubscribe, UpstreamDone, UpstreamMissed
from fencepost.core.task import Definition, Task

Commands = tuple[Command, ...]

_TOLD_BYTES: Final = 160  # what a run is told of a parent, without its name and its result
RAN_ALREADY: Final = "this cycle became a request before"


class Verdict(Enum):
    """What the ends of the parents so far come to."""

    WAIT = "wait"
    RUN = "run"
    FAIL = "fail"


def verdict(after: Iterable[str], when: When, done: Iterable[Done]) -> Verdict:
    """Parents that are not in `after` (any more) do not count."""
    ended = {item.parent: item.ok for item in done}
    parents = [ended.get(parent) for parent in after]  # None: not ended
    if when is When.ANY and True in parents:
        return Verdict.RUN
    if when is When.ALL_SUCCEEDED and False in parents:
        return Verdict.FAIL
    if None in parents:
        return Verdict.WAIT
    return Verdict.FAIL if when is When.ANY else Verdict.RUN


def upstream_done(task: Task, signal: UpstreamDone, sender: str, now_ms: int) -> tuple[Task, Commands]:
    """A parent's request of a cycle has ended."""
    definition, task_id = task.definition, task.state.task
    assert definition is not None
    if sender not in definition.after:
        left = left_out_of_cycle(signal.cycle, sender, "it does not run after this task", now_ms)
        return task, (left, Send(sender, Unsubscribe()))
    if task_id in signal.path:
        return task, (left_out_of_cycle(signal.cycle, sender, _loop(signal.path, task_id), now_ms),)
    links = task.links or Links()
    if hash_of(signal.cycle) in links.ran:
        return task, (left_out_of_cycle(signal.cycle, sender, RAN_ALREADY, now_ms),)
    join = next((known for known in links.joins if known.cycle == signal.cycle), None)
    if join is None:
        join = Join(links.joins[-1].number + 1 if links.joins else 1, signal.cycle, now_ms)
    return _settle(task, definition, _with_end(join, sender, signal), sender, now_ms)


def upstream_missed(task: Task, signal: UpstreamMissed, sender: str, now_ms: int) -> tuple[Task, Commands]:
    """A parent missed slots: cycles of theirs that wait for it are decided on; none is opened for them."""
    definition, links = task.definition, task.links
    assert definition is not None
    commands: Commands = ()
    if sender not in definition.after or links is None:
        return task, commands
    for join in links.joins:
        slot_ms = slot_of_cycle(join.cycle)
        if slot_ms is None or not signal.first_ms <= slot_ms <= signal.last_ms:
            continue
        if any(item.parent == sender for item in join.done):
            continue
        ended = UpstreamDone(join.cycle, SKIPPED, join.path, tolerated=signal.tolerated)
        task, more = _settle(task, definition, _with_end(join, sender, ended), sender, now_ms)
        commands += more
    return task, commands


def undefined(task: Task) -> str:
    """Why there is no task."""
    return "deleted" if task.state.deleted or task.state.epoch else "not defined"


def follow(task: Task, definition: Definition, now_ms: int) -> tuple[Task, Commands]:
    """The task has this definition now: ask those it runs after to tell it, and decide anew on cycles that wait."""
    links = task.links
    if links is None and not definition.after:
        return task, ()
    links = links or Links()
    commands: list[Command] = [Send(one, Subscribe()) for one in definition.after if one not in links.parents]
    commands += [Send(one, Unsubscribe()) for one in links.parents if one not in definition.after]
    if links.parents != definition.after:
        task, put = keep_links(task, replace(links, parents=definition.after))
        commands += put
    for join in links.joins:
        if not definition.after:
            task, more = _close(task, join, "it runs after no other task any more", now_ms)
        else:
            task, more = _settle(task, definition, join, None, now_ms)
        commands += more
    return task, tuple(commands)


def unfollow(task: Task, now_ms: int) -> tuple[Task, Commands]:
    """The task is deleted: nobody needs to tell it anything, and the cycles that wait are over."""
    links = task.links
    if links is None or not (links.parents or links.joins):
        return task, ()
    commands: list[Command] = [Send(parent, Unsubscribe()) for parent in links.parents]
    for join in links.joins:
        task, more = _close(task, join, "deleted", now_ms)
        commands += more
    task, put = keep_links(task, replace(task.links or Links(), parents=()))
    return task, (*commands, *put)


def keep_links(task: Task, links: Links) -> tuple[Task, Commands]:
    """The task with these links, and their record; joins have records of their own."""
    if links.empty:  # what else it says goes with its record, so that the next owner knows the same
        rest = Links(joins=links.joins, fans=links.fans) if links.joins or links.fans else None
        return with_links(task, rest), (DropLinks(),)
    return with_links(task, links), (PutLinks(links),)


def _settle(task: Task, definition: Definition, join: Join, sender: str | None, now_ms: int) -> tuple[Task, Commands]:
    """What the join comes to now."""
    come_to = verdict(definition.after, definition.when, join.done)
    if come_to is Verdict.RUN:
        return _run(task, definition, join, now_ms)
    links = task.links or Links()
    known = next((one for one in links.joins if one.number == join.number), None)
    if come_to is Verdict.FAIL and not join.failed:
        task, put = _keep(task, replace(join, failed=True), now_ms)
        culprit = next(item for item in join.done if not item.ok and item.parent in definition.after)
        cause = f"upstream {culprit.outcome}"
        told = left_out_of_cycle(join.cycle, culprit.parent, cause, now_ms)
        return task, (told, *put, *tell_of_cycle(task, join.cycle, join.path, SKIPPED))
    if come_to is Verdict.WAIT and join.failed:
        join = replace(join, failed=False)
    if join == known:
        return task, ()
    task, put = _keep(task, join, now_ms)
    if known is None:
        fields = {"cycle": join.cycle, "from": sender, "cause": f"waits for {_missing(definition, join)}"}
        return task, (new_history("triggered", None, now_ms, fields), *put)
    return task, put


def _run(task: Task, definition: Definition, join: Join, now_ms: int) -> tuple[Task, Commands]:
    task, commands = _drop(task, join)
    links = task.links or Links()
    task, put = keep_links(task, replace(links, ran=(*links.ran, hash_of(join.cycle))[-KEPT_RAN:]))
    state = task.state
    upstream = {parent: _told(item) for parent in definition.after for item in join.done if item.parent == parent}
    size = sum(map(_json_bytes, (join.cycle, *join.path)))
    size += sum(
        _json_bytes(item.parent) + _TOLD_BYTES + (0 if item.result is None else item.size) for item in join.done
    )
    work = new_work(
        state.next_seq,
        None,
        None,
        0,
        now_ms,
        priority=definition.priority,
        own_record=needs_own_record(size, state.task),
        origin=Origin(join.cycle, join.path, upstream),
    )
    place = state.place
    if place is not None and place.pool is not None and not place.recalled:
        # It runs in a pool: there the request is taken, as the overlap policy says. One called back waits for it here.
        carried = Send(state.task, Carry(replace(work, own_record=False), new=True), place.pool)
        moved = new_history("moved", None, now_ms, {**naming(work), "to": place.pool})
        return task, (*commands, *put, carried, moved)
    task = with_state(task, replace(state, next_seq=state.next_seq + 1))
    task, admitted = admit(task, definition, work, now_ms, recorded=False)
    return task, (*commands, *put, *admitted)


def _json_bytes(text: str) -> int:
    """In JSON, with what parts it from the next."""
    return len(text.encode()) + escapes(text) + 3


def _told(done: Done) -> dict[str, Any]:
    """What the run is told of a parent."""
    told: dict[str, Any] = {"outcome": done.outcome}
    if done.epoch:
        told["epoch"] = done.epoch
    if done.result is not None:
        told["result"] = done.result
    if done.result_dropped is not None:
        told["result_dropped"] = done.result_dropped
    return told


def _with_end(join: Join, sender: str, signal: UpstreamDone) -> Join:
    """The join with this parent's end; the last one counts."""
    others = tuple(item for item in join.done if item.parent != sender)
    result, dropped = signal.result, signal.result_dropped
    if result is not None and sum(item.size for item in others) + signal.size > RESULTS_BYTES:
        result, dropped = None, f"the results of all parents together may have {RESULTS_BYTES:,} bytes as JSON"
    ok = signal.outcome == SUCCEEDED or signal.tolerated
    size = 64 + len(sender) if result is None else signal.size
    done = Done(sender, signal.outcome, ok, signal.epoch, result, dropped, size)
    path = signal.path if len(signal.path) > len(join.path) else join.path
    return replace(join, done=(*others, done), path=path[-MAX_PATH:])


def _keep(task: Task, join: Join, now_ms: int) -> tuple[Task, Commands]:
    """The task with the join among those that wait; one too many closes the oldest."""
    links = task.links or Links()
    joins = tuple(sorted((join, *_others(links, join)), key=lambda one: one.number))
    task = with_links(task, replace(links, joins=joins))
    if len(joins) <= MAX_JOINS:
        return task, (PutJoin(join),)
    # One that was skipped is kept only in case a parent succeeds after all: it goes before one that waits.
    oldest = next((one for one in joins if one.failed), joins[0])
    task, closed = _close(task, oldest, None, now_ms)
    return task, (*closed, *(() if oldest.number == join.number else (PutJoin(join),)))


def _close(task: Task, join: Join, cause: str | None, now_ms: int) -> tuple[Task, Commands]:
    """The cycle is over without a request. `cause` None: it was too long ago that it began."""
    definition = task.definition
    task, commands = _drop(task, join)
    if join.failed:
        return task, commands
    if cause is None:
        waited = f"more than {MAX_JOINS} cycles wait; not ended: {_missing(definition, join)}"
        told: Command = new_history("missed", None, now_ms, {"cycle": join.cycle, "count": 1, "cause": waited})
    else:
        told = new_history("skipped", None, now_ms, {"cycle": join.cycle, "cause": cause})
    return task, (told, *commands, *tell_of_cycle(task, join.cycle, join.path, SKIPPED))


def _missing(definition: Definition | None, join: Join) -> str:
    """The parents that have not ended in the cycle."""
    ended = {item.parent for item in join.done}
    return bounded(
        ", ".join([one for one in (() if definition is None else definition.after) if one not in ended]), 1024
    )


def _drop(task: Task, join: Join) -> tuple[Task, Commands]:
    links = task.links or Links()
    others = _others(links, join)
    if len(others) == len(links.joins):
        return task, ()  # it never had a record
    links = replace(links, joins=others)
    nothing = links.empty and not others and not links.fans  # kept, it would keep the task from being forgotten
    return with_links(task, None if nothing else links), (DropJoin(join.number),)


def _others(links: Links, join: Join) -> tuple[Join, ...]:
    return tuple(one for one in links.joins if one.number != join.number)


def left_out_of_cycle(cycle: str, sender: str, cause: str, now_ms: int) -> Command:
    """The history of a word that changes nothing here."""
    return new_history("skipped", None, now_ms, {"cycle": cycle, "from": sender, "cause": cause})


def _loop(path: tuple[str, ...], task_id: str) -> str:
    way = [*path[path.index(task_id) :], task_id]
    return bounded(f"the tasks run after one another in a circle: {' -> '.join(way)}", 1024)

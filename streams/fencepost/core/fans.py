"""Fan-out: a request of one task becomes runs of many IDs, its shards, and ends when they all have.

The shards are tasks of their own, `TASK/shard/0` and so on: spread over partitions and workers, each with its own
epochs, retries and history. Their definitions go to the topic of tasks and their triggers to that of triggers, in the
transaction that records the fan-out; each tells the end of its request by a signal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from fencepost.core.backfills import is_backfill
from fencepost.core.commands import Ask, Command, Define, DropFan, PutFan, Send
from fencepost.core.dependents import SUCCEEDED, cycle_of, leave_out, tell
from fencepost.core.events import Trigger
from fencepost.core.ids import MAX_ID_BYTES, partition_of
from fencepost.core.joins import keep_links, left_out_of_cycle
from fencepost.core.links import MAX_SHARDS, RESULTS_BYTES, Fan, Links, Origin, Shard, ShardEnd
from fencepost.core.making import naming, new_drop, new_history, with_links, with_waiting
from fencepost.core.recent import hash_of
from fencepost.core.signals import CancelShard, ShardDone
from fencepost.core.sizes import json_bytes
from fencepost.core.task import Definition, Outcome, Overlap, Task, Work

Commands = tuple[Command, ...]

LEFT: Final = "left"  # how a worker ended that a broadcast asked, and that was gone before it had run
MAX_FANS: Final = 100  # requests of one task whose shards have not all ended, or that may come back
PAYLOAD: Final = "payload"  # `map` over what a trigger brings
CANCELLED: Final = Outcome.CANCELLED.value
FAN_BYTES: Final = 16 * 1024 * 1024  # of all that the shards of one request are given, as JSON
GATHERED: Final = "its shards were gathered"
_SHARD, _ON, _SLOT = SHARD_MARKS = ("/shard/", "/on/", "/backfill/")  # what follows a task's ID in those of its shards
_SHARD_BYTES: Final = len(f"{_SHARD}{MAX_SHARDS - 1}")
_ON_BYTES: Final = len(f"{_ON}99999.999999")


def why_no_fan_out(definition: Definition) -> tuple[str, str] | None:
    """(field, what is wrong with it) of a definition that cannot be fanned out; None: it can."""
    if definition.broadcast:
        why_not = _why_no_broadcast(definition)
        if why_not is not None:
            return why_not
    if definition.shards and definition.map:
        return "map", "shards and map exclude each other; give one of them"
    if definition.map and not definition.after and definition.map != PAYLOAD:
        return "map", f'{definition.map!r} is no task it runs after; allowed: "payload", or a task named in after'
    if definition.map and definition.after and definition.map not in definition.after:
        return "map", f"{definition.map!r} is none of the tasks it runs after; allowed: {', '.join(definition.after)}"
    longest = len(definition.task.encode()) + (_ON_BYTES if definition.broadcast else _SHARD_BYTES)
    if longest > MAX_ID_BYTES:
        return "task", f"an ID of {MAX_ID_BYTES} bytes at most leaves no room for the names of its shards"
    return None


def _why_no_broadcast(definition: Definition) -> tuple[str, str] | None:
    for name in ("shards", "map"):
        if getattr(definition, name):
            return name, f"{name} and broadcast exclude each other; give one of them"
    if definition.pool is not None:
        return "broadcast", "not together with pool yet; a broadcast goes to the workers of the namespace itself"
    if definition.overlap in (Overlap.CANCEL, Overlap.TERMINATE, Overlap.BATCH):
        return "overlap", f"{definition.overlap.value!r} is not for a broadcast; allowed: skip, buffer_one, buffer_all"
    return None


def shard_id(task_id: str, shard: int) -> str:
    """The ID of a shard."""
    return f"{task_id}{_SHARD}{shard}"


def slot_id(task_id: str, place: int) -> str:
    """The ID that slots of a backfill run under, where it has more than one run at once."""
    return f"{task_id}{_SLOT}{place}"


def is_shard_of(task_id: str, parent: str) -> bool:
    """Whether an ID is that of a shard of the task, or of its backfills."""
    return task_id.startswith(tuple([parent + mark for mark in SHARD_MARKS]))


def on_id(task_id: str, at: str) -> str:
    """The ID of a shard of a broadcast; `at` says which partition it is on, see `place_on`."""
    return f"{task_id}{_ON}{at}"


@lru_cache(maxsize=4096)
def place_on(task_id: str, partition: int, partitions: int) -> str:
    """What makes an ID that lies on this very partition: its number, a dot, and the first number that fits."""
    for number in itertools.count():
        at = f"{partition}.{number}"
        if partition_of(on_id(task_id, at).encode(), partitions) == partition:
            return at
    raise AssertionError("a hash that misses a partition for ever")


def id_of(task_id: str, fan: Fan, shard: int) -> str:
    """The ID that a shard of the request has by now."""
    if fan.place is not None:
        return slot_id(task_id, fan.place)
    return on_id(task_id, fan.targets[shard].at) if fan.targets else shard_id(task_id, shard)


def fan_of(task: Task, number: int) -> Fan | None:
    """The request of this number, where its shards have not all ended or it may be mended."""
    return next((fan for fan in (() if task.links is None else task.links.fans) if fan.number == number), None)


def was_cancelled(task: Task, number: int) -> bool:
    """Whether nobody waits any more for what shards tell of a request that is gone."""
    return task.links is not None and number <= task.links.cancelled_to


def fan_out(task: Task, definition: Definition, now_ms: int) -> tuple[Task, Commands]:
    """The next request of the task becomes triggers of its shards."""
    work = task.waiting[0]
    task = with_waiting(task, task.waiting[1:])
    commands: tuple[Command, ...] = (new_drop(work.seq),)
    task, called_off = _make_way(task, definition, now_ms)
    commands += called_off
    links = task.links or Links()
    if definition.overlap is Overlap.SKIP and _in_the_way(links):
        return task, (*commands, *leave_out(task, work, "overlap", now_ms))
    payloads, problem = _payloads(definition, work)
    if problem is None and len(links.fans) >= MAX_FANS and not any(fan.failed for fan in links.fans):
        return task, (*commands, *leave_out(task, work, f"{MAX_FANS} requests wait for their shards", now_ms))
    origin = work.origin or Origin(cycle_begun(task.state.task, work))
    kept = replace(work, payload=None, headers=None, own_record=False, origin=replace(origin, upstream=None))
    fan = Fan(work.seq, len(payloads), now_ms, kept)
    told = {**naming(kept), "shards": fan.shards}
    if problem is not None:
        return end_fan(task, fan, "failed", now_ms, {"shards": 0, "error": problem}, commands)
    commands += (new_history("fanned_out", None, now_ms, told),)
    if not payloads:
        return end_fan(task, fan, SUCCEEDED, now_ms, {"shards": 0}, commands)
    task, defined = define_shards(task, definition, fan.shards)
    passed = origin.upstream if not definition.map else None
    asked = tuple(
        Ask(
            Trigger(
                shard_id(task.state.task, number),
                payload=payload,
                headers=work.headers,
                priority=work.priority,
                cycle=origin.cycle,
                upstream=passed,
                shard=Shard(task.state.task, fan.number, number, fan.shards),
            )
        )
        for number, payload in enumerate(payloads)
    )
    task, put = keep_fan(task, fan)
    return task, (*commands, *defined, *put, *asked)


def gathered(task: Task, signal: ShardDone, sender: str, now_ms: int) -> tuple[Task, Commands]:
    """The request of a shard has ended."""
    fan = fan_of(task, signal.number)
    if fan is None and was_cancelled(task, signal.number):
        return task, ()
    if fan is None or not 0 <= signal.shard < fan.shards:
        return task, (left_out_of_cycle(signal.cycle, sender, GATHERED, now_ms),)
    return gather(task, _with_end(fan, signal), now_ms)


def gather(task: Task, fan: Fan, now_ms: int) -> tuple[Task, Commands]:
    """Keep what is known of the request; it is over where all its shards have ended."""
    if len(fan.done) < fan.shards:
        return keep_fan(task, fan)
    # A worker that has left has not failed, as long as there is one that ran it.
    passed = (SUCCEEDED, LEFT) if any(end.outcome == SUCCEEDED for end in fan.done) else (SUCCEEDED,)
    failed = sorted(end.shard for end in fan.done if end.outcome not in passed)
    if not failed:
        task, dropped = _drop(task, fan)
        return end_fan(task, fan, SUCCEEDED, now_ms, {"shards": fan.shards}, dropped)
    fields: dict[str, Any] = {"shards": fan.shards, "failed_shards": failed}
    if all(end.outcome == LEFT for end in fan.done):  # nobody is there who could mend it
        fields["error"] = "every worker that was asked has left"
        task, dropped = _drop(task, fan)
        return end_fan(task, fan, "failed", now_ms, fields, dropped)
    if fan.failed:
        return keep_fan(task, fan)
    fan = replace(fan, failed=True)
    task, put = keep_fan(task, fan)
    return end_fan(task, fan, "failed", now_ms, fields, put)


def call_off(task: Task, cause: str, now_ms: int, *, at_once: bool = False) -> tuple[Task, Commands]:
    """Every request whose shards have not all ended is cancelled, and so is what its shards have of it.

    Requests that have ended as failed are left alone: what is sent again of them may still mend them.
    """
    return _call_off(task, _open(task.links or Links()), cause, now_ms, at_once)


def _call_off(task: Task, fans: tuple[Fan, ...], cause: str, now_ms: int, at_once: bool) -> tuple[Task, Commands]:
    if not fans:
        return task, ()
    commands: Commands = ()
    told: dict[str, tuple[int, ...]] = {}  # by shard, the requests that it may have something of
    for fan in fans:
        ends = {end.shard: end.outcome for end in fan.done}
        for shard in range(fan.shards):
            if ends.get(shard) != SUCCEEDED:  # one that failed may have been sent again
                name = id_of(task.state.task, fan, shard)
                told[name] = (*told.get(name, ()), fan.number)
        task, dropped = _drop(task, fan)
        fields = {"shards": fan.shards, "cause": cause}
        fields["open_shards"] = [shard for shard in range(fan.shards) if shard not in ends]
        task, ended = end_fan(task, fan, CANCELLED, now_ms, fields, dropped)
        commands += ended
    task, put = keep_links(task, replace(task.links or Links(), cancelled_to=fans[-1].number))
    sends = tuple([Send(name, CancelShard(numbers, cause, at_once)) for name, numbers in told.items()])
    return task, (*commands, *put, *sends)


def _make_way(task: Task, definition: Definition, now_ms: int) -> tuple[Task, Commands]:
    """A new request goes before those that are out, where the overlap policy says so."""
    if definition.overlap not in (Overlap.CANCEL, Overlap.TERMINATE):
        return task, ()
    meant = _in_the_way(task.links or Links())
    return _call_off(task, meant, "overlap", now_ms, definition.overlap is Overlap.TERMINATE)


def _in_the_way(links: Links) -> tuple[Fan, ...]:
    """What the overlap policy counts: slots of a backfill cost no other request its turn, nor do they lose theirs."""
    return tuple([fan for fan in _open(links) if not is_backfill(fan.work)])


def _open(links: Links) -> tuple[Fan, ...]:
    """The requests whose shards have not all ended, oldest first."""
    return tuple([fan for fan in links.fans if not fan.failed])


def define_shards(task: Task, definition: Definition, count: int) -> tuple[Task, Commands]:
    """The shards' definitions, where these are not the ones that were written last."""
    links = task.links or Links()
    told = _told(definition, task.state.paused)
    known = links.shards if links.shard_definition == told else 0
    if count <= known:
        return task, ()
    commands = tuple(
        Define(name, _shard(definition, task.state.task, name, task.state.paused))
        for name in [shard_id(task.state.task, number) for number in range(known, max(count, links.shards))]
    )
    task, put = keep_links(task, replace(links, shards=max(count, links.shards), shard_definition=told))
    return task, (*put, *commands)


def define_on(task: Task, definition: Definition, wanted: Iterable[str]) -> tuple[Task, Commands]:
    """The same for the shards of a broadcast: those that are wanted now, and those of earlier requests."""
    links, told = task.links or Links(), _told(definition, task.state.paused)
    on = tuple(dict.fromkeys((*links.on, *wanted)))
    written = links.on if links.shard_definition == told else ()
    # As many as partitions there are, unless the task was there while these were more.
    commands = tuple([_define_on(task, definition, at) for at in on if at not in written])
    if not commands:
        return task, ()
    task, put = keep_links(task, replace(links, on=on, shard_definition=told))
    return task, (*put, *commands)


def _define_on(task: Task, definition: Definition, at: str) -> Define:
    task_id = on_id(task.state.task, at)
    return Define(task_id, shard_of(definition, task.state.task, task_id, paused=task.state.paused))


def follow_shards(task: Task, definition: Definition, now_ms: int) -> tuple[Task, Commands]:
    """The task has this definition now: its shards that are defined follow it, or go."""
    links = task.links
    if links is None or not (links.shards or links.on):
        return task, ()
    if not definition.fans_out or definition.broadcast != bool(links.on):
        task, closed = close_fans(task, "it has no shards any more", now_ms)
        task, gone = forget_shards(task)
        return task, closed + gone
    if definition.broadcast:
        return define_on(task, definition, ())
    commands: Commands = ()
    if 0 < definition.shards < links.shards:
        too_many = range(definition.shards, links.shards)
        commands = tuple(Define(shard_id(task.state.task, number), None) for number in too_many)
        task, put = keep_links(task, replace(links, shards=definition.shards))
        commands += put
    assert task.links is not None
    task, more = define_shards(task, definition, task.links.shards)
    return task, commands + more


def forget_shards(task: Task) -> tuple[Task, Commands]:
    """No more shards: their definitions are deleted."""
    links = task.links
    if links is None or not (links.shards or links.on):
        return task, ()
    commands = tuple(Define(shard_id(task.state.task, number), None) for number in range(links.shards))
    commands += tuple(Define(on_id(task.state.task, at), None) for at in links.on)
    task, put = keep_links(task, replace(links, shards=0, on=(), shard_definition="", cancelled_to=-1))
    return task, (*commands, *put)


def close_fans(task: Task, cause: str, now_ms: int) -> tuple[Task, Commands]:
    """Nobody waits for the shards of any request any more."""
    commands: Commands = ()
    for fan in () if task.links is None else task.links.fans:
        task, dropped = _drop(task, fan)
        commands += dropped
        if not fan.failed:
            commands += leave_out(task, fan.work, cause, now_ms)
    return task, commands


def shard_of(definition: Definition, task_id: str, shard: str, *, paused: bool = False) -> Definition:
    """The definition of one shard: the task's own, without what makes requests. It is paused while the task is."""
    return replace(
        definition,
        task=shard,
        schedule=None,
        overlap=Overlap.BUFFER_ALL,
        buffer_limit=10_000,
        paused=paused,
        after=(),
        shards=0,
        map="",
        chunk=1,
        broadcast=False,
        shard_of=task_id,
    )


def _told(definition: Definition, paused: bool) -> str:
    return hash_of(repr(_shard(definition, "", "", paused)))


def _shard(definition: Definition, task_id: str, shard: str, paused: bool) -> Definition:
    """Each gets its payload by its trigger: there may be hundreds of them, and a payload may be large."""
    return replace(shard_of(definition, task_id, shard, paused=paused), payload=None)


def cycle_begun(task_id: str, work: Work) -> str:
    """The cycle that a request begins. No run of it gives an epoch to a trigger without an ID."""
    if work.slot_ms is None and work.trigger_id is None:
        return f"run:{task_id}/request-{work.seq}"
    return cycle_of(task_id, work, 0)


def _payloads(definition: Definition, work: Work) -> tuple[list[Any], str | None]:
    """One for each shard; or why there is none."""
    payload = definition.payload if work.payload is None else work.payload
    if not definition.map:
        return [payload] * definition.shards, _too_large(definition.shards, payload, work)
    upstream = None if work.origin is None else work.origin.upstream
    items = payload if upstream is None else upstream.get(definition.map, {}).get("result")
    whose = "the payload" if upstream is None else f"the result of {definition.map}"
    if not isinstance(items, list):
        return [], f"{whose} is no list, so there is nothing to make shards of"
    chunks = [items[at : at + definition.chunk] for at in range(0, len(items), definition.chunk)]
    if len(chunks) > MAX_SHARDS:
        return [], f"{len(items)} items in chunks of {definition.chunk} are more than {MAX_SHARDS} shards"
    return chunks if definition.chunk > 1 else items, _too_large(len(chunks), None, work)


def _too_large(shards: int, payload: Any, work: Work) -> str | None:
    """What each shard is given is written once for each, all in one transaction."""
    upstream = None if work.origin is None else work.origin.upstream
    size = sum(json_bytes(part) for part in (payload, work.headers, upstream))
    if shards * size <= FAN_BYTES:
        return None
    return (
        f"{shards} shards that are given {size:,} bytes each are more than {FAN_BYTES:,} bytes: "
        "give them the place where the data lies, or fewer shards"
    )


def end_fan(
    task: Task, fan: Fan, outcome: str, now_ms: int, fields: dict[str, Any], before: Commands
) -> tuple[Task, Commands]:
    """The request is over: its history, and a word to those that run after the task."""
    ends = {end.shard: end for end in fan.done}
    results: list[Any] = [ends[number].result if number in ends else None for number in range(fan.shards)]
    if fan.targets:
        results = [_of_worker(task, fan, number, ends.get(number), outcome) for number in range(fan.shards)]
    told_anyway = bool(fan.targets)  # also of those that failed it says which they are
    dropped = next((end.result_dropped for end in fan.done if end.result_dropped is not None), None)
    told: dict[str, Any] = {**naming(fan.work), "outcome": outcome, **fields}
    told["duration_s"] = max(0, now_ms - fan.opened_ms) / 1000
    result: Any = results if fan.place is None else results[0]
    if told_anyway or (outcome == SUCCEEDED and (fan.place is None or result is not None)):
        told["result"] = result
    if dropped is not None:
        told["result_dropped"] = dropped
    history = new_history("gathered", None, now_ms, told)
    passed_on = result if outcome == SUCCEEDED or told_anyway else None
    return task, (*before, history, *tell(task, fan.work, outcome, 0, passed_on))


def _of_worker(task: Task, fan: Fan, shard: int, end: ShardEnd | None, outcome: str) -> dict[str, Any]:
    """What those that run after a broadcast are told of one worker; `outcome`: where it had not ended."""
    told: dict[str, Any] = {"worker": fan.targets[shard].worker, "task": id_of(task.state.task, fan, shard)}
    told["outcome"] = outcome if end is None else end.outcome
    return told if end is None or end.result is None else {**told, "result": end.result}


def _with_end(fan: Fan, signal: ShardDone) -> Fan:
    """The fan with this shard's end; the last one counts."""
    others = tuple([end for end in fan.done if end.shard != signal.shard])
    result, dropped = signal.result, signal.result_dropped
    if result is not None and sum(end.size for end in others) + signal.size > RESULTS_BYTES:
        result, dropped = None, f"the results of all shards together may have {RESULTS_BYTES:,} bytes as JSON"
    size = 0 if result is None else signal.size
    return replace(fan, done=(*others, ShardEnd(signal.shard, signal.outcome, signal.epoch, result, dropped, size)))


def keep_fan(task: Task, fan: Fan) -> tuple[Task, Commands]:
    """The task with this request among those that are out or may be mended; one too many makes way."""
    links = task.links or Links()
    fans = tuple(sorted((fan, *_others(links, fan)), key=lambda one: one.number))
    task = with_links(task, replace(links, fans=fans))
    if len(fans) <= MAX_FANS:
        return task, (PutFan(fan),)
    oldest = next((one for one in fans if one.failed and one.number != fan.number), fans[0])
    task, dropped = _drop(task, oldest)
    return task, (*dropped, PutFan(fan))


def _drop(task: Task, fan: Fan) -> tuple[Task, Commands]:
    links = task.links or Links()
    others = _others(links, fan)
    links = replace(links, fans=others)
    return with_links(task, None if links.empty and not links.joins and not others else links), (DropFan(fan.number),)


def _others(links: Links, fan: Fan) -> tuple[Fan, ...]:
    return tuple([one for one in links.fans if one.number != fan.number])

"""Who owned what at a time, and what state a task was in: from the logs of owners and of history.

Times are those at which records were appended. The log of owners is compacted and forgets old fences; history is kept
for as long as its topic says. What neither reaches is said to be unknown, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fencepost.codec import BadRecord
from fencepost.core.commands import History
from fencepost.core.ids import check_task_id, partition_of
from fencepost.core.ownership import FenceRecord
from fencepost.core.past import Past
from fencepost.core.times import format_ms
from fencepost.kafka.bounds import Bounds
from fencepost.kafka.namespace import NamespaceInfo, load_namespace
from fencepost.kafka.scan import Record, scan
from fencepost.kafka.tail import Tail
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.wire.history import HistoryRecord, decode_history
from fencepost.wire.owners import decode_fence

_TIMEOUT_S = 15.0
_STEP = 500


class OutOfReach(Exception):
    """The logs do not go back that far; the message says how far they do."""


@dataclass(frozen=True, slots=True)
class Held:
    """Who held a partition at the time.

    state: "held"; "released" (by whom is named, and nobody has taken it yet); "never held"; "last seen" (the lane wrote
    history before, another one after: between them nobody can tell); "unknown". since_ms: when that fence, or release,
    or that record was appended. source: "owners" or "history".
    """

    partition: int
    state: str
    lane: str | None = None
    worker: str | None = None
    nonce: str | None = None
    since_ms: int | None = None
    source: str | None = None
    reaches_ms: int | None = None  # where unknown: from when on something is known


@dataclass(frozen=True, slots=True)
class Then:
    """A task at the time. `complete`: its history was there from its beginning."""

    task: str
    at_ms: int
    past: Past
    owner: Held
    complete: bool


def owners_at(settings: Settings, at_ms: int, task: str | None = None) -> list[Held]:
    """All partitions, or that of the task. Raises OutOfReach for a time before the namespace was made; KafkaProblem."""
    info = _info(settings, at_ms)
    numbers = range(info.partitions) if task is None else [partition_of(task.encode(), info.partitions)]
    return [_held(settings, number, at_ms) for number in numbers]


def task_at(settings: Settings, task: str, at_ms: int, progress: Callable[[int, int], None] | None = None) -> Then:
    """The task at the time. Raises OutOfReach, BadRecord for an ID that cannot be, KafkaProblem."""
    try:
        check_task_id(task)
    except ValueError as error:
        raise BadRecord(str(error), "ID") from error
    info, topic = _info(settings, at_ms), Topics(settings.namespace).runs
    number = partition_of(task.encode(), info.partitions)
    begin = Bounds(settings, 0).begins([(topic, number)], _TIMEOUT_S)[topic, number]
    end = _first_after(settings, topic, number, at_ms)
    past, reaches_ms = Past(), None
    for record in scan(settings, topic, [number]):
        reaches_ms = record.at_ms if reaches_ms is None else reaches_ms
        if record.offset >= end:
            break
        if progress is not None and record.offset % _STEP == 0:
            progress(record.offset - begin, end - begin)
        if record.key == task.encode() and (event := _decoded(record)) is not None:
            past.fold(History(event.kind, event.epoch, event.at_ms, event.fields), event.lane, format_ms(event.at_ms))
    if begin > 0 and not past.events:
        since = "nothing is left of it" if reaches_ms is None else f"it begins at {format_ms(reaches_ms)}"
        raise OutOfReach(
            f"the history of {task!r} no longer reaches back to {format_ms(at_ms)}: of {topic}/{number} {since}, and "
            "until the time asked for no event of the task is in it"
        )
    return Then(task, at_ms, past, _held(settings, number, at_ms), begin == 0)


def _info(settings: Settings, at_ms: int) -> NamespaceInfo:
    info = load_namespace(settings)
    if at_ms < info.created_ms:
        raise OutOfReach(
            f"namespace {settings.namespace!r} was made at {format_ms(info.created_ms)}: "
            f"there is nothing to tell of {format_ms(at_ms)}"
        )
    return info


def _held(settings: Settings, number: int, at_ms: int) -> Held:
    whole, next_offset = True, 0  # whole: no fence can be missing before the first one found
    first: Record | None = None
    found: tuple[FenceRecord, int] | None = None
    for record in scan(settings, Topics(settings.namespace).owners, [number]):
        if first is None:
            whole = whole and record.offset == next_offset
            next_offset = record.offset + 1
        if record.key != str(number).encode() or record.value is None:
            continue
        first = first or record
        if record.at_ms > at_ms:
            break
        try:
            fence = decode_fence(record.value)
        except BadRecord:
            whole, found = False, None  # somebody took it then, and who cannot be read
            continue
        if not fence.released or (found is not None and found[0].nonce == fence.nonce):
            found = (fence, record.at_ms)
    if found is not None:
        fence, since_ms = found
        state = "released" if fence.released else "held"
        return Held(number, state, fence.lane, fence.worker, fence.nonce, since_ms, "owners")
    if whole:
        return Held(number, "never held", source="owners")
    return _seen(settings, number, at_ms, None if first is None else first.at_ms)


def _seen(settings: Settings, number: int, at_ms: int, fenced_ms: int | None) -> Held:
    """From history: under one nonce before and after the time, its lane held the partition throughout."""
    topic = Topics(settings.namespace).runs
    begin = Bounds(settings, 0).begins([(topic, number)], _TIMEOUT_S)[topic, number]
    end = _first_after(settings, topic, number, at_ms)
    before = _last_before(settings, topic, number, begin, end)
    after = next(_events(settings, topic, number, end), None)
    if before is None:
        known = [at for at in (fenced_ms, None if after is None else after[1]) if at is not None]
        return Held(number, "unknown", reaches_ms=min(known, default=None))
    event, seen_ms = before
    same = after is not None and after[0].nonce == event.nonce
    return Held(number, "held" if same else "last seen", event.lane, None, event.nonce, seen_ms, "history")


def _first_after(settings: Settings, topic: str, number: int, at_ms: int) -> int:
    """The offset of the first record appended after the time; the log's end if there is none."""
    with Tail(settings, topic, [number], at_ms + 1) as tail:
        return tail.starts()[number]


def _last_before(settings: Settings, topic: str, number: int, begin: int, end: int) -> tuple[HistoryRecord, int] | None:
    """Looks back in growing steps: offsets may be markers of transactions, or records that cannot be read."""
    step = 16
    while True:
        found, start = None, max(begin, end - step)
        for event in _events(settings, topic, number, start, end):
            found = event
        if found is not None or start == begin:
            return found
        step *= 8


def _events(
    settings: Settings, topic: str, number: int, start: int, end: int | None = None
) -> Iterator[tuple[HistoryRecord, int]]:
    for record in scan(settings, topic, [number], start):
        if end is not None and record.offset >= end:
            return
        if (event := _decoded(record)) is not None:
            yield event, record.at_ms


def _decoded(record: Record) -> HistoryRecord | None:
    try:
        return None if record.value is None else decode_history(record.value)
    except BadRecord:
        return None  # of a newer version; `runs` and `verify` say so

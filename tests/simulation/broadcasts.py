"""What must hold of broadcasts: no worker runs one twice, and every worker that is there all the time has run it.

Who is there is worked out anew here, on true time: from when each fence could be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fencepost.codec import loads
from fencepost.core.broadcasts import MOVED

if TYPE_CHECKING:
    from tests.simulation.log import Log
    from tests.simulation.world import World

_ENDS = {"succeeded", "failed", "timed_out", "cancelled", "interrupted"}
Span = tuple[int, int]  # from, until: in ms of true time


def broken_broadcasts(world: World) -> Iterator[str]:
    """What is wrong, in words."""
    events = list(_events(world))
    asked = {
        (event["task"], event["epoch"]): event["worker"]
        for _, event in events
        if event["kind"] == "started" and "worker" in event
    }
    yield from _elsewhere(world, events, asked)
    ended: Counter[tuple[str, str, str]] = Counter()  # (worker, task, cycle): ends for good
    fine: set[tuple[str, str, str]] = set()
    for _, event in events:
        worker = asked.get((event["task"], event.get("epoch", 0)))
        if worker is None or event["kind"] not in _ENDS or "retry_at" in event or event.get("cause") == MOVED:
            continue
        place = (worker, event["task"].partition("/on/")[0], event["cycle"])
        ended[place] += 1
        if event["kind"] == "succeeded":
            fine.add(place)
    yield from (f"{task}: {worker} ran {cycle} {n} times" for (worker, task, cycle), n in ended.items() if n > 1)
    spans = _spans(world)
    began: dict[tuple[str, str], int] = {}
    for at_ms, event in events:
        task, cycle = event["task"], event.get("cycle", "")
        if "workers" in event:
            began.setdefault((task, cycle), at_ms)
        if event["kind"] != "gathered" or (task, cycle) not in began or event["outcome"] == "cancelled":
            continue
        for item in event["result"]:
            worker, outcome = item["worker"], item["outcome"]
            if ((worker, task, cycle) in fine) is not (outcome == "succeeded"):
                yield f"{task}: of {cycle} it is told that {worker} {outcome}, which is not so"
            out_ms = began[task, cycle]
            if outcome in ("left", "skipped") and _all_the_time(spans.get(worker, []), out_ms, at_ms):
                yield f"{task}: {worker} was there from {out_ms} to {at_ms}, and {outcome} {cycle}"


def _elsewhere(
    world: World, events: list[tuple[int, dict[str, Any]]], asked: dict[tuple[str, int], str]
) -> Iterator[str]:
    for _, event in events:
        if event["kind"] == "started" and "worker" in event and event["lane"].rsplit("/", 2)[0] != event["worker"]:
            yield f"{event['task']}: epoch {event['epoch']} was for {event['worker']}, and {event['lane']} has it"
    for life in world.facts.lives:
        worker = asked.get((life.task, life.epoch))
        if worker is not None and life.process.rpartition("/")[0] != worker:
            yield f"{life.task}: epoch {life.epoch} was for {worker}, and ran on {life.process}"


def _events(world: World) -> Iterator[tuple[int, dict[str, Any]]]:
    """History with the true time at which it was committed."""
    for (topic, _), log in world.broker.logs.items():
        if topic.endswith(".runs"):
            for entry in log.entries:
                if entry.piece is not None and entry.piece.committed and entry.value is not None:
                    yield entry.piece.ended_ms, loads(entry.value)


def _spans(world: World) -> dict[str, list[Span]]:
    """By worker: when it held some partition, as far as others could read."""
    spans: dict[str, list[Span]] = {}
    for (topic, _), log in world.broker.logs.items():
        if not topic.endswith(".owners"):
            continue
        holder: tuple[str, str, int] | None = None  # worker, nonce, since when
        for at_ms, fence in _fences(log):
            if fence["released"] and (holder is None or holder[1] != fence["nonce"]):
                continue
            if holder is not None:
                spans.setdefault(holder[0], []).append((holder[2], at_ms))
            holder = None if fence["released"] else (fence["worker"], fence["nonce"], at_ms)
        if holder is not None:
            spans.setdefault(holder[0], []).append((holder[2], 1 << 60))
    return spans


def _fences(log: Log) -> Iterator[tuple[int, dict[str, Any]]]:
    """Committed fences with the time from which they can be read: nothing before them is open any more."""
    readable_ms = 0
    for entry in log.entries:
        if entry.piece is None:
            continue
        readable_ms = max(readable_ms, entry.piece.ended_ms if entry.piece.committed is not None else 1 << 60)
        if entry.piece.committed and entry.key is not None and entry.key.isdigit() and entry.value is not None:
            yield readable_ms, loads(entry.value)


def _all_the_time(spans: list[Span], first_ms: int, last_ms: int) -> bool:
    """Whether they cover it without a gap. One that begins where another ends may have come just after it."""
    at_ms = first_ms
    for since_ms, until_ms in sorted(spans):
        if until_ms > at_ms and (since_ms < at_ms or at_ms == first_ms == since_ms):
            at_ms = until_ms
    return at_ms > last_ms

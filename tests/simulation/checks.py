"""What must hold of every history, decided from what really happened and from the topics alone.

Independent of the product's own `verify`: records are read as plain JSON here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fencepost.codec import loads
from fencepost.core.ids import partition_of
from fencepost.core.schedule import Schedule
from fencepost.core.times import parse_rfc3339
from tests.simulation.broadcasts import broken_broadcasts
from tests.simulation.broker import EPOCH_MS
from tests.simulation.facts import Life
from tests.simulation.world import World

_ENDS = {"succeeded", "failed", "timed_out", "cancelled", "interrupted"}
LATE_MS = 12_000  # a slot that nobody has decided on so long after its time was lost


@dataclass(frozen=True, slots=True)
class Violation:
    """`kind` is one of KINDS."""

    kind: str
    text: str


KINDS = {
    "overlap": "two runs of one task were on at once",
    "twice": "a pair (task, epoch) was started twice",
    "epochs": "an epoch was repeated, or is smaller than one before it",
    "unrecorded": "a run was on that its history does not know",
    "history": "history contradicts itself or the state",
    "slot": "a slot was lost, or ran again after its work was over",
    "trigger": "a trigger was lost",
    "stuck": "a task is RUNNING and nobody runs it, or work waits and nothing happens",
    "limit": "more runs were on at once than a limit allows",
    "grant": "somebody holds or waits under a limit's key who does not run or want to",
    "cycle": "a cycle was lost between a parent and its child, or became two requests",
    "broadcast": "a worker ran a broadcast twice, or one that was there all the time did not run it",
    "crash": "the lane's code failed",
    "livelock": "virtual time stands still",
}


APPENDED_MS = "appended_ms"  # put into each event: the broker's time of it


@dataclass(slots=True)
class TaskRecords:
    """All that the topics hold of one task, in the order of their logs."""

    states: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    works: dict[bytes, dict[str, Any]] = field(default_factory=dict)  # that wait now
    floor: int = 0  # of its partition: what is new or was forgotten starts there
    told_since_ms: dict[str, int] = field(default_factory=dict)  # by task that runs after it: since when it knows that


def read_topics(world: World, namespace: str) -> dict[str, TaskRecords]:
    """By task, of the namespace or of a pool. Compacted records count as well: what was committed was committed."""
    found: dict[str, TaskRecords] = {}
    floors: dict[int, int] = {}
    for (topic, number), log in world.broker.logs.items():
        if topic in (f"{namespace}.state", f"{namespace}.runs"):
            for entry in log.entries:
                if entry.marker or entry.piece is None or not entry.piece.committed or entry.key is None:
                    continue
                task, _, rest = entry.key.partition(b"\x1f")
                if not task:
                    if entry.key.startswith(b"\x1ffloor") and entry.value is not None:
                        floors[number] = max(floors.get(number, 0), loads(entry.value)["epoch"])
                    continue
                records = found.setdefault(task.decode(), TaskRecords())
                body = None if entry.value is None else loads(entry.value)
                if rest:
                    if body is None:
                        records.works.pop(entry.key, None)
                    elif "seq" in body:
                        records.works[entry.key] = body
                    for child in body.get("children", ()) if body is not None else ():
                        records.told_since_ms.setdefault(child, entry.at_ms)
                elif body is not None:
                    body[APPENDED_MS] = entry.at_ms
                    (records.states if topic.endswith(".state") else records.events).append(body)
    for name, records in found.items():
        records.floor = floors.get(partition_of(name.encode(), world.plan.partitions), 0)
    return found


def read_all(world: World) -> dict[str, TaskRecords]:
    """By task, wherever it was: its runs in the order of their epochs."""
    found: dict[str, TaskRecords] = {}
    for namespace in world.namespaces:
        for task, records in read_topics(world, namespace).items():
            known = found.setdefault(task, TaskRecords())
            known.states += records.states
            known.events += records.events
            known.works |= {namespace.encode() + key: work for key, work in records.works.items()}
            known.floor = records.floor
            for child, at_ms in records.told_since_ms.items():
                known.told_since_ms[child] = min(at_ms, known.told_since_ms.get(child, at_ms))
    if len(world.namespaces) > 1:
        for known in found.values():
            known.events.sort(key=lambda event: (event.get("epoch", 0), event["kind"] != "started"))
    return found


def check(world: World) -> list[Violation]:
    """Everything but what has to settle first (`unsettled`)."""
    found = [Violation("crash", text) for text in world.facts.crashes]
    records = read_all(world)
    lives: dict[str, list[Life]] = {}
    for life in world.facts.lives:
        lives.setdefault(life.task, []).append(life)
    schedules = {definition.task: definition.schedule for definition in world.plan.definitions}
    for task in sorted(records.keys() | lives.keys()):
        known = records.get(task, TaskRecords())
        found += _lives(task, lives.get(task, []), known, world.facts.drift_beyond_bound)
        schedule = schedules.get(task)
        deleted = any(event["kind"] == "deleted" for event in known.events)  # then nobody counts its slots for a while
        if schedule is not None and not deleted:
            found += _slots(task, known, schedule)
        found += _cycles(task, known)
    for namespace in world.namespaces:
        for task, known in sorted(read_topics(world, namespace).items()):
            found += _history(task, known)
            found += _states(task, known)
    found += [Violation("broadcast", text) for text in broken_broadcasts(world)]
    return found + list(_limits(world))


# -- runs --


def _lives(task: str, lives: list[Life], records: TaskRecords, beyond_bound: bool) -> Iterator[Violation]:
    started = {(event["epoch"], event["nonce"]) for event in records.events if event["kind"] == "started"}
    epochs: set[int] = set()
    for life in lives:
        if life.epoch in epochs:
            yield Violation("twice", f"{task}: epoch {life.epoch} was started twice, the second time by {life.process}")
        epochs.add(life.epoch)
        if (life.epoch, life.nonce) not in started:
            yield Violation("unrecorded", f"{task}: epoch {life.epoch} ran under {life.nonce}, and no record says so")
    if beyond_bound:
        return
    before: Life | None = None
    for life in sorted(lives, key=lambda each: (each.began_us, each.epoch)):
        if before is not None and (before.ended_us is None or before.ended_us > life.began_us):
            yield Violation("overlap", f"{task}: {_shown(before)} and {_shown(life)}")
        if before is not None and life.epoch < before.epoch:
            yield Violation("epochs", f"{task}: epoch {life.epoch} began after epoch {before.epoch}")
        if before is None or (
            before.ended_us is not None and (life.ended_us is None or life.ended_us > before.ended_us)
        ):
            before = life


def _shown(life: Life) -> str:
    end = "now" if life.ended_us is None else f"{life.ended_us / 1e6:.6f}"
    return f"epoch {life.epoch} at {life.process} from {life.began_us / 1e6:.6f} to {end}"


# -- history and state --


def _history(task: str, records: TaskRecords) -> Iterator[Violation]:
    last = 0
    on: int | None = None
    for event in records.events:
        epoch: int = event.get("epoch", 0)
        if event["kind"] == "started":
            if epoch <= last:
                yield Violation("epochs", f"{task}: epoch {epoch} was started after epoch {last}")
            if on is not None:
                yield Violation("history", f"{task}: epoch {epoch} was started while epoch {on} had not ended")
            last, on = max(last, epoch), epoch
        elif event["kind"] in _ENDS and "duration_s" in event:
            if epoch != on:
                yield Violation("history", f"{task}: epoch {epoch} ended ({event['kind']}), and {on} was on")
            on = None
    if not records.states:
        if last:
            yield Violation("history", f"{task}: runs in its history and no state")
        return
    state = records.states[-1]
    moved = "place" in state and state["epoch"] > last  # what ran where it was before is in the history there
    if state["epoch"] != last and not last < state["epoch"] <= records.floor and not moved:
        yield Violation("history", f"{task}: state is at epoch {state['epoch']}, history at {last}")
    running = state["run"]["epoch"] if state["status"] == "running" else None
    if running != on:
        yield Violation("history", f"{task}: epoch {running} runs by its state, {on} by its history")


def _states(task: str, records: TaskRecords) -> Iterator[Violation]:
    epoch = 0
    for state in records.states:
        if state["epoch"] < epoch:
            yield Violation("epochs", f"{task}: its state went from epoch {epoch} to {state['epoch']}")
        epoch = max(epoch, state["epoch"])


# -- slots --


def _slots(task: str, records: TaskRecords, schedule: Schedule) -> Iterator[Violation]:
    accounted: list[tuple[int, int]] = []
    over: set[int] = set()
    for event in records.events:
        if event["kind"] == "missed" and "first" in event:
            accounted.append((parse_rfc3339(event["first"]), parse_rfc3339(event["last"])))
        if "slot" not in event:
            continue
        slot = parse_rfc3339(event["slot"])
        accounted.append((slot, slot))
        if event["kind"] == "started" and slot in over:
            yield Violation("slot", f"{task}: slot {event['slot']} was started again after its work was over")
        if event["kind"] in _ENDS and "retry_at" not in event:
            over.add(slot)
    state = records.states[-1] if records.states else {}
    for work in (*records.works.values(), *([state["work"]] if "work" in state else [])):
        if "slot" in work:
            slot = parse_rfc3339(work["slot"])
            accounted.append((slot, slot))
    edge: int | None = None
    for first, last in sorted(accounted):
        following = first if edge is None else schedule.next_after(edge)
        if following is not None and following < first:
            yield Violation("slot", f"{task}: slot at {following} neither ran nor was skipped or missed")
        edge = last if edge is None else max(edge, last)


# -- limits --


def _limits(world: World) -> Iterator[Violation]:
    """A limit is for what really runs, whoever has recorded what of it."""
    most = {each.task: each.limit.max_runs for each in world.plan.definitions if each.limit is not None}
    on: list[Life] = []
    for life in sorted(world.facts.lives, key=lambda each: each.began_us):
        if most.get(life.task) is None:
            continue
        on = [each for each in on if each.ended_us is None or each.ended_us > life.began_us]
        on.append(life)
        if len(on) > (most[life.task] or 0):
            shown = ", ".join(f"{each.task} {_shown(each)}" for each in on)
            yield Violation("limit", f"at most {most[life.task]} at once, and {shown}")


def _held(world: World, records: dict[str, TaskRecords]) -> Iterator[Violation]:
    """With everything done nobody holds and nobody waits, as tasks with a limit have no schedule here."""
    claims: dict[bytes, dict[str, Any] | None] = {}
    for (topic, _), log in world.broker.logs.items():
        if topic.endswith(".state"):
            for entry in log.readable(0):
                if entry.key is not None and b"\x1fclaim\x1f" in entry.key:
                    claims[entry.key] = None if entry.value is None else loads(entry.value)
    for claim in claims.values():
        if claim is not None:
            does = "holds" if claim.get("granted") else "waits"
            yield Violation("grant", f"{claim['for']} {does} under {claim['task']} with ticket {claim['ticket']}")
    for task, known in records.items():
        if known.states and "permit" in known.states[-1]:
            yield Violation("grant", f"{task}: it has asked: {known.states[-1]['permit']}")


# -- cycles --


def _cycles(task: str, records: TaskRecords) -> Iterator[Violation]:
    if "/on/" in task:
        return  # what is asked there of one worker after another is looked at by `broken_broadcasts`
    over: set[str] = set()
    for event in records.events:
        cycle = event.get("cycle")
        if cycle is None:
            continue
        if event["kind"] == "started" and cycle in over:
            yield Violation("cycle", f"{task}: {cycle} became a second request after the first was over")
        if event["kind"] in _ENDS and "retry_at" not in event:
            over.add(cycle)


def _ended_cycles(task: str, records: TaskRecords, child: str) -> set[str]:
    """Cycles of which the task has told this child an end; what it ended before it knew of the child it told nobody."""
    found = set()
    since_ms = records.told_since_ms.get(child, -1)
    for event in records.events:
        if event[APPENDED_MS] <= since_ms:
            continue
        ended = event["kind"] in _ENDS and "retry_at" not in event
        if "cycle" in event and (ended or event["kind"] in ("skipped", "missed", "gathered")):
            found.add(event["cycle"])
        elif "slot" in event and (ended or event["kind"] == "skipped"):
            found.add(f"slot:{event['slot']}")
        elif ended and "cycle" not in event:
            found.add(f"run:{task}/{event['trigger']}")
    return found


def _lost_cycles(world: World, records: dict[str, TaskRecords]) -> Iterator[Violation]:
    """A cycle that all parents of a task have ended is something that its history knows; shards are gathered."""
    for task, known in records.items():
        out = {event["cycle"] for event in known.events if event["kind"] == "fanned_out"}
        gathered = {event["cycle"] for event in known.events if event["kind"] == "gathered"}
        for cycle in sorted(out - gathered):
            yield Violation("cycle", f"{task}: of {cycle} the shards were never gathered")
    for definition in world.plan.definitions:
        if not definition.after:
            continue
        ended = [_ended_cycles(each, records.get(each, TaskRecords()), definition.task) for each in definition.after]
        events = records.get(definition.task, TaskRecords()).events
        # That one parent has ended and the others are waited for is not what is asked for here.
        events = [event for event in events if event["kind"] != "moved"]
        known = {event.get("cycle") for event in events if event["kind"] != "triggered" or "from" not in event}
        works = records.get(definition.task, TaskRecords()).works.values()
        known |= {work.get("cycle") for work in works}
        for cycle in sorted(set.intersection(*ended) - known):
            yield Violation("cycle", f"{definition.task}: of {cycle}, which all its parents ended, it knows nothing")


# -- what has to come about in the quiet time --


def unsettled(world: World) -> list[Violation]:
    """What is not done yet: runs without a live owner, triggers without an answer, slots that are late."""
    records = read_all(world)
    on = {(life.task, life.epoch) for life in world.facts.on()}
    now_ms = EPOCH_MS + world.kernel.now_us // 1000
    out: list[Violation] = []
    for task, known in [each for namespace in world.namespaces for each in read_topics(world, namespace).items()]:
        if not known.states:
            continue
        state = known.states[-1]
        if state.get("place", {}).get("recalled"):
            out.append(Violation("stuck", f"{task}: it was called back, and does not come"))
        if state["status"] == "running" and (task, state["run"]["epoch"]) not in on:
            out.append(Violation("stuck", f"{task}: epoch {state['run']['epoch']} is RUNNING, and nobody runs it"))
        waiting = [work for work in known.works.values() if "slot" not in work]
        if state["status"] == "backoff" and "slot" not in state["work"]:
            waiting.append(state["work"])
        if not state.get("paused"):
            out += [Violation("stuck", f"{task}: {work.get('trigger')} waits") for work in waiting]
        if "next_slot" in state and not state.get("paused"):
            late_ms = now_ms - parse_rfc3339(state["next_slot"])
            if late_ms > LATE_MS:
                out.append(Violation("stuck", f"{task}: its slot {state['next_slot']} is late"))
    letters = [
        entry.value or b""
        for (topic, _number), log in world.broker.logs.items()
        if topic.endswith(".dead-letter")
        for entry in log.readable(0)
    ]
    for task, trigger in world.facts.triggers:
        if any(trigger.encode() in letter for letter in letters):
            continue  # its task was not defined when it came
        told = records.get(task, TaskRecords()).events
        if not any(event.get("trigger") == trigger for event in told if event["kind"] != "moved"):
            out.append(Violation("trigger", f"trigger {trigger} of {task} has had no answer"))
    out += _lost_cycles(world, records)
    out += _held(world, records)
    return out

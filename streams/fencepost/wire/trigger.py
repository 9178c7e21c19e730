"""Triggers: what anybody may produce to have a task run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from fencepost.codec import BadRecord, dumps, dumps_given
from fencepost.core.backfills import BACKFILL
from fencepost.core.dependents import slot_cycle
from fencepost.core.events import Trigger
from fencepost.core.evolve import builder
from fencepost.core.fans import is_shard_of
from fencepost.core.links import Shard
from fencepost.core.task import Work
from fencepost.core.times import format_ms, parse_duration, parse_rfc3339
from fencepost.wire.edge import PAYLOAD_BYTES, RESULT_BYTES, read_body_sized, read_key, require_size, task_of
from fencepost.wire.links import read_shard, shard_to_json
from fencepost.wire.times import read_time

Headers = Sequence[tuple[str, bytes | None]]

ID_BYTES: Final = 255
REPLAYS_HEADER: Final = "fencepost_replays"  # on a replayed trigger: how often it was, in ASCII digits
CYCLE_BYTES: Final = 600  # of a replay: run:, a task ID and a trigger ID at most
_EMPTY: Final = frozenset((b"", b"{}", b"null"))
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
HEADERS_BYTES: Final = 16 * 1024
_new_trigger = builder(Trigger)


def read_trigger(
    key: bytes | None, value: bytes | None, headers: Headers | None, offset: int, arrived_ms: int
) -> Trigger:
    """A trigger as it was received. Raises BadRecord.

    `{}`, an empty value and the literal text `null`, which UIs send for an empty form, are a trigger without payload; a
    tombstone is none. `arrived_ms` is the record's time stamp, whatever it says: the machine judges it.
    """
    if value is None:
        raise BadRecord("a tombstone is no trigger; send {} for one without payload", "value")
    task = read_key(key)
    body, size = ({}, 2) if value in _EMPTY else _body(value)
    if task is None or "task" in body:
        task = task_of(task, body)
    trigger_id = _id(body, headers) if headers else body.get("id")
    if trigger_id is not None:
        check_id(trigger_id)
    payload = body.get("payload")
    if size > PAYLOAD_BYTES:
        require_size(payload, PAYLOAD_BYTES, "payload")
    run_headers = body.get("headers")
    if run_headers is not None:
        require_size(run_headers, HEADERS_BYTES, "headers")
    priority = body.get("priority")
    cycle = _cycle(body) if "cycle" in body or "upstream" in body or "shard" in body else None
    run_at_ms, delay_ms = _when(body) if "run_at" in body or "delay" in body else (None, None)
    return _new_trigger(
        task,
        trigger_id,
        payload,
        run_at_ms,
        None if priority is None else int(priority),
        run_headers,
        offset,
        arrived_ms,
        size if trigger_id is None else size + len(trigger_id),
        delay_ms,
        replays_of(headers) if headers else 0,
        cycle,
        body.get("upstream") if cycle is not None else None,
        *(_shard(body, task) if "shard" in body else ()),
    )


def replays_of(headers: Headers) -> int:
    """How often a record was replayed already."""
    for name, raw in headers:
        if name == REPLAYS_HEADER and raw is not None and raw.isdigit() and len(raw) < 10:
            return int(raw)
    return 0


def encode_trigger(
    *,
    task: str | None = None,
    id: str | None = None,
    payload: Any = None,
    run_at_ms: int | None = None,
    delay_s: float | None = None,
    priority: int | None = None,
    headers: dict[str, str] | None = None,
    cycle: str | None = None,
) -> bytes:
    """The value of a trigger. `task` is only needed where the record has no key. Raises NotEncodable, BadRecord."""
    if run_at_ms is not None and delay_s is not None:
        raise BadRecord("run_at and delay exclude each other", "delay")
    body = {
        "task": task,
        "id": id,
        "payload": payload,
        "run_at": None if run_at_ms is None else format_ms(run_at_ms),
        "delay": delay_s,
        "priority": priority,
        "headers": headers,
        "cycle": cycle,
    }
    value = dumps_given({name: item for name, item in body.items() if item is not None})
    # What would be refused on arrival is refused here, where somebody can still mend it.
    read_trigger(b"task" if task is None else None, value, None, 0, 0)
    return value


def encode_again(work: Work) -> bytes:
    """The trigger that would ask for this work once more (for a dead letter that is replayed)."""
    body = {"id": work.trigger_id, "payload": work.payload, "priority": work.priority, "headers": work.headers}
    if work.origin is not None:
        body |= {"cycle": work.origin.cycle, "upstream": work.origin.upstream}
        if work.origin.shard is not None:
            body["shard"] = shard_to_json(work.origin.shard)
    elif work.slot_ms is not None:
        body["cycle"] = slot_cycle(work.slot_ms)
    return dumps({name: item for name, item in body.items() if item is not None})


def encode_asked(trigger: Trigger) -> bytes:
    """The value of a trigger that an owner asks a shard with; its key is the shard's ID."""
    body: dict[str, Any] = {
        "payload": trigger.payload,
        "headers": trigger.headers,
        "priority": trigger.priority,
        "cycle": trigger.cycle,
        "upstream": trigger.upstream,
    }
    if trigger.shard is not None:
        body["shard"] = shard = shard_to_json(trigger.shard)
        if trigger.slot_ms is not None:
            shard |= {"slot": format_ms(trigger.slot_ms), "asked_by": trigger.asked_by}
    return dumps({name: item for name, item in body.items() if item is not None})


def _shard(body: dict[str, Any], task: str) -> tuple[Shard | None, int | None, str | None]:
    """(which part of which request, the slot that it is for, what asked for that)

    Whoever runs it tells the task it is part of how it ended: that must be one that can have asked for it.
    """
    shard = read_shard(body)
    if shard is not None and not is_shard_of(task, shard.of):
        raise BadRecord(f"{task[:80]!r} is no shard of {shard.of[:80]!r}, nor an ID of its backfills", "shard.of")
    slot, who = body["shard"].get("slot"), body["shard"].get("asked_by")
    if (slot is None) != (who is None):
        raise BadRecord("slot and asked_by go together: a slot of a backfill, and its name", "shard.slot")
    if who is not None and not who.startswith(f"{BACKFILL} "):
        raise BadRecord(f"{who!r} is not allowed; allowed: {BACKFILL}, a space and its name", "shard.asked_by")
    return shard, None if slot is None else read_time(slot, "shard.slot"), who


def _body(value: bytes) -> tuple[dict[str, Any], int]:
    if len(value) < 64 and value.strip() == b"null":
        return {}, 2
    return read_body_sized("trigger", value)


def _id(body: dict[str, Any], headers: Headers) -> str | None:
    """The deduplication ID: `id`, or the header `ce_id`. Every header is checked, so that nothing fails later."""
    given: str | None = body.get("id")
    for name, raw in headers:
        if not name.isascii():
            raise BadRecord("a header's name is ASCII", f"header {name[:64]!r}")
        if raw is None:
            raise BadRecord("a header has a value", f"header {name[:64]}")
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            reason = f"not UTF-8: {error.reason} at byte {error.start}"
            raise BadRecord(reason, f"header {name[:64]}") from error
        if name == "ce_id":
            if given is not None and given != text:
                raise BadRecord(f"the header ce_id, {text[:64]!r}, is not `id`, {given[:64]!r}", "id")
            given = text
    return given


def check_id(trigger_id: str, field: str = "id", limit: int = ID_BYTES) -> None:
    """Raises BadRecord for what cannot be a deduplication ID."""
    size = len(trigger_id.encode())
    if not 0 < size <= limit:
        raise BadRecord(f"has {size} bytes; allowed: 1 to {limit}", field)
    found = _CONTROL.search(trigger_id)
    if found is not None:
        raise BadRecord(f"has a control character, U+{ord(found.group()):04X}, at position {found.start()}", field)


def _cycle(body: dict[str, Any]) -> str:
    cycle: str | None = body.get("cycle")
    if cycle is None:
        raise BadRecord("is for a trigger that names a cycle", "upstream" if "upstream" in body else "shard")
    check_id(cycle, "cycle", CYCLE_BYTES)
    require_size(body.get("upstream"), 2 * RESULT_BYTES, "upstream")  # with what is said beside the results
    return cycle


def _when(body: dict[str, Any]) -> tuple[int | None, int | None]:
    """(run_at_ms, delay_ms): one of the two."""
    if "run_at" in body and "delay" in body:
        raise BadRecord("run_at and delay exclude each other; give one of them", "delay")
    field = "run_at" if "run_at" in body else "delay"
    try:
        if field == "run_at":
            return parse_rfc3339(body["run_at"]), None
        return None, round(parse_duration(body["delay"]) * 1000)
    except ValueError as error:
        raise BadRecord(str(error), field) from error

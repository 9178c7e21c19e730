"""Controls: what operators ask for, and what one task's owner tells another's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from fencepost.codec import BadRecord, dumps, dumps_given
from fencepost.core.events import Backfilled, Cancelled, Event, Paused, Rerun, Resumed, Signalled
from fencepost.core.signals import Signal
from fencepost.core.task import OnResume
from fencepost.core.times import format_ms
from fencepost.wire.edge import PAYLOAD_BYTES, read_body_sized, read_key, require_size, task_of
from fencepost.wire.history import bound_result
from fencepost.wire.signal import read_signal, signal_to_json
from fencepost.wire.times import read_time
from fencepost.wire.trigger import HEADERS_BYTES, check_id

_FOR_BACKFILL: Final = ("since", "until", "left_out", "stop", "max_runs")
_BACKFILL_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,16}")
_FOR_RERUN: Final = ("id", "epoch", "slot", "payload", "headers", "priority")


def read_control(key: bytes | None, value: bytes | None, offset: int) -> tuple[str, Event]:
    """(task ID, event) of a control record. Raises BadRecord."""
    if value is None:
        raise BadRecord('a tombstone is no control; allowed: {"op": "cancel"}, "pause" or "resume"', "value")
    task_key = read_key(key)
    body, size = read_body_sized("control", value)
    task = task_of(task_key, body)
    op, reason = body["op"], body.get("reason")
    if op == "signal":
        return task, Signalled(read_signal(body["signal"], size), offset, body["from"])
    for name in ("signal", "from", "lane", "nonce"):
        if name in body:
            raise BadRecord(f"is for signals only, not for {op}", name)
    if "waiting" in body and op != "cancel":
        raise BadRecord(f"is for cancel only, not for {op}", "waiting")
    if op == "rerun":
        for name in _FOR_BACKFILL:
            if name in body:
                raise BadRecord(f"is for backfill only, not for {op}", name)
        return task, _rerun(body, size, offset)
    if op == "backfill":
        return task, _backfill(body, offset)
    if "on_resume" in body and op != "pause":
        raise BadRecord(f"is for pause only, not for {op}", "on_resume")
    for name in (*_FOR_RERUN, *_FOR_BACKFILL):
        if name in body:
            raise BadRecord(f"is for {'rerun' if name in _FOR_RERUN else 'backfill'} only, not for {op}", name)
    if op == "cancel":
        return task, Cancelled(offset, reason, body.get("waiting", True))
    if op == "pause":
        return task, Paused(offset, reason, OnResume(body.get("on_resume", OnResume.MISS.value)))
    return task, Resumed(offset)


def _backfill(body: dict[str, Any], offset: int) -> Backfilled:
    for name in _FOR_RERUN:
        if name in body and name != "id":
            raise BadRecord("is for rerun only, not for backfill", name)
    backfill_id = body.get("id", f"at-{offset}")
    if not _BACKFILL_ID.fullmatch(backfill_id):
        raise BadRecord("is no name of a backfill; allowed: 1 to 16 of a-z, A-Z, 0-9, and . _ : -", "id")
    if body.get("stop"):
        if "max_runs" in body:
            raise BadRecord("is for a range, not for the end of a backfill", "max_runs")
        return Backfilled(offset, backfill_id, stop=True, reason=body.get("reason"))
    for name in ("since", "until"):
        if name not in body:
            raise BadRecord("is missing: the first and the last time of the range, both included", name)
    since_ms, until_ms = read_time(body["since"], "since"), read_time(body["until"], "until")
    if since_ms > until_ms:
        raise BadRecord(f"{body['until']} is before `since`, {body['since']}", "until")
    left_out = sorted({read_time(slot, "left_out") for slot in body.get("left_out", ())})
    max_runs = int(body.get("max_runs", 1))
    return Backfilled(offset, backfill_id, since_ms, until_ms, tuple(left_out), max_runs=max_runs)


def encode_backfill(id: str, since_ms: int, until_ms: int, left_out: Sequence[int] = (), max_runs: int = 1) -> bytes:
    """The value of a control record that asks for the slots of a range. Raises BadRecord."""
    body: dict[str, Any] = {"op": "backfill", "id": id, "since": format_ms(since_ms), "until": format_ms(until_ms)}
    if left_out:
        body["left_out"] = [format_ms(slot_ms) for slot_ms in left_out]
    if max_runs != 1:
        body["max_runs"] = max_runs
    value = dumps(body)
    read_control(b"task", value, 0)
    return value


def encode_backfill_stop(reason: str | None = None) -> bytes:
    """The value of a control record that has no more slots of a backfill run. Raises BadRecord."""
    body = {"op": "backfill", "stop": True, "reason": reason}
    value = dumps({name: item for name, item in body.items() if item is not None})
    read_control(b"task", value, 0)
    return value


def _rerun(body: dict[str, Any], size: int, offset: int) -> Rerun:
    slot, epoch = body.get("slot"), body.get("epoch")
    if slot is None and epoch is None:
        raise BadRecord("give the epoch of the run, or its slot", "epoch")
    if slot is None and "payload" not in body:
        # The owner keeps the state of a task, not what its past runs were given.
        raise BadRecord(
            "is missing: owners keep no payloads of past runs; null for the task's own, or use `fencepost rerun`, "
            "which looks for it",
            "payload",
        )
    require_size(body.get("payload"), PAYLOAD_BYTES, "payload")
    headers, priority = body.get("headers"), body.get("priority")
    if headers is not None:
        require_size(headers, HEADERS_BYTES, "headers")
    if body.get("id") is not None:
        check_id(body["id"])
    return Rerun(
        offset,
        None if epoch is None else int(epoch),
        None if slot is None else read_time(slot, "slot"),
        body.get("id"),
        body.get("payload"),
        headers,
        None if priority is None else int(priority),
        size,
    )


def encode_rerun(
    *,
    id: str,
    epoch: int | None,
    slot_ms: int | None,
    payload: Any,
    headers: dict[str, str] | None = None,
    priority: int | None = None,
) -> bytes:
    """The value of a control record that asks for a past run once more. Raises BadRecord, NotEncodable."""
    body: dict[str, Any] = {
        "op": "rerun",
        "id": id,
        "epoch": epoch,
        "slot": None if slot_ms is None else format_ms(slot_ms),
        "headers": headers,
        "priority": priority,
    }
    value = dumps_given({**{name: item for name, item in body.items() if item is not None}, "payload": payload})
    read_control(b"task", value, 0)
    return value


def encode_control(
    op: str, *, reason: str | None = None, waiting: bool | None = None, on_resume: str | None = None
) -> bytes:
    """The value of a control record; its key is the task ID. Raises BadRecord."""
    body: dict[str, Any] = {"op": op, "reason": reason, "waiting": waiting, "on_resume": on_resume}
    value = dumps({name: item for name, item in body.items() if item is not None})
    read_control(b"task", value, 0)
    return value


def encode_signal(sender: str, signal: Signal, lane: str, nonce: str) -> bytes:
    """The value of the control record that carries a signal; its key is the ID of the task that is told."""
    told = signal_to_json(signal)
    if "result" in told:
        bound_result(told)
    return dumps({"op": "signal", "signal": told, "from": sender, "lane": lane, "nonce": nonce})

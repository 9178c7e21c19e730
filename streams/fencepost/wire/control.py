"""Controls: what operators ask for, and what one task's owner tells another's."""

from __future__ import annotations

from typing import Any

from fencepost.codec import BadRecord, dumps
from fencepost.core.events import Cancelled, Event, Paused, Resumed, Signalled
from fencepost.core.signals import Signal
from fencepost.wire.edge import read_body_sized, read_key, task_of
from fencepost.wire.history import bound_result
from fencepost.wire.signal import read_signal, signal_to_json


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
    if op == "cancel":
        return task, Cancelled(offset, reason, body.get("waiting", True))
    if op == "pause":
        return task, Paused(offset, reason)
    return task, Resumed(offset)


def encode_control(op: str, *, reason: str | None = None, waiting: bool | None = None) -> bytes:
    """The value of a control record; its key is the task ID. Raises BadRecord."""
    body: dict[str, Any] = {"op": op, "reason": reason, "waiting": waiting}
    value = dumps({name: item for name, item in body.items() if item is not None})
    read_control(b"task", value, 0)
    return value


def encode_signal(sender: str, signal: Signal, lane: str, nonce: str) -> bytes:
    """The value of the control record that carries a signal; its key is the ID of the task that is told."""
    told = signal_to_json(signal)
    if "result" in told:
        bound_result(told)
    return dumps({"op": "signal", "signal": told, "from": sender, "lane": lane, "nonce": nonce})

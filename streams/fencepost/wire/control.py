"""Controls: what operators ask for."""

from __future__ import annotations

from typing import Any

from fencepost.codec import BadRecord, dumps
from fencepost.core.events import Cancelled, Event, Paused, Resumed
from fencepost.wire.edge import read_body, read_key, task_of


def read_control(key: bytes | None, value: bytes | None, offset: int) -> tuple[str, Event]:
    """(task ID, event) of a control record. Raises BadRecord."""
    if value is None:
        raise BadRecord('a tombstone is no control; allowed: {"op": "cancel"}, "pause" or "resume"', "value")
    task_key = read_key(key)
    body = read_body("control", value)
    task = task_of(task_key, body)
    op, reason = body["op"], body.get("reason")
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

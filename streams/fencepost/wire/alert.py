"""Alerts: what the views say of a task that somebody should know of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fencepost.codec import BadRecord, dumps, loads_own
from fencepost.core.times import format_ms
from fencepost.wire.schema import check
from fencepost.wire.times import read_time

VERSION: Final = 1
KINDS: Final = ("failing", "missed", "late", "stuck")
RAISED: Final = "raised"
CLEARED: Final = "cleared"
ONCE: Final = "once"


@dataclass(frozen=True, slots=True)
class Alert:
    """`id` is the same for the same matter, however often it is told. status: raised, cleared, or once."""

    id: str
    task: str
    kind: str
    status: str
    at_ms: int
    text: str
    epoch: int | None = None
    slot_ms: int | None = None
    count: int | None = None


def encode_alert(alert: Alert) -> bytes:
    """The value of an alert's record; its key is the task ID."""
    body: dict[str, Any] = {
        "v": VERSION,
        "id": alert.id,
        "task": alert.task,
        "kind": alert.kind,
        "status": alert.status,
        "at": format_ms(alert.at_ms),
        "text": alert.text,
    }
    if alert.epoch is not None:
        body["epoch"] = alert.epoch
    if alert.slot_ms is not None:
        body["slot"] = format_ms(alert.slot_ms)
    if alert.count is not None:
        body["count"] = alert.count
    return dumps(body)


def decode_alert(value: bytes) -> Alert:
    """Raises BadRecord."""
    body = loads_own(value)
    if type(body) is not dict:
        raise BadRecord("an alert is a JSON object")
    check("alert", body)
    return Alert(
        body["id"],
        body["task"],
        body["kind"],
        body["status"],
        read_time(body["at"], "at"),
        body["text"],
        body.get("epoch"),
        read_time(body["slot"], "slot") if "slot" in body else None,
        body.get("count"),
    )

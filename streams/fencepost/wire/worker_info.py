"""What the workers topic holds of a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fencepost.codec import BadRecord, dumps, loads_own
from fencepost.core.times import format_ms
from fencepost.wire.schema import check
from fencepost.wire.times import read_time

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """`status` is active, draining or lost; `notes` says what is weaker than it should be on its machine."""

    worker: str
    incarnation: str
    host: str
    pid: int
    version: str
    status: str
    capacity: int
    load: int
    handlers: tuple[str, ...]
    lanes: tuple[str, ...]
    started_ms: int
    at_ms: int
    notes: tuple[str, ...] = ()


def encode_worker_info(info: WorkerInfo) -> bytes:
    """The value of a worker's record; its key is the worker ID."""
    body: dict[str, Any] = {"v": VERSION}
    for name in ("worker", "incarnation", "host", "pid", "version", "status", "capacity", "load", "handlers", "lanes"):
        body[name] = getattr(info, name)
    body["started"] = format_ms(info.started_ms)
    body["at"] = format_ms(info.at_ms)
    if info.notes:
        body["notes"] = info.notes
    return dumps(body)


def decode_worker_info(value: bytes) -> WorkerInfo:
    """Raises BadRecord."""
    body = loads_own(value)
    if type(body) is not dict:
        raise BadRecord("a worker's record is a JSON object")
    check("worker_info", body)
    return WorkerInfo(
        body["worker"],
        body["incarnation"],
        body["host"],
        body["pid"],
        body["version"],
        body["status"],
        body["capacity"],
        body["load"],
        tuple(body["handlers"]),
        tuple(body["lanes"]),
        read_time(body["started"], "started"),
        read_time(body["at"], "at"),
        tuple(body.get("notes", ())),
    )

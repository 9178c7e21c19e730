"""What the workers topic holds of a worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.codec import BadRecord, dumps, loads_own
from fencepost.core.times import format_ms
from fencepost.wire.schema import check
from fencepost.wire.times import read_time

VERSION: Final = 1
SILENT_MS: Final = 60_000  # a worker that wrote nothing for so long is not compared with others


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker, as it says of itself.

    status: active, draining, left, or lost where others found it gone. lanes: lane IDs. partitions: those it holds.
    mechanism: how its guard ends runs here. notes: what is weaker than it should be on its machine. announced: the
    offset of this incarnation's first record, which tells incarnations of one worker ID apart by age; None in that
    record itself. tzdata, holidays: releases of the data that decide on slots.
    """

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
    partitions: tuple[int, ...] = ()
    mechanism: Mapping[str, Any] = field(default_factory=dict, hash=False)
    tzdata: str = ""
    holidays: str = ""
    clock_source: str = ""
    announced: int | None = None


def encode_worker_info(info: WorkerInfo) -> bytes:
    """The value of a worker's record; its key is the worker ID."""
    body: dict[str, Any] = {"v": VERSION}
    for name in ("worker", "incarnation", "host", "pid", "version", "status", "capacity", "load", "handlers", "lanes"):
        body[name] = getattr(info, name)
    body["started"] = format_ms(info.started_ms)
    body["at"] = format_ms(info.at_ms)
    for name in ("notes", "partitions", "mechanism", "tzdata", "holidays", "clock_source"):
        if value := getattr(info, name):
            body[name] = value
    if info.announced is not None:
        body["announced"] = info.announced
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
        tuple(body.get("partitions", ())),
        body.get("mechanism", {}),
        body.get("tzdata", ""),
        body.get("holidays", ""),
        body.get("clock_source", ""),
        body.get("announced"),
    )


def different_time_data(heard: Iterable[tuple[WorkerInfo, int]]) -> dict[str, list[str]]:
    """Which releases of the data that decide on slots are in use, each with its workers; empty where all have the same.

    heard: the workers' last records with the brokers' time of each. Those that left or fell silent do not count.
    """
    heard = list(heard)
    newest_ms = max((at_ms for _, at_ms in heard), default=0)
    found: dict[str, list[str]] = {}
    for info, at_ms in heard:
        if info.status in ("active", "draining") and newest_ms - at_ms < SILENT_MS and info.tzdata:
            holidays = f", holidays {info.holidays}" if info.holidays else ""
            found.setdefault(f"tzdata {info.tzdata}{holidays}", []).append(info.worker)
    return {name: sorted(workers) for name, workers in sorted(found.items())} if len(found) > 1 else {}

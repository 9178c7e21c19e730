"""History: one record for each change of a run, each skip and each series of misses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fencepost.codec import BadRecord, dumps, loads
from fencepost.core.commands import History
from fencepost.core.times import format_ms
from fencepost.wire.edge import RESULT_BYTES
from fencepost.wire.schema import check
from fencepost.wire.times import read_time

VERSION: Final = 1
_FRAME: Final = frozenset(("v", "task", "lane", "nonce", "kind", "epoch", "at"))


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """A history record as read: `fields` is all that depends on the kind, as in `core.commands.History`."""

    task: str
    kind: str
    epoch: int | None
    at_ms: int
    lane: str
    nonce: str
    fields: dict[str, Any]


def encode_history(task: str, history: History, lane: str, nonce: str) -> bytes:
    """The value of a history record; its key is the task ID. Raises NotEncodable where a result is not JSON."""
    body: dict[str, Any] = {"v": VERSION, "task": task, "kind": history.kind, "at": format_ms(history.at_ms)}
    if history.epoch is not None:
        body["epoch"] = history.epoch
    body.update(history.fields)
    body["lane"] = lane
    body["nonce"] = nonce
    value = dumps(body)
    if len(value) > RESULT_BYTES and "result" in body:
        return _without_large_result(body, value)
    return value


def _without_large_result(body: dict[str, Any], value: bytes) -> bytes:
    size = len(dumps(body["result"]))
    if size <= RESULT_BYTES:
        return value
    del body["result"]
    body["result_dropped"] = f"it has {size:,} bytes as JSON; at most {RESULT_BYTES:,} are kept"
    return dumps(body)


def decode_history(value: bytes) -> HistoryRecord:
    """Raises BadRecord."""
    body = loads(value)
    if type(body) is not dict:
        raise BadRecord("a history record is a JSON object")
    check("history", body)
    return HistoryRecord(
        body["task"],
        body["kind"],
        body.get("epoch"),
        read_time(body["at"], "at"),
        body["lane"],
        body["nonce"],
        {name: item for name, item in body.items() if name not in _FRAME},
    )

"""History: one record for each change of a run, each skip and each series of misses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fencepost.codec import BadRecord, NotEncodable, dumps, dumps_given, loads
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
    """The value of a history record; its key is the task ID.

    A result that is too large, or that JSON has no form for, is left out and the record says so: the end of a run is
    recorded whatever it returned.
    """
    body: dict[str, Any] = {"v": VERSION, "task": task, "kind": history.kind, "at": format_ms(history.at_ms)}
    if history.epoch is not None:
        body["epoch"] = history.epoch
    body.update(history.fields)
    body["lane"] = lane
    body["nonce"] = nonce
    if "result" in body:
        bound_result(body)
    return dumps(body)


def bound_result(body: dict[str, Any]) -> None:
    """Leave a `result` out that is too large or has no JSON form, and say so."""
    try:
        size = len(dumps_given(body["result"]))
    except NotEncodable as error:
        del body["result"]
        body["result_dropped"] = str(error)
        return
    if size > RESULT_BYTES:
        del body["result"]
        body["result_dropped"] = f"it has {size:,} bytes as JSON; at most {RESULT_BYTES:,} are kept"


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

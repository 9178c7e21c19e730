"""What runs printed, batched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from fencepost.codec import BadRecord, dumps, loads
from fencepost.core.times import format_ms
from fencepost.wire.schema import check
from fencepost.wire.times import read_time

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class LogPart:
    """One record of a run's output. `lines`: (stream, text), stream being out, err or log. `cut`: more was not kept."""

    task: str
    epoch: int
    worker: str
    part: int
    at_ms: int
    lines: tuple[tuple[str, str], ...]
    cut: bool = False


def encode_log(part: LogPart) -> bytes:
    """The value of a log record; its key is the task ID. Lone surrogates in what was printed become `?`."""
    body: dict[str, Any] = {
        "v": VERSION,
        "task": part.task,
        "epoch": part.epoch,
        "worker": part.worker,
        "part": part.part,
        "at": format_ms(part.at_ms),
        "lines": _clean(part.lines),
    }
    if part.cut:
        body["cut"] = True
    return dumps(body)


def decode_log(value: bytes) -> LogPart:
    """Raises BadRecord."""
    body = loads(value)
    if type(body) is not dict:
        raise BadRecord("a log record is a JSON object")
    check("log", body)
    lines = tuple((stream, text) for stream, text in body["lines"])
    at_ms = read_time(body["at"], "at")
    return LogPart(body["task"], body["epoch"], body["worker"], body["part"], at_ms, lines, body.get("cut", False))


def _clean(lines: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(stream, text.encode("utf-8", "replace").decode()) for stream, text in lines]

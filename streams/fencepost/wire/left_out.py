"""The slots that a backfill leaves out, in a record of their own."""

from __future__ import annotations

from typing import Any, Final

from fencepost.codec import BadRecord, dumps, loads_own
from fencepost.core.times import format_ms
from fencepost.wire.schema import check
from fencepost.wire.times import read_time

VERSION: Final = 1
LEFT_OUT: Final = "left_out"  # the kind in the record's key, see core.ids.side_key


def encode_left_out(task: str, slots_ms: tuple[int, ...], lane: str, nonce: str) -> bytes:
    """The value of the record; its key is the task ID, U+001F, "left_out", U+001F and 0."""
    slots = [format_ms(slot_ms) for slot_ms in slots_ms]
    return dumps({"v": VERSION, "task": task, "lane": lane, "nonce": nonce, "slots": slots})


def decode_left_out(value: bytes) -> tuple[int, ...]:
    """The slots, in order. Raises BadRecord."""
    body: Any = loads_own(value)
    if type(body) is not dict:
        raise BadRecord("a left_out record is a JSON object")
    if body.get("v") != VERSION:
        raise BadRecord(f"unknown version {str(body.get('v'))[:40]}; this release knows version {VERSION}", "v")
    check("left_out", body)
    return tuple([read_time(slot, "slots") for slot in body["slots"]])

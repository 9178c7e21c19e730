"""The slots that a backfill leaves out, in a record of their own."""

from __future__ import annotations

from typing import Final

from fencepost.codec import dumps
from fencepost.core.times import format_ms
from fencepost.wire.schema import read_own
from fencepost.wire.times import read_time

VERSION: Final = 1
LEFT_OUT: Final = "left_out"  # the kind in the record's key, see core.ids.side_key


def encode_left_out(task: str, slots_ms: tuple[int, ...], lane: str, nonce: str) -> bytes:
    """The value of the record; its key is the task ID, U+001F, "left_out", U+001F and 0."""
    slots = [format_ms(slot_ms) for slot_ms in slots_ms]
    return dumps({"v": VERSION, "task": task, "lane": lane, "nonce": nonce, "slots": slots})


def decode_left_out(value: bytes) -> tuple[int, ...]:
    """The slots, in order. Raises BadRecord."""
    body = read_own("left_out", value, VERSION)
    return tuple([read_time(slot, "slots") for slot in body["slots"]])

"""The epoch floor of a partition: no ID that is new there starts at or below it."""

from __future__ import annotations

from typing import Final

from fencepost.codec import dumps
from fencepost.wire.schema import read_own

VERSION: Final = 1
FLOOR: Final = "floor"  # the kind in the record's key, which names no task


def encode_floor(epoch: int, lane: str, nonce: str) -> bytes:
    """The value of a floor; its key is U+001F, "floor", U+001F and 0."""
    return dumps({"v": VERSION, "epoch": epoch, "lane": lane, "nonce": nonce})


def decode_floor(value: bytes) -> int:
    """The epoch. Raises BadRecord."""
    return int(read_own("floor", value, VERSION)["epoch"])

"""The last record of every transaction: it goes to the transaction's first partition and differs each time."""

from __future__ import annotations

from fencepost.codec import dumps


def encode_sentinel(lane: str, number: int) -> bytes:
    """`number` is unique within the lane."""
    return dumps({"v": 1, "lane": lane, "transaction": number})

"""Deduplication: the IDs of the triggers that a task took lately, as hashes."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Final

KEPT: Final = 100
KEPT_MS: Final = 24 * 3600 * 1000

Recent = tuple[tuple[str, int], ...]


def hash_of(trigger_id: str) -> str:
    """60 bits of BLAKE2b in base64url, 10 characters: an ID meets one of a hundred others once in 10^16 triggers."""
    return urlsafe_b64encode(blake2b(trigger_id.encode(), digest_size=8).digest())[:10].decode()


def remember(recent: Recent, trigger_id: str, now_ms: int) -> Recent | None:
    """`recent` with the ID added and what is too old or too many left out; None if it was there: a duplicate.

    Kept to the whole minute, which is all that forgetting after a day needs and keeps the state record small.
    """
    hashed = hash_of(trigger_id)
    if recent:
        since_ms = now_ms - KEPT_MS
        for known, at_ms in recent:
            if known == hashed and at_ms > since_ms:
                return None
        if len(recent) >= KEPT or recent[0][1] <= since_ms:
            recent = tuple(entry for entry in recent[-KEPT + 1 :] if entry[1] > since_ms)
    return (*recent, (hashed, now_ms - now_ms % 60_000))

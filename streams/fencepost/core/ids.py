"""Task IDs, the keys made of them, and which partition an ID belongs to.

Ownership is defined by Java's murmur2 of the key modulo the partition count (``DefaultPartitioner`` of the Java client,
``partitioner=murmur2_random`` of librdkafka); librdkafka's default, CRC32, puts the same key elsewhere.
"""

from __future__ import annotations

import re
from functools import lru_cache
from struct import unpack_from
from typing import Final

MAX_ID_BYTES: Final = 255
SEPARATOR: Final = "\x1f"  # a control character, so no task ID contains it
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")


def check_task_id(task_id: object) -> str:
    """The ID itself, if it is one: 1 to 255 bytes of UTF-8 without control characters. Raises ValueError."""
    if isinstance(task_id, str) and task_id.isascii() and task_id.isprintable() and 0 < len(task_id) <= MAX_ID_BYTES:
        return task_id  # nearly all are such
    if not isinstance(task_id, str):
        raise ValueError(f"a task ID is a string, not {type(task_id).__name__}")
    if not task_id:
        raise ValueError("a task ID has at least one character")
    try:
        size = len(task_id.encode())
    except UnicodeEncodeError as error:
        raise ValueError("a task ID is valid Unicode: this one has a lone surrogate") from error
    if size > MAX_ID_BYTES:
        raise ValueError(f"a task ID has at most {MAX_ID_BYTES} bytes of UTF-8, this one has {size}")
    found = _CONTROL.search(task_id)
    if found is not None:
        raise ValueError(f"a task ID has no control characters: U+{ord(found.group()):04X} at position {found.start()}")
    return task_id


def murmur2(data: bytes) -> int:
    """Java's ``org.apache.kafka.common.utils.Utils.murmur2``, as an unsigned 32-bit number."""
    length = len(data)
    mixed = 0x9747B28C ^ length
    whole = length & ~3
    for word in unpack_from(f"<{whole >> 2}I", data):
        word = word * 0x5BD1E995 & 0xFFFFFFFF
        mixed = (mixed * 0x5BD1E995 ^ (word ^ word >> 24) * 0x5BD1E995) & 0xFFFFFFFF
    if whole != length:
        mixed ^= int.from_bytes(data[whole:], "little")
        mixed = mixed * 0x5BD1E995 & 0xFFFFFFFF
    mixed ^= mixed >> 13
    mixed = mixed * 0x5BD1E995 & 0xFFFFFFFF
    return mixed ^ mixed >> 15


@lru_cache(maxsize=131_072)
def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions`, as Java's producer chooses it (the sign bit is dropped)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def side_key(task_id: str, kind: str, number: int) -> str:
    """The key of a record that belongs to a task but is not its state, such as one waiting trigger (kind ``work``)."""
    return f"{task_id}{SEPARATOR}{kind}{SEPARATOR}{number}"


def split_key(key: str) -> tuple[str, str | None, int]:
    """(task ID, kind, number) of a key of the state topic; kind is None for the state itself. Raises ValueError."""
    task_id, *rest = key.split(SEPARATOR)
    if not rest:
        return task_id, None, 0
    if len(rest) != 2 or not rest[1].isdecimal():
        raise ValueError(f"not a key of the state topic: {key[:300]!r}")
    return task_id, rest[0], int(rest[1])

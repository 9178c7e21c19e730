"""Which requests one run gets under overlap `batch`, and how the state names them.

The state record is small and holds numbers only; each request stays in the record it waited in until the batch ends.
Requests that came one after the other, the usual case, are one range, so a hundred of them take a few bytes. Where
priorities mix them, the batch ends early if the numbers would take too much room: the others are in the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fencepost.core.task import Work

NUMBERS_BYTES: Final = 120


def members_of(waiting: tuple[Work, ...], limit: int) -> tuple[Work, ...]:
    """The first of `waiting` that fit, `limit` at most."""
    members = waiting[:limit]
    while members and len(numbers_text(member.seq for member in members)) > NUMBERS_BYTES:
        members = members[: len(members) * 3 // 4]
    return members


def numbers_text(numbers: Iterable[int]) -> str:
    """In their order, those that follow each other as a range: ``4-9 2 11-12``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " ".join([str(first) if first == last else f"{first}-{last}" for first, last in parts])


def numbers_of(text: str) -> list[int]:
    """What `numbers_text` wrote."""
    numbers: list[int] = []
    for part in text.split(" "):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers

"""What ties a task to others: who runs after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_CHILDREN: Final = 200  # of one task: each is told of every end, in one transaction


@dataclass(frozen=True, slots=True)
class Links:
    """Kept in a record of its own beside the state, also of an ID that is not defined (yet)."""

    children: tuple[str, ...] = ()  # in the order in which they asked

    @property
    def empty(self) -> bool:
        return not self.children

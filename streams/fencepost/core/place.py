"""Where a task is: in the namespace itself or in a pool of it; and what it takes along when it moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAIN: Final = ""  # where a pool sends what is for the namespace it belongs to


@dataclass(frozen=True, slots=True)
class Place:
    """Kept in the task's state on both sides of a move. `number` counts the moves of the task out of the namespace.

    In the namespace: `pool` is where the task is (None: here), `sent` tells which definition that pool was given last,
    `recalled` that it was asked to give the task back, `spoken` that the task was paused or resumed here since then:
    what the pool says of that, or sends back, is older. In a pool: `left` says that it has been given back.
    """

    number: int
    pool: str | None = None
    sent: str | None = None
    recalled: bool = False
    left: bool = False
    spoken: bool = False

    @property
    def away(self) -> bool:
        """Whether nothing of the task may start here."""
        return self.pool is not None or self.left


@dataclass(frozen=True, slots=True)
class Luggage:
    """What of a task's state goes with it. `recent`: the deduplication IDs it remembers, each "hash ms"."""

    number: int
    epoch: int = 0
    last_slot_ms: int = -1
    not_before_ms: int = 0
    paused: bool = False
    pause_reason: str | None = None
    schedule: str | None = None  # the fingerprint of the one that was in force
    recent: tuple[str, ...] = ()
    cancelled_to: int = -1  # of a shard
    next_seq: int = 1
    defined_paused: bool = False  # what the last definition taken said of it


@dataclass(frozen=True, slots=True)
class Arrival:
    """Part of the definition that a pool is given: the task comes with this. `recall`: it is wanted back."""

    luggage: Luggage
    recall: bool = False

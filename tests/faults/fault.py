"""One fault: what it is done to, and how it begins and ends. The kinds are in the modules beside, listed in `kinds`."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from enum import StrEnum
from typing import ClassVar

from tests.faults.arena import Arena, Worker

PREPARE_LIMIT_S = 15.0


class Target(StrEnum):
    """What a fault is done to. Faults of one worker or run go together if they concern different workers."""

    WORKER = "worker"
    RUN = "run"
    BROKER = "broker"  # alone in its round: what it does to runs must be its own doing
    GROUP = "group"  # who is a member
    NAMESPACE = "namespace"  # the arena ends with it


class Unsuitable(Exception):
    """The fault cannot be done right now: what it is to be done to is not there."""


class Fault(ABC):
    """`prepare` chooses and waits for the moment, `inject` does it, `heal` undoes it.

    lasts    whether it lasts until others have taken over; else for `brief_s`
    owner_lost   whether the victim's tasks have to be taken over, so that takeovers are timed
    """

    name: ClassVar[str]
    target: ClassVar[Target]
    owner_lost: ClassVar[bool] = False
    weight: ClassVar[int] = 1  # how often it is in the deck

    def __init__(self, arena: Arena, dice: random.Random, victim: Worker | None) -> None:
        self.arena = arena
        self.dice = dice
        self.victim = victim
        self.lasts = self.owner_lost and dice.random() < 0.75
        self.brief_s = dice.uniform(0.1, 0.8) * arena.setting.lease_s
        self.detail = ""

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        """Why this machine, or this arena, cannot do it; None if it can."""
        return None

    @property
    def worker(self) -> Worker:
        assert self.victim is not None
        return self.victim

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Raises Unsuitable."""

    @abstractmethod
    def inject(self) -> None: ...

    @abstractmethod
    def heal(self) -> None: ...

    def check(self) -> str | None:  # after all has recovered
        """What was wrong beside what the checker sees; None if nothing."""
        return None

    def __str__(self) -> str:
        whom = f" of {self.victim.name}" if self.victim is not None else ""
        return f"{self.name}{whom}" + (f" ({self.detail})" if self.detail else "")

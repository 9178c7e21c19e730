"""What every measurement is given, and what it gives back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost.broker import Cluster
from tests.bench.kafka_side import Namespace
from tests.bench.processes import Processes


@dataclass(frozen=True, slots=True)
class Bench:
    """`quick`: smaller numbers, to see that everything works; its figures are not for comparing."""

    processes: Processes
    cluster: Cluster
    folder: Path
    quick: bool

    def namespace(self, profile: str = "swift") -> Namespace:
        return Namespace(self.cluster, self.processes, self.folder, profile)

    def choose(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be reached, and whether it was."""

    text: str
    reached: bool


@dataclass(slots=True)
class Result:
    """`rows`: (what, figures) for people. `figures`: everything, for programs."""

    name: str
    rows: list[tuple[str, str]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)

    def row(self, what: str, text: str) -> None:
        self.rows.append((what, text))

    def goal(self, text: str, reached: bool) -> None:
        self.goals.append(Goal(text, reached))


Measurement = Callable[[Bench], Result]


def say(text: str) -> None:
    """Progress, for people; the table goes to stdout."""
    print(f"  {text}", file=sys.stderr, flush=True)

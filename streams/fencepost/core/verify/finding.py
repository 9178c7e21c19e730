"""What a check finds, and where it lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_FINDINGS: Final = 1000  # of one partition; what goes beyond is counted


class Kind(StrEnum):
    """What was found. All but NOTE break the promise."""

    OVERLAP = "overlap"  # a run started before the one before it had ended
    TWICE = "twice"  # an epoch was started, or ended, twice
    BACKWARDS = "backwards"  # an epoch below one given out before
    NO_START = "no_start"  # a run ended that never started
    NO_OWNER = "no_owner"  # a run is on without an end, and nobody who could end it is there
    NO_FENCE = "no_fence"  # written by a lane that was not the partition's holder
    STATE = "state"  # state and history disagree
    DROPPED = "dropped"  # a request was neither tried again nor given up, nor dropped on purpose
    ELSEWHERE = "elsewhere"  # what a broadcast asked of one worker ran on another
    SLOT_TWICE = "slot_twice"  # a slot became a second run although the first was not to be repeated
    SLOT_LOST = "slot_lost"  # a slot neither ran nor was skipped or missed
    NOTE = "note"  # worth a look, breaks nothing


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies. `topic`: runs, state or owners; its full name begins with the namespace."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `places`: the records that show it, in the order of their part in it."""

    kind: Kind
    task: str
    epoch: int | None
    text: str
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """What was looked at."""

    tasks: int = 0
    events: int = 0
    runs: int = 0
    running: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.tasks + other.tasks,
            self.events + other.events,
            self.runs + other.runs,
            self.running + other.running,
        )


class Findings:
    """The findings of one partition, in order; beyond the limit they are only counted, by kind."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self.kept: list[Finding] = []
        self.more: Counter[Kind] = Counter()

    def add(
        self,
        kind: Kind,
        task: str,
        epoch: int | None,
        text: str,
        runs: Iterable[int] = (),
        state: Iterable[int] = (),
        owners: Iterable[int] = (),
    ) -> None:
        """`runs`, `state`, `owners`: offsets in these topics; negative ones are not known and left out."""
        if len(self.kept) >= MAX_FINDINGS:
            self.more[kind] += 1
            return
        named = (("runs", runs), ("state", state), ("owners", owners))
        places = tuple(Place(topic, self._partition, at) for topic, offsets in named for at in offsets if at >= 0)
        self.kept.append(Finding(kind, task, epoch, text, places))

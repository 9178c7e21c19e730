"""Who may have written a record: the fences of a partition, in the order of its log of owners.

Every record that a lane writes for a partition names the lane and the nonce of its acquisition, and every acquisition
begins with a fence. Once something was written under one fence, nothing may follow under an earlier one. All of this
is told by offsets of one log each, so no clock is asked. The log of owners is compacted: fences that it no longer holds
are older than all that it does hold, and what was written under them cannot be judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fencepost.core.verify.finding import Findings, Kind


class Stamp(NamedTuple):
    """Who says that it wrote a record."""

    lane: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Fence:
    """A fence record of the owners topic."""

    lane: str
    nonce: str
    offset: int
    at_ms: int
    released: bool = False


class Fences:
    """The fences of one partition in their order. `whole`: none was ever removed, so every nonce must be here."""

    def __init__(self, fences: Iterable[Fence] = (), whole: bool = False) -> None:
        self.whole = whole
        self.last: Fence | None = None
        self._places: dict[str, int] = {}
        self.taken: list[Fence] = []  # without releases: a release belongs to the fence of its nonce
        for fence in fences:
            if fence.released:
                if self.last is not None and self.last.nonce == fence.nonce:
                    self.last = fence
                continue
            self._places[fence.nonce] = len(self.taken)
            self.taken.append(fence)
            self.last = fence

    def place(self, nonce: str) -> int | None:
        return self._places.get(nonce)


class Turns:
    """Follows one log, whose records must come under the fences in their order."""

    def __init__(self, topic: str, fences: Fences | None, findings: Findings) -> None:
        self._topic = topic
        self._fences = fences
        self._findings = findings
        self._newest = -1  # place of the newest fence that something was written under
        self._newest_at = -1
        self._current: tuple[Stamp, int] | None = None  # the last fence in this very log
        self._told: set[Stamp] = set()  # one finding for each: a lane that writes on writes a lot

    def fence(self, stamp: Stamp, offset: int) -> None:
        """A fence in this very log: what follows is written under it."""
        self._current = (stamp, offset)

    def record(self, task: str, epoch: int | None, stamp: Stamp, offset: int) -> None:
        if stamp in self._told:
            return
        if self._current is not None:
            holder, fenced_at = self._current
            if stamp != holder:
                text = f"written by {_name(stamp)} after {_name(holder)} had fenced the partition"
                self._found(task, epoch, stamp, text, offset, fenced_at)
            return
        fences = self._fences
        if fences is None:
            return
        place = fences.place(stamp.nonce)
        if place is None:
            if self._newest >= 0 or fences.whole:
                text = f"written by {_name(stamp)}, which never fenced the partition"
                self._found(task, epoch, stamp, text, offset, self._newest_at)
            return
        fence = fences.taken[place]
        if fence.lane != stamp.lane:
            text = f"written by {_name(stamp)}, but that nonce is of {fence.lane}"
            self._found(task, epoch, stamp, text, offset, owners=fence.offset)
        elif place < self._newest:
            newer = fences.taken[self._newest]
            text = f"written by {_name(stamp)} after {newer.lane} had taken over and written"
            self._found(task, epoch, stamp, text, offset, self._newest_at, newer.offset)
        else:
            self._newest, self._newest_at = place, offset

    def _found(
        self, task: str, epoch: int | None, stamp: Stamp, text: str, offset: int, other: int = -1, owners: int = -1
    ) -> None:
        if len(self._told) < 1000:
            self._told.add(stamp)
        here = {self._topic: (offset, other)}
        self._findings.add(Kind.NO_FENCE, task, epoch, text, owners=(owners,), **here)


def _name(stamp: Stamp) -> str:
    return f"{stamp.lane} (nonce {stamp.nonce})"

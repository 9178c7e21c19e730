"""Runs: epochs only grow, none is started twice, none overlaps another, and each end says what follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fencepost.core.commands import History
from fencepost.core.verify.finding import Findings, Kind
from fencepost.core.verify.known import Known, Promise
from fencepost.core.verify.slots import ENDS

_TO_BE_REPEATED: Final = frozenset(("failed", "timed_out", "interrupted"))
_MAX_OPEN: Final = 16  # runs of one task at once; there is one where the promise holds


class Runs:
    """The rules for runs. complete: the history goes back to its beginning, so that every end has its start."""

    def __init__(self, findings: Findings, complete: bool) -> None:
        self._findings = findings
        self._complete = complete
        self.started = 0

    def event(self, task: str, known: Known, event: History, at: int) -> bool:
        """The next event of the task. Whether it is a run that the end of the one before it announced."""
        if event.kind == "forgotten":
            known.forgotten = event.epoch or 0
        if event.kind == "started":
            return self._started(task, known, event, at)
        if event.kind in ENDS:
            if "duration_s" in event.fields:
                self._ended(task, known, event, at)
            else:
                known.promise = None  # the request ended while no run of it was on
        elif event.kind == "moved":
            known.promise = None  # what was to be tried again went along
            if event.epoch is not None and event.epoch > known.last:
                known.last, known.last_at = event.epoch, at
        return False

    def _started(self, task: str, known: Known, event: History, at: int) -> bool:
        epoch = event.epoch or 0
        self.started += 1
        for other, other_at in known.opened:
            if other != epoch:
                text = f"epoch {epoch} started while epoch {other} had not ended"
                self._findings.add(Kind.OVERLAP, task, epoch, text, (other_at, at))
        if epoch == known.last:
            self._findings.add(Kind.TWICE, task, epoch, f"epoch {epoch} was started twice", (known.last_at, at))
        elif epoch < known.last:
            text = f"epoch {epoch} was started after epoch {known.last}"
            self._findings.add(Kind.BACKWARDS, task, epoch, text, (known.last_at, at))
        elif known.last and epoch > known.last + 1 and known.forgotten != known.last:
            text = f"epoch {epoch} follows {known.last}: none in between was started"
            self._findings.add(Kind.NOTE, task, epoch, text, (known.last_at, at))
        known.first = known.first or epoch
        if epoch >= known.last:
            known.last, known.last_at = epoch, at
        known.opened = [entry for entry in known.opened if entry[0] != epoch][-_MAX_OPEN + 1 :]
        known.opened.append((epoch, at))
        promise, known.promise = known.promise, None
        if promise is None:
            return False
        if promise.work != work_of(event.fields):
            text = f"epoch {promise.epoch} ended to be tried again, but epoch {epoch} is another request's"
            self._findings.add(Kind.DROPPED, task, promise.epoch, text, (promise.at, at))
            return False
        return True

    def _ended(self, task: str, known: Known, event: History, at: int) -> None:
        epoch, kind = event.epoch or 0, event.kind
        if any(entry[0] == epoch for entry in known.opened):
            known.opened = [entry for entry in known.opened if entry[0] != epoch]
        elif epoch <= known.ended and known.first:
            text = f"epoch {epoch} ended twice ({kind})"
            self._findings.add(Kind.TWICE, task, epoch, text, (known.ended_at, at))
        elif self._complete or known.first:
            self._findings.add(Kind.NO_START, task, epoch, f"epoch {epoch} ended ({kind}) but never started", (at,))
        known.first = known.first or epoch
        if epoch > known.last:
            known.last, known.last_at = epoch, at
        if epoch >= known.ended:
            known.ended, known.ended_at, known.ended_as = epoch, at, kind
        self._follows(task, known, event, at)

    def _follows(self, task: str, known: Known, event: History, at: int) -> None:
        """A run that did not succeed says what becomes of its request."""
        known.promise = None
        if event.kind not in _TO_BE_REPEATED:
            return
        if "retry_at" in event.fields:
            known.promise = Promise(work_of(event.fields), event.epoch or 0, at)
        elif "given_up" not in event.fields and "dropped" not in event.fields:
            text = f"epoch {event.epoch} was {event.kind}, and nothing says what became of its request"
            self._findings.add(Kind.DROPPED, task, event.epoch, text, (at,))


def work_of(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which request an event is about; of a batch, which requests."""
    one = fields.get("trigger"), fields.get("slot"), fields.get("offset"), fields.get("cycle")
    others = fields.get("batch")
    return one if others is None else (*one, *[work_of(other) for other in others])

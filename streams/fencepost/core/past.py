"""Where a task stood at a time, from its history up to then: the events folded one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.core.commands import History
from fencepost.core.task import Outcome

_ENDS: Final = frozenset(outcome.value for outcome in Outcome)
_NAMING: Final = ("trigger", "slot", "offset", "cycle")


@dataclass(slots=True)
class Past:
    """What the events told so far come to. Times are the events' own texts, RFC 3339 in UTC.

    status: idle, running, backoff; None before the first event. `run` and `last`: the fields of the start, and of the
    end, with epoch, lane and time. paused: None where no event says. waiting: requests that were told to wait.
    """

    status: str | None = None
    epoch: int | None = None
    run: dict[str, Any] | None = None
    last: dict[str, Any] | None = None
    retry_at: str | None = None
    paused: bool | None = None
    pause_reason: str | None = None
    deleted: bool = False
    schedule: Mapping[str, Any] | list[Any] | None = None
    waiting: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    events: int = 0

    def fold(self, event: History, lane: str, at: str) -> None:
        """The next event; `lane` wrote it, `at` is when it was decided."""
        self.events += 1
        self.status = self.status or "idle"
        kind, fields = event.kind, event.fields
        if kind == "started":
            self._started(event, lane, at)
        elif kind in _ENDS:
            self._ended(event, at)
        elif kind == "triggered" and "first" not in fields:
            self.waiting[_work(fields)] = {name: fields[name] for name in _NAMING if name in fields} | {"since": at}
        elif kind in ("skipped", "moved", "fanned_out") or (kind == "missed" and "cycle" in fields):
            self.waiting.pop(_work(fields), None)
        elif kind in ("paused", "resumed"):
            self.paused, self.pause_reason = kind == "paused", fields.get("cause") if kind == "paused" else None
        elif kind == "adopted" and self.run is not None:
            self.run["lane"] = lane
        elif kind in ("defined", "deleted"):
            self.deleted = kind == "deleted"
            if self.deleted or "schedule" in fields:
                self.schedule = fields.get("schedule")

    def _started(self, event: History, lane: str, at: str) -> None:
        for request in (event.fields, *event.fields.get("batch", ())):
            self.waiting.pop(_work(request), None)
        self.status, self.epoch, self.retry_at = "running", event.epoch, None
        self.run = {"epoch": event.epoch, "lane": lane, "started": at}
        self.run |= {name: event.fields[name] for name in ("attempt", "trigger", "slot") if name in event.fields}

    def _ended(self, event: History, at: str) -> None:
        self.retry_at = event.fields.get("retry_at")
        self.status = "idle" if self.retry_at is None else "backoff"
        self.epoch = event.epoch if event.epoch is not None else self.epoch
        self.run = None
        if "duration_s" in event.fields:
            self.last = {"epoch": event.epoch, "outcome": event.kind, "ended": at}
            if "cause" in event.fields:
                self.last["cause"] = event.fields["cause"]


def _work(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(fields.get(name) for name in _NAMING)

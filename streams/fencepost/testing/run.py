"""A run, as tests look at it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fencepost.core.task import Outcome
from fencepost.core.times import parse_rfc3339
from fencepost.wire.history import HistoryRecord

_ENDS = {outcome.value for outcome in Outcome}


@dataclass(frozen=True, slots=True)
class Run:
    """One execution. `outcome` None: it is on. `slot`: the nominal fire time, None for a trigger. Times are UTC."""

    task: str
    epoch: int
    attempt: int
    started: datetime
    slot: datetime | None = None
    trigger: str | None = None
    ended: datetime | None = None
    outcome: str | None = None
    cause: str | None = None
    result: Any = None
    error: str | None = None
    lines: tuple[str, ...] = ()  # what it wrote with `ctx.log`


def runs_of(history: Iterable[HistoryRecord], lines: dict[tuple[str, int], list[str]]) -> list[Run]:
    """In the order in which they began."""
    found: dict[tuple[str, int], Run] = {}
    for event in history:
        if event.epoch is None:
            continue
        place, fields = (event.task, event.epoch), event.fields
        if event.kind == "started":
            slot = fields.get("slot")
            found[place] = Run(
                event.task,
                event.epoch,
                fields.get("attempt", 1),
                when(event.at_ms),
                None if slot is None else when(parse_rfc3339(slot)),
                fields.get("trigger"),
                lines=tuple(lines.get(place, ())),
            )
        elif event.kind in _ENDS and place in found:
            found[place] = replace(
                found[place],
                ended=when(event.at_ms),
                outcome=event.kind,
                cause=fields.get("cause"),
                result=fields.get("result"),
                error=fields.get("error"),
            )
    return list(found.values())


def when(at_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)

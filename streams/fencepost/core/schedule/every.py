"""Slots at a fixed distance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost.core.schedule.errors import ScheduleError
from fencepost.core.schedule.json_keys import require_only
from fencepost.core.schedule.layers import ANY_NUMBER
from fencepost.core.times import MAX_DURATION_S, MAX_MS, format_ms, parse_duration, parse_rfc3339, shown

_ALLOWED = "0.001 s to 36525 days, in whole milliseconds"


@dataclass(frozen=True, slots=True)
class Every:
    """A slot every `seconds`, in real time: no zone and no change of the clock moves it.

    `anchor_ms` (milliseconds since the epoch) gives the phase, not a beginning: there are slots before it too.
    Raises ScheduleError.
    """

    seconds: float
    anchor_ms: int = 0
    _interval_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        interval_ms = _whole_ms(self.seconds)
        object.__setattr__(self, "_interval_ms", interval_ms)
        object.__setattr__(self, "seconds", interval_ms / 1000)
        if isinstance(self.anchor_ms, bool) or not isinstance(self.anchor_ms, int):
            raise ScheduleError(
                "anchor", f"{shown(self.anchor_ms)} is not a whole number of milliseconds since the epoch"
            )
        if not 0 <= self.anchor_ms <= MAX_MS:
            raise ScheduleError(
                "anchor", f"{shown(self.anchor_ms)} ms is outside 1970-01-01 to 9999-12-31 (0 to {MAX_MS})"
            )

    @property
    def fingerprint(self) -> str:
        return f"every {self._interval_ms} {self.anchor_ms % self._interval_ms}"

    @property
    def needs_task(self) -> bool:
        return False

    @property
    def one_shot(self) -> bool:
        return False

    @property
    def zone(self) -> str:
        return "UTC"

    @property
    def countable(self) -> int:
        return ANY_NUMBER

    def for_task(self, _task: str) -> Every:
        return self

    def next_after(self, after_ms: int) -> int | None:
        after_ms = max(after_ms, -1)
        slot_ms = after_ms + self._interval_ms - (after_ms - self.anchor_ms) % self._interval_ms
        return slot_ms if slot_ms <= MAX_MS else None

    def latest_at_or_before(self, at_ms: int, not_before_ms: int) -> int | None:
        at_ms = min(at_ms, MAX_MS)
        slot_ms = at_ms - (at_ms - self.anchor_ms) % self._interval_ms
        return slot_ms if slot_ms > max(not_before_ms, -1) else None

    def count(self, after_ms: int, until_ms: int, limit: int) -> int:
        """In constant time."""
        last = (min(until_ms, MAX_MS) - self.anchor_ms) // self._interval_ms
        before = (max(after_ms, -1) - self.anchor_ms) // self._interval_ms
        return max(0, min(last - before, limit))

    def to_json(self) -> dict[str, Any]:
        """`{"every_s": 3600}`, with `"anchor": "2026-11-30T10:11:04.000Z"` where it is not the epoch."""
        every_s = self._interval_ms // 1000 if self._interval_ms % 1000 == 0 else self._interval_ms / 1000
        return (
            {"every_s": every_s} if self.anchor_ms == 0 else {"every_s": every_s, "anchor": format_ms(self.anchor_ms)}
        )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Every:
        """The reverse of `to_json`; `every_s` may be a duration such as "5m" too. Raises ScheduleError."""
        require_only(body, required="every_s", optional="anchor")
        try:
            seconds = parse_duration(body["every_s"])
        except ValueError as error:
            raise ScheduleError("every_s", str(error)) from error
        if body.get("anchor") is None:
            return cls(seconds)
        try:
            anchor_ms = parse_rfc3339(body["anchor"])
        except ValueError as error:
            raise ScheduleError("anchor", str(error)) from error
        return cls(seconds, anchor_ms)


def _whole_ms(seconds: float) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ScheduleError("every_s", f"{shown(seconds)} is not a number of seconds; allowed: {_ALLOWED}")
    if not 0.001 <= seconds <= MAX_DURATION_S:
        raise ScheduleError("every_s", f"{shown(seconds)} s is out of range; allowed: {_ALLOWED}")
    interval_ms = round(seconds * 1000)
    # A sum such as 0.1 + 0.2 is a hair off; a third of a second is not, and would drift if it were rounded.
    if not math.isclose(interval_ms, seconds * 1000, rel_tol=1e-9):
        raise ScheduleError("every_s", f"{shown(seconds)} s is not a whole number of milliseconds; allowed: {_ALLOWED}")
    return interval_ms

"""One slot at a given time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fencepost.core.schedule.errors import ScheduleError
from fencepost.core.schedule.json_keys import require_only
from fencepost.core.schedule.layers import ANY_NUMBER
from fencepost.core.times import MAX_MS, format_ms, parse_rfc3339, shown


@dataclass(frozen=True, slots=True)
class Once:
    """One slot at `at_ms` (milliseconds since the epoch, UTC).

    A time in the past is accepted: whether a slot that was missed still runs is not the schedule's to say.
    Raises ScheduleError.
    """

    at_ms: int

    def __post_init__(self) -> None:
        if isinstance(self.at_ms, bool) or not isinstance(self.at_ms, int):
            raise ScheduleError("at", f"{shown(self.at_ms)} is not a whole number of milliseconds since the epoch")
        if not 0 <= self.at_ms <= MAX_MS:
            raise ScheduleError("at", f"{shown(self.at_ms)} ms is outside 1970-01-01 to 9999-12-31 (0 to {MAX_MS})")

    @property
    def fingerprint(self) -> str:
        return f"once {self.at_ms}"

    @property
    def needs_task(self) -> bool:
        return False

    @property
    def one_shot(self) -> bool:
        return True

    @property
    def zone(self) -> str:
        return "UTC"

    @property
    def countable(self) -> int:
        return ANY_NUMBER

    def for_task(self, _task: str) -> Once:
        return self

    def next_after(self, after_ms: int) -> int | None:
        return self.at_ms if self.at_ms > after_ms else None

    def latest_at_or_before(self, at_ms: int, not_before_ms: int) -> int | None:
        return self.at_ms if not_before_ms < self.at_ms <= at_ms else None

    def count(self, after_ms: int, until_ms: int, limit: int) -> int:
        return min(limit, 1) if after_ms < self.at_ms <= until_ms else 0

    def to_json(self) -> dict[str, Any]:
        """`{"at": "2026-11-30T10:11:04.000Z"}`"""
        return {"at": format_ms(self.at_ms)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Once:
        """The reverse of `to_json`; any RFC 3339 time with an offset will do. Raises ScheduleError."""
        require_only(body, required="at")
        try:
            at_ms = parse_rfc3339(body["at"])
        except ValueError as error:
            raise ScheduleError("at", str(error)) from error
        return cls(at_ms)

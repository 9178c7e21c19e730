"""Counts and latencies of a window of time, by task. Pure, and small: minutes of counts, times in classes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.core.task import Outcome
from fencepost.wire.history import HistoryRecord

OTHER: Final = "(other)"
TASKS: Final = 1000  # the first so many are told apart; further ones count together
_MINUTE_MS: Final = 60_000
_STEP: Final = 1.1  # a class is a tenth wide: so exact are the quantiles
_LEAST_S: Final = 0.001
_ENDS: Final = tuple(outcome.value for outcome in Outcome)
COUNTED: Final = ("started", *_ENDS, "skipped", "missed")


@dataclass(slots=True)
class _Minute:
    counts: Counter[str] = field(default_factory=Counter)
    waited: Counter[int] = field(default_factory=Counter)
    took: Counter[int] = field(default_factory=Counter)

    def add(self, event: HistoryRecord) -> None:
        fields = event.fields
        many = int(fields.get("count") or fields.get("count_at_least") or 1) if event.kind == "missed" else 1
        self.counts[event.kind] += many
        if event.kind == "started" and "waited_s" in fields:
            self.waited[_class_of(float(fields["waited_s"]))] += 1
        elif "duration_s" in fields:
            self.took[_class_of(float(fields["duration_s"]))] += 1


@dataclass(frozen=True, slots=True)
class Row:
    """One task's, or all together's. Quantiles in seconds, to a tenth of their value; None: nothing to tell of."""

    task: str
    counts: dict[str, int]
    waited_p50_s: float | None
    waited_p99_s: float | None
    took_p50_s: float | None
    took_p99_s: float | None

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "task": self.task,
            **self.counts,
            "waited_p50_s": self.waited_p50_s,
            "waited_p99_s": self.waited_p99_s,
            "took_p50_s": self.took_p50_s,
            "took_p99_s": self.took_p99_s,
        }


class Counts:
    """Events by task and minute, as far back as the window reaches."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._tasks: dict[str, dict[int, _Minute]] = {}

    def add(self, event: HistoryRecord) -> None:
        """Events of other kinds than COUNTED are left out."""
        if event.kind not in COUNTED:
            return
        known = event.task in self._tasks or len(self._tasks) < TASKS
        minutes = self._tasks.setdefault(event.task if known else OTHER, {})
        minutes.setdefault(event.at_ms // _MINUTE_MS, _Minute()).add(event)

    def forget(self, now_ms: int) -> None:
        """Drop what lies before the window."""
        for task, minutes in list(self._tasks.items()):
            for minute in [each for each in minutes if each < self._first(now_ms)]:
                del minutes[minute]
            if not minutes:
                del self._tasks[task]

    def rows(self, now_ms: int) -> list[Row]:
        """By task, those with the most starts first; the last row is all of them."""
        found, everything = [], _Minute()
        for task, minutes in self._tasks.items():
            total = _Minute()
            for number, minute in minutes.items():
                if number >= self._first(now_ms):
                    for into in (total, everything):
                        into.counts += minute.counts
                        into.waited += minute.waited
                        into.took += minute.took
            if total.counts:
                found.append(_row(task, total))
        found.sort(key=lambda row: (-row.counts["started"], row.task))
        return [*found, _row("(all)", everything)]

    def _first(self, now_ms: int) -> int:
        return int(now_ms - self.window_s * 1000) // _MINUTE_MS


def _row(task: str, total: _Minute) -> Row:
    return Row(
        task,
        {kind: total.counts[kind] for kind in COUNTED},
        _quantile(total.waited, 0.5),
        _quantile(total.waited, 0.99),
        _quantile(total.took, 0.5),
        _quantile(total.took, 0.99),
    )


def _class_of(seconds: float) -> int:
    return 0 if seconds <= _LEAST_S else math.ceil(math.log(seconds / _LEAST_S, _STEP) - 1e-9)


def _quantile(classes: Counter[int], share: float) -> float | None:
    """The upper bound of the class in which it lies."""
    wanted, seen = math.ceil(share * classes.total()), 0
    for number in sorted(classes):
        seen += classes[number]
        if seen >= wanted:
            return round(_LEAST_S * _STEP**number, 4)
    return None

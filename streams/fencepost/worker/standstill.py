"""A reader that gets nothing though there is something to read.

The client library can lose every broker and not say so: if it asks at the moment when a broker that was frozen is no
member of its own cluster yet, it is told of none, and forgets those it knew. All looks well then, and nothing comes for
as long as the process lives. Only a look from outside tells: another client says that logs go on behind the positions.
"""

from __future__ import annotations

import time

from fencepost.kafka.bounds import Bounds, Question
from fencepost.kafka.errors import RetryLater
from fencepost.kafka.reader import Reader
from fencepost.worker.context import LaneContext

QUIET_S = 3.0  # without a record or the end of a log, before it is looked at, and between two looks
ASK_LIMIT_S = 3.0


class Standstill:
    """`look` once a round. It never waits."""

    def __init__(self, context: LaneContext, reader: Reader, bounds: Bounds) -> None:
        self._context, self._reader, self._bounds = context, reader, bounds
        self._events = -1
        self._look_at_s = 0.0
        self._question: Question | None = None
        self._behind = False  # at the last look, and nothing came since

    def look(self) -> None:
        """Make the reader's client anew where two looks in turn find it behind, and nothing came in between."""
        now_s = time.monotonic()
        if self._reader.events != self._events:
            self._events, self._behind, self._question = self._reader.events, False, None
            self._look_at_s = now_s + QUIET_S
        elif self._question is not None:
            if self._question.answered:
                question, self._question = self._question, None
                self._judge(question)
                self._look_at_s = now_s + QUIET_S
        elif now_s >= self._look_at_s and (positions := self._reader.positions()):
            self._question = self._bounds.ask_ends(positions, ASK_LIMIT_S)

    def _judge(self, question: Question) -> None:
        try:
            ends = question.answer()
        except RetryLater:
            return  # nobody answers at all: it is no fault of the reader's
        positions = self._reader.positions()
        behind = sorted(place for place, end in ends.items() if 0 <= positions.get(place, end) < end)
        if behind and self._behind:
            topic, number = behind[0]
            self._context.log.warning(
                "the reader gets nothing: made anew", place=f"{topic}-{number}", more=len(behind) - 1
            )
            self._reader.renew()
        self._behind = bool(behind) and not self._behind

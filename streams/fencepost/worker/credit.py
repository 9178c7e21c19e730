"""How many runs may be given out at once: as many as there are slots, and more while runs prove to be short.

Many no-op runs are worth sending to a runner in one batch; behind a long run nothing may queue that the log already
calls RUNNING. So the credit doubles each time everything given out came back at once, and falls back to the slots when
a run is seen to be longer.
"""

from __future__ import annotations

SHORT_S = 0.05
MOST = 4096


class Credit:
    """`room(in_flight)` says how many more runs may start."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._credit = slots
        self._mark_s: float | None = None  # since when runs are in flight without all having come back

    @property
    def ahead(self) -> bool:
        """Whether runs are short at present, so that what waits will start in a moment anyway."""
        return self._credit > self._slots

    def room(self, in_flight: int) -> int:
        return max(0, self._credit - in_flight)

    def launched(self, now_s: float) -> None:
        if self._mark_s is None:
            self._mark_s = now_s

    def ended(self, in_flight: int, now_s: float) -> None:
        """Some runs came back; `in_flight` are left."""
        if in_flight == 0:
            if self._mark_s is not None and now_s - self._mark_s <= SHORT_S * 2:
                self._credit = min(MOST, self._credit * 2)
            self._mark_s = None
        elif in_flight < self._credit // 2:
            self._mark_s = now_s

    def look(self, oldest_s: float | None, now_s: float) -> None:
        """`oldest_s`: when the oldest run in flight was launched."""
        if oldest_s is not None and now_s - oldest_s > SHORT_S * 4:
            self._credit = self._slots

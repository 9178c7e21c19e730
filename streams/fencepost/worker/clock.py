"""The only place of a worker that reads clocks. Leases use the boot clock; firing uses wall time, corrected."""

from __future__ import annotations

import time

TRUSTED_MS = 1000


class Clock:
    """Wall time in milliseconds, moved to the brokers' time once the two differ by more than a second.

    `observe` is fed at read-back: the broker's append time lies between sending and reading, so anything outside that
    interval by more than a second is a difference of the clocks, not a delay.
    """

    def __init__(self) -> None:
        self.difference_ms = 0  # broker minus local, as last measured
        self.correction_ms = 0

    def now_ms(self) -> int:
        return int(time.time() * 1000) + self.correction_ms

    @staticmethod
    def boot_s() -> float:
        """CLOCK_BOOTTIME: goes on during suspend, is never set."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    @staticmethod
    def wall_ms() -> int:
        return int(time.time() * 1000)

    def observe(self, sent_wall_ms: int, appended_ms: int, read_wall_ms: int) -> bool:
        """Returns whether the correction changed."""
        if appended_ms < sent_wall_ms:
            difference = appended_ms - sent_wall_ms
        elif appended_ms > read_wall_ms:
            difference = appended_ms - read_wall_ms
        else:
            difference = 0
        self.difference_ms = difference
        correction = difference if abs(difference) > TRUSTED_MS else 0
        if abs(correction - self.correction_ms) < TRUSTED_MS and (correction == 0) == (self.correction_ms == 0):
            return False
        self.correction_ms = correction
        return True

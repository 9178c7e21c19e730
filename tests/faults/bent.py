"""A worker whose wall clock can be stepped, and that can be caught with a transaction open.

`python -m tests.faults.bent worker …` is `fencepost worker …`, but:

- its wall clock is ahead by what the file FAULTS_CLOCK holds (8 bytes, nanoseconds, this machine's order);
- while the file FAULTS_HOLD exists, its next transaction waits, records written and offsets not, and the file
  FAULTS_HELD is there for as long; it waits HOLD_LIMIT_S at most.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path

from fencepost.cli.main import main
from fencepost.worker import worker
from fencepost.worker.clock import Clock
from fencepost.worker.commit import Committer

CLOCK_VARIABLE, HOLD_VARIABLE, HELD_VARIABLE = "FAULTS_CLOCK", "FAULTS_HOLD", "FAULTS_HELD"
HOLD_LIMIT_S = 20.0


def step(file: Path, seconds: float) -> None:
    """Set how far the clock that reads `file` is ahead."""
    with file.open("r+b") as out:
        out.write(struct.pack("=q", int(seconds * 1e9)))


def bend_clock(file: str) -> None:
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)

    def ahead_ms() -> int:
        return int(struct.unpack("=q", os.pread(handle, 8, 0))[0] // 1_000_000)

    class SteppedClock(Clock):
        def now_ms(self) -> int:
            return int(time.time() * 1000) + ahead_ms() + self.correction_ms

        @staticmethod
        def wall_ms() -> int:
            return int(time.time() * 1000) + ahead_ms()

    worker.Clock = SteppedClock  # type: ignore[misc,attr-defined]


def bend_transactions(hold: Path, held: Path) -> None:
    check = Committer._check

    def held_check(self: Committer, nonces: dict[int, str]) -> None:
        # Called when the records were flushed and the offsets were not sent yet: the transaction is open.
        until_s = time.monotonic() + HOLD_LIMIT_S
        while hold.exists() and time.monotonic() < until_s:
            held.touch()
            time.sleep(0.01)
        held.unlink(missing_ok=True)
        check(self, nonces)

    Committer._check = held_check  # type: ignore[method-assign]


if __name__ == "__main__":
    bend_clock(os.environ[CLOCK_VARIABLE])
    bend_transactions(Path(os.environ[HOLD_VARIABLE]), Path(os.environ[HELD_VARIABLE]))
    sys.argv[0] = "fencepost"
    main()

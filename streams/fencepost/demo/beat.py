"""What a run of the demo does: 50 times a second it writes down that it lives, in a file unknown to the scheduler.

One line a beat, appended by one write with O_APPEND, so that the order of the lines is the order of the writes whoever
wrote them. Columns, separated by tabs: CLOCK_BOOTTIME in ns (one clock for all processes of the machine, taken right
before the write), task, epoch, process ID (as the process knows it:
runners may live in a PID namespace of their own), worker, what (begin, beat, end), slot in ms since the epoch or "-".

Standard library only: the demo's command task runs this file with a bare interpreter.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import datetime
from urllib.parse import quote

BEAT_S = 0.02


def witness_file(folder: str, task: str) -> str:
    """Where the runs of a task write."""
    return os.path.join(folder, quote(task, safe="") + ".log")


def beat(
    folder: str,
    task: str,
    epoch: int,
    slot_ms: int | None,
    seconds: float,
    each: Callable[[float], bool] | None = None,
) -> bool:
    """Beat for `seconds`. `each` is called after every beat with the seconds so far; False ends it early.

    Returns whether the end was reached (and written). Raises OSError.
    """
    out = os.open(witness_file(folder, task), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    frame = f"{task}\t{epoch}\t{os.getpid()}\t{_worker()}"
    slot = "-" if slot_ms is None else str(slot_ms)
    try:
        _write(out, frame, "begin", slot)
        began_s = time.monotonic()
        while (so_far_s := time.monotonic() - began_s) < seconds:
            if each is not None and not each(so_far_s):
                return False
            time.sleep(BEAT_S)
            _write(out, frame, "beat", slot)
        _write(out, frame, "end", slot)
        return True
    finally:
        os.close(out)


def _write(out: int, frame: str, what: str, slot: str) -> None:
    line = f"{time.clock_gettime_ns(time.CLOCK_BOOTTIME)}\t{frame}\t{what}\t{slot}\n".encode()
    if os.write(out, line) != len(line):
        raise OSError("the witness file took only a part of a line")


def _worker() -> str:
    """Each worker of the demo has a TMPDIR of its own, named after it; commands get that variable too."""
    return os.path.basename(os.environ.get("TMPDIR", "")) or "?"


def main(arguments: list[str]) -> int:
    """As a command: FOLDER SECONDS; which run it is stands in the environment."""
    folder, seconds = arguments
    slot = os.environ.get("FENCEPOST_SCHEDULED_FOR")
    slot_ms = None if slot is None else round(datetime.fromisoformat(slot).timestamp() * 1000)
    beat(folder, os.environ["FENCEPOST_TASK"], int(os.environ["FENCEPOST_EPOCH"]), slot_ms, float(seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

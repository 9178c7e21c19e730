"""What runs under test do: 50 times a second they write down that they live, in files unknown to the scheduler.

One line a beat, by one write with O_APPEND: the order of the lines is the order of the writes, whoever wrote them. The
columns are told in `checker`. Standard library only, and alone: commands run this file with a bare interpreter.

    witness.py FOLDER SECONDS [stubborn]

As a command it starts two children that write as well: one that ignores SIGTERM, and one that leaves the session by
setsid and a double fork. Both would go on for a minute: whoever ends the run has to end them too. `stubborn`: the
command itself ignores SIGTERM as well.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from urllib.parse import quote

BEAT_S = 0.02
CHILD_S = 60.0


class Witness:
    """The lines of one run, from one process."""

    def __init__(self, folder: str, task: str, epoch: int, slot_ms: int | None) -> None:
        path = os.path.join(folder, quote(task, safe="") + ".log")
        self._out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._run = f"{task}\t{epoch}"
        self._slot = "-" if slot_ms is None else str(slot_ms)

    def write(self, what: str) -> None:
        # CLOCK_REALTIME, as it is the same in every namespace; a time namespace has another CLOCK_BOOTTIME.
        who = f"{os.getpid()}\t{os.path.basename(os.environ.get('TMPDIR', '')) or '?'}"
        line = f"{time.time_ns()}\t{self._run}\t{who}\t{what}\t{self._slot}\n".encode()
        if os.write(self._out, line) != len(line):
            raise OSError("the witness file took only a part of a line")

    def close(self) -> None:
        os.close(self._out)


def beat(
    folder: str,
    task: str,
    epoch: int,
    slot_ms: int | None,
    seconds: float,
    goes_on: Callable[[], bool] = lambda: True,
) -> bool:
    """Beat for `seconds`, or until `goes_on` says no. Returns whether the end was reached (and written)."""
    witness = Witness(folder, task, epoch, slot_ms)
    try:
        witness.write("begin")
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            if not goes_on():
                return False
            time.sleep(BEAT_S)
            witness.write("beat")
        witness.write("end")
        return True
    finally:
        witness.close()


def _child(folder: str, task: str, epoch: int, slot_ms: int | None, leave: bool) -> None:
    """Fork one that writes for a minute unless it is killed. `leave`: it leaves session and parent behind."""
    first = os.fork()
    if first:
        if leave:
            os.waitpid(first, 0)
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if leave:
        os.setsid()
        if os.fork():
            os._exit(0)
    witness = Witness(folder, task, epoch, slot_ms)
    until_s = time.monotonic() + CHILD_S
    while time.monotonic() < until_s:
        witness.write("child")
        time.sleep(BEAT_S)
    os._exit(0)


def main(arguments: list[str]) -> int:
    from datetime import datetime

    folder, seconds, *rest = arguments
    if "stubborn" in rest:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    task, epoch = os.environ["FENCEPOST_TASK"], int(os.environ["FENCEPOST_EPOCH"])
    slot = os.environ.get("FENCEPOST_SCHEDULED_FOR")
    slot_ms = None if slot is None else round(datetime.fromisoformat(slot).timestamp() * 1000)
    _child(folder, task, epoch, slot_ms, leave=False)
    _child(folder, task, epoch, slot_ms, leave=True)
    beat(folder, task, epoch, slot_ms, float(seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

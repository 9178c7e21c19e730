"""An example app. What its runs do they write into /ledger, a folder all workers share: one line a step.

One file a task. Columns, separated by tabs: time since the machine's boot in ns (one clock for all containers of a
machine), task, epoch, process ID, host, what (begin, beat, end), slot in ms since 1970 or "-".
"""

import os
import socket
import time
from pathlib import Path
from urllib.parse import quote

from fencepost import App, RunContext

LEDGER = Path("/ledger")
STEP_S = 0.05

app = App("shop")


@app.task("order/*", on_interruption="resume")
def order(ctx: RunContext) -> dict[str, float]:
    """For triggers such as {"payload": {"seconds": 20}}. After an interruption it goes on where it had got to."""
    seconds = float((ctx.payload or {}).get("seconds", 2))
    done_s = resumed_at_s = float((ctx.last_checkpoint or {}).get("done_s", 0))
    with Page(ctx) as page:
        page.write("begin")
        while done_s < seconds and not ctx.cancelled:
            time.sleep(STEP_S)
            done_s += STEP_S
            page.write("beat")
            if int(done_s / STEP_S) % 20 == 0:
                ctx.checkpoint({"done_s": round(done_s, 2)})
        if not ctx.cancelled:
            page.write("end")
    return {"resumed_at_s": resumed_at_s}


@app.function()
def pulse(ctx: RunContext) -> None:
    """On an interval: see tasks.toml."""
    with Page(ctx) as page:
        page.write("begin")
        page.write("end")


class Page:
    """A task's file. A line is one write with O_APPEND, so the order of lines is the order of the writes."""

    def __init__(self, ctx: RunContext) -> None:
        slot = "-" if ctx.scheduled_for is None else str(round(ctx.scheduled_for.timestamp() * 1000))
        self._frame = f"{ctx.task_id}\t{ctx.epoch}\t{os.getpid()}\t{socket.gethostname()}\t{{}}\t{slot}\n"
        self._path = LEDGER / f"{quote(ctx.task_id, safe='')}.log"

    def __enter__(self) -> "Page":
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._file)

    def write(self, what: str) -> None:
        line = f"{time.clock_gettime_ns(time.CLOCK_BOOTTIME)}\t{self._frame.format(what)}".encode()
        if os.write(self._file, line) != len(line):
            raise OSError("the ledger took only a part of a line")

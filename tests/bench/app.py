"""The tasks that are measured."""

from __future__ import annotations

import time

from fencepost import App, RunContext
from tests.bench.sink import Sink

app = App("bench")
sink = Sink()


@app.task("noop/*")
def noop(ctx: RunContext) -> None:
    """Nothing: what is left is the cost of the scheduler."""


@app.task("trace/*")
def trace(ctx: RunContext) -> None:
    sink.write(ctx.payload["n"], ctx.epoch)


@app.task("hold/*", isolation="own")
def hold(ctx: RunContext) -> None:
    """Leaves a trace; the first run of it goes on until somebody ends it."""
    sink.write(ctx.payload["n"], ctx.epoch)
    while ctx.epoch == 1 and not ctx.cancelled:
        time.sleep(0.1)

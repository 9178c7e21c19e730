"""The demo's app: a shop whose work is to leave traces. See `beat` for what they look like."""

from __future__ import annotations

import os
from typing import Any

from fencepost.app import App
from fencepost.demo.beat import beat
from fencepost.run_context import RunContext

WITNESS_VARIABLE = "FENCEPOST_DEMO_WITNESS"
SAVE_S = 0.5  # an order saves how far it has come this often

app = App("shop")


@app.function()
def pulse(ctx: RunContext) -> None:
    """On an interval, by the task file."""
    _beat(ctx, 0.3)


@app.function()
def report(ctx: RunContext) -> None:
    """On cron, by the task file."""
    _beat(ctx, 2.0)


@app.task("order/*", on_interruption="resume")
def order(ctx: RunContext) -> dict[str, Any]:
    """By triggers. A run that was interrupted is taken up where it was, by whoever owns it next."""
    done_s = float((ctx.last_checkpoint or {}).get("done_s", 0.0))
    total_s = float((ctx.payload or {}).get("seconds", 3.0))
    saved_s = 0.0

    def each(so_far_s: float) -> bool:
        nonlocal saved_s
        if so_far_s - saved_s >= SAVE_S:
            saved_s = so_far_s
            ctx.checkpoint({"done_s": round(done_s + so_far_s, 2)})
        return not ctx.cancelled

    finished = _beat(ctx, max(0.0, total_s - done_s), each)
    return {"finished": finished, "resumed_at_s": done_s}


@app.task("parcel/*")
def parcel(ctx: RunContext) -> None:
    """By triggers, short."""
    _beat(ctx, 0.3)


def _beat(ctx: RunContext, seconds: float, each: Any = None) -> bool:
    slot_ms = None if ctx.scheduled_for is None else round(ctx.scheduled_for.timestamp() * 1000)
    return beat(os.environ[WITNESS_VARIABLE], ctx.task_id, ctx.epoch, slot_ms, seconds, each)

"""What the tasks of the scenarios run, in a world and on a worker."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fencepost import App, RunContext

app = App("conformance")


@app.function()
def echo(ctx: RunContext) -> Any:
    """Its payload, headers and place."""
    return {"payload": ctx.payload, "headers": dict(ctx.headers), "epoch": ctx.epoch, "attempt": ctx.attempt}


@app.function()
def fail_until(ctx: RunContext) -> int:
    """Fails before the attempt that the payload says."""
    if ctx.attempt < ctx.payload:
        raise OSError(f"attempt {ctx.attempt}")
    return ctx.attempt


@app.function()
def busy(ctx: RunContext) -> str:
    """Works for so many seconds, and heeds a stop."""
    until_s = float(ctx.payload or 600)
    worked_s = 0.0
    while worked_s < until_s and not ctx.cancelled:
        time.sleep(0.05)
        worked_s += 0.05
    return "done"


@app.function()
async def busy_async(ctx: RunContext) -> str:
    await asyncio.sleep(float(ctx.payload or 600))
    return "done"


@app.function()
def stubborn(ctx: RunContext) -> None:
    """Heeds nothing."""
    while True:
        time.sleep(0.05)


@app.function()
def by_rows(ctx: RunContext) -> dict[str, Any]:
    """Saves how far it came, and fails in the middle of the first attempt."""
    first = ctx.last_checkpoint or 0
    for row in range(first, 4):
        if row == 2 and ctx.attempt == 1:
            raise OSError("connection lost")
        ctx.checkpoint(row + 1)
    return {"began_at": first}


@app.function()
def batch(ctx: RunContext) -> list[Any]:
    """The payloads of all requests that it has."""
    return list(ctx.payloads)


@app.function()
def silent(ctx: RunContext) -> None:
    """Says that it gets on once, and then nothing any more."""
    ctx.heartbeat()
    while not ctx.cancelled:
        time.sleep(0.05)


@app.function()
def no_json(ctx: RunContext) -> Any:
    return {1, 2}


@app.function()
def upstream(ctx: RunContext) -> dict[str, Any]:
    return {"cycle": ctx.cycle, "upstream": dict(ctx.upstream)}


@app.function()
def busy_at_first(ctx: RunContext) -> None:
    """Its first run goes on until something ends it."""
    while ctx.epoch == 1 and not ctx.cancelled:
        time.sleep(0.05)


@app.function()
def part(ctx: RunContext) -> dict[str, Any]:
    return {"shard": ctx.shard, "of": ctx.shards, "payload": ctx.payload}


@app.function()
def on_worker(ctx: RunContext) -> list[Any]:
    return [ctx.worker, ctx.shard, ctx.shards, ctx.payload]

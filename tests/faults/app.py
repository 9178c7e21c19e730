"""What the workers under faults run."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from urllib.parse import quote

from fencepost.app import App
from fencepost.run_context import RunContext
from tests.faults.witness import Witness, beat

WITNESS_VARIABLE = "FAULTS_WITNESS"
GREEDY_VARIABLE = "FAULTS_GREEDY"  # a folder: a run whose task has a file there takes memory until it is stopped
GREED_BYTES = 16 << 20

app = App("faults")


def _slot_ms(ctx: RunContext) -> int | None:
    return None if ctx.scheduled_for is None else round(ctx.scheduled_for.timestamp() * 1000)


@app.function()
def work(ctx: RunContext) -> bool:
    """Beats for `seconds` of the payload; heeds a stop unless it is `stubborn`."""
    payload = ctx.payload or {}
    greedy = Path(os.environ[GREEDY_VARIABLE], quote(ctx.task_id, safe=""))
    taken: list[bytearray] = []
    stubborn = bool(payload.get("stubborn"))

    def goes_on() -> bool:
        if greedy.exists():
            taken.append(bytearray(b"\1") * GREED_BYTES)
        return stubborn or not ctx.cancelled

    seconds = float(payload.get("seconds", 0.1))
    if seconds < 2.0:  # nobody asks a short run for anything
        return beat(os.environ[WITNESS_VARIABLE], ctx.task_id, ctx.epoch, _slot_ms(ctx), seconds)
    return beat(os.environ[WITNESS_VARIABLE], ctx.task_id, ctx.epoch, _slot_ms(ctx), seconds, goes_on)


@app.function()
async def work_async(ctx: RunContext) -> None:
    """The same, among others in one process."""
    witness = Witness(os.environ[WITNESS_VARIABLE], ctx.task_id, ctx.epoch, _slot_ms(ctx))
    try:
        witness.write("begin")
        for _ in range(round(float((ctx.payload or {}).get("seconds", 0.1)) / 0.02)):
            await asyncio.sleep(0.02)
            witness.write("beat")
        witness.write("end")
    finally:
        witness.close()


@app.task("probe/*")
def probe(ctx: RunContext) -> None:
    """Asked for by triggers, to see who has a partition."""
    work(ctx)


@app.task("wait/*")
def wait(ctx: RunContext) -> None:
    """Asked for at the moment of a fault, to see how long a task waits."""
    work(ctx)

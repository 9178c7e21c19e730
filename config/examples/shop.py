"""A small shop: a nightly report, prices that are refreshed, invoices and a newsletter by trigger.

cd config/examples
fencepost apply tasks.toml
fencepost worker --app shop:app --allow /bin/echo
"""

from __future__ import annotations

import asyncio

from fencepost import App, Cron, Retry, RunContext

app = App("shop")


@app.task("report", schedule=Cron("0 2 * * *", time_zone="Europe/Berlin"), retry=Retry(attempts=5, delay_s=30))
def report(ctx: RunContext) -> dict[str, int]:
    """Every night at two in Berlin; five attempts in all, half a minute, then a minute, … between them."""
    ctx.log(f"the report of {ctx.scheduled_for}")
    return {"orders": 42}


@app.task("invoice/*", on_interruption="resume", timeout="5m")
def invoice(ctx: RunContext) -> None:
    """One task for each customer, by trigger. Taken up where it was if its worker is lost.

    Where what a run does can check a token, give it `ctx.epoch`: a database row that keeps the highest epoch it has
    seen refuses a run that was thought dead.
    """
    lines = (ctx.payload or {}).get("lines", [])
    start = (ctx.last_checkpoint or {}).get("done", 0)
    for number, line in enumerate(lines[start:], start=start + 1):
        if ctx.cancelled:
            return
        ctx.log(f"epoch {ctx.epoch}: line {number}: {line}")
        ctx.checkpoint({"done": number})


@app.function()
async def refresh_prices(ctx: RunContext) -> None:
    """Async functions share a process; the task itself is in tasks.toml."""
    await asyncio.sleep(0.1)
    ctx.log(f"prices are fresh, for the slot {ctx.scheduled_for}")


@app.function()
def migrate(ctx: RunContext) -> int:
    """A step at a time: the checkpoint says how many are done, also after the worker was lost."""
    for step in range(ctx.last_checkpoint or 0, 10):
        ctx.checkpoint(step + 1)
    return 10


@app.function()
def send_newsletter(ctx: RunContext) -> None:
    ctx.log(f"issue {ctx.payload['issue']}, mails marked {ctx.idempotency_key} so that a second try sends none twice")

"""The functions of pipeline.toml: a list of pictures, each resized by a run of its own, a gallery, a mail, an alarm."""

from __future__ import annotations

from fencepost import App, RunContext

app = App("pipeline")


@app.function()
def list_pictures(ctx: RunContext) -> list[str]:
    """By trigger the payload is the list; in the night there are always the same three."""
    return ctx.payload or ["a.jpg", "b.jpg", "c.jpg"]


@app.function()
def resize(ctx: RunContext) -> str:
    """`ctx.payload` is the item of this shard."""
    if not ctx.payload.endswith(".jpg"):
        raise ValueError(f"{ctx.payload} is no picture")
    return ctx.payload.replace(".jpg", ".small.jpg")


@app.function()
def gallery(ctx: RunContext) -> str:
    """The results of all shards, in the order of the list."""
    return " ".join(ctx.upstream["pictures/resize"]["result"])


@app.function()
def count(ctx: RunContext) -> int:
    """Part `ctx.shard` of `ctx.shards`."""
    pictures = ctx.upstream["pictures/list"]["result"]
    return len(pictures[ctx.shard :: ctx.shards])


@app.function()
def mail(ctx: RunContext) -> str:
    """All parents succeeded in one and the same cycle, whatever else is going on."""
    counted = sum(ctx.upstream["pictures/count"]["result"])
    return f"{counted} pictures for {ctx.cycle}: {ctx.upstream['pictures/gallery']['result']}"


@app.function()
def alarm(ctx: RunContext) -> list[str]:
    """Which of them did not succeed."""
    return [task for task, end in ctx.upstream.items() if end["outcome"] != "succeeded"]


@app.function()
def forget(ctx: RunContext) -> str:
    """On every worker; `ctx.worker` is this one."""
    return f"{ctx.worker} has forgotten {ctx.cycle}"

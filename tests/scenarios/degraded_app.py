"""What the workers of the tests of degradation run, beside the scenarios' own tasks."""

from __future__ import annotations

import os
import resource

from fencepost.run_context import RunContext
from tests.scenarios.app import app, work

__all__ = ["app"]


@app.task("says/*")
def says(ctx: RunContext) -> None:
    print("a line of", ctx.task_id, flush=True)
    work(ctx)


@app.function()
def always_fails(ctx: RunContext) -> None:
    work(ctx)
    raise RuntimeError("as ever")


@app.task("fat/*", isolation="own")
def fat(ctx: RunContext) -> int:
    """Sets itself a limit, as a deployment would set it from outside, and wants more."""
    limit = 1 << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return len(bytearray(limit))


@app.task("writes/*")
def writes(ctx: RunContext) -> None:
    """Fills what TMPDIR names."""
    with open(os.path.join(os.environ["TMPDIR"], "much"), "wb") as out:
        while True:
            out.write(bytes(65536))
            out.flush()

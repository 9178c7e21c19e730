"""A task that writes to PostgreSQL behind its fence, when a file tells it to, and leaves word of what came of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from fencepost import App, RunContext
from fencepost.fencing import StaleEpoch, postgres

DSN_VARIABLE = "FENCED_DSN"
FOLDER_VARIABLE = "FENCED_FOLDER"

app = App("fenced")


@app.task("f/*", isolation="own")
def write(ctx: RunContext) -> None:
    """In epoch n: wait for the file `go-n`; write with the fence and say in `fenced-n` how that went; then without."""
    import psycopg  # in the run's own process: a connection does not survive a fork

    folder = Path(os.environ[FOLDER_VARIABLE])
    with psycopg.connect(os.environ[DSN_VARIABLE]) as connection:
        (folder / f"began-{ctx.epoch}").touch()
        while not (folder / f"go-{ctx.epoch}").exists():
            time.sleep(0.02)
        try:
            with connection.transaction():
                postgres.fence(connection, ctx)
                connection.execute("INSERT INTO fenced VALUES (%s, %s)", (ctx.task_id, ctx.epoch))
            told = f"written in {ctx.namespace}"
        except StaleEpoch as refused:
            told = str(refused)
        with connection.transaction():  # what no fence protects: it shows that the run was alive and could write
            connection.execute("INSERT INTO unfenced VALUES (%s, %s)", (ctx.task_id, ctx.epoch))
    _say(folder / f"fenced-{ctx.epoch}", told)


def _say(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.rename(path)

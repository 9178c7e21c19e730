"""`backfill`: the slots of a past range."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.failures import BadInput
from fencepost.cli.options import Bootstrap, Config, Json, Namespace, TaskId, load_settings
from fencepost.cli.output import emit, say
from fencepost.client import Client
from fencepost.codec import BadRecord
from fencepost.core.spread import MAX_RUNS
from fencepost.core.times import format_ms

_OPTIONS = {"since": "--from", "until": "--to", "id": "--id", "task": "ID", "max_runs": "--max-runs"}


def backfill(
    task_id: TaskId,
    since: Annotated[str | None, typer.Option("--from", help="The first time of the range, RFC 3339.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="The last time of the range, RFC 3339.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also the slots that have succeeded.")] = False,
    name: Annotated[str | None, typer.Option("--id", help="Names it in the history; made up if not given.")] = None,
    max_runs: Annotated[
        int, typer.Option("--max-runs", min=1, max=MAX_RUNS, help="So many at once, on IDs of their own.")
    ] = 1,
    stop: Annotated[bool, typer.Option("--stop", help="Have no more slots run of the one that is on.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="With --stop; for people.")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Have the slots of a past range run, one after the other behind all other requests, or side by side."""
    if stop and (since is not None or until is not None or again or name is not None or max_runs > 1):
        raise BadInput("--stop takes no range: give it alone, or with --reason")
    if not stop and (since is None or until is None):
        raise BadInput("--from and --to are missing: the first and the last time of the range, both included")
    with Client(load_settings(config, bootstrap, namespace)) as client:
        try:
            if stop:
                sent = client.stop_backfill(task_id, reason)
            else:
                assert since is not None
                assert until is not None
                sent = client.backfill(task_id, since, until, again=again, id=name, max_runs=max_runs)
        except BadRecord as error:
            raise BadInput(f"{_OPTIONS.get(error.field or '', '--from')}: {error.reason}") from error
    if as_json:
        document = {"task": task_id, "op": "backfill", "partition": sent.partition, "offset": sent.offset}
        emit({**document, "at": format_ms(sent.at_ms)})
    else:
        say(f"{'the end of the ' if stop else ''}backfill of {task_id} is on record; its owner acts on it")

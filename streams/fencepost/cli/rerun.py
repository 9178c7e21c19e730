"""`rerun`: a past run once more, with what it was given."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.failures import FAILURE, BadInput
from fencepost.cli.options import Bootstrap, Config, Json, Namespace, TaskId, load_settings
from fencepost.cli.trigger import payload_of, show_handle, wait_for
from fencepost.client import AS_IT_WAS, Client
from fencepost.codec import BadRecord
from fencepost.core.task import Outcome


def rerun(
    task_id: TaskId,
    epoch: Annotated[int | None, typer.Argument(help="The run's epoch; the last one if not given.", min=1)] = None,
    slot: Annotated[
        str | None, typer.Option("--slot", help="A slot instead, RFC 3339 with offset, whether it ran or not.")
    ] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", help="Another payload: JSON; @FILE reads a file, - standard input.")
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="0 goes first, 9 last.")] = None,
    dedup: Annotated[str | None, typer.Option("--id", help="Of the requests with one ID, one is taken.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it has ended; exit code 1 if it did not succeed.")
    ] = False,
    timeout: Annotated[float | None, typer.Option("--timeout", help="With --wait: seconds to wait at most.")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Run a past run again, as a new request with the same payload; the overlap policy counts as for any other."""
    if epoch is not None and slot is not None:
        raise BadInput("EPOCH and --slot exclude each other; give one of them")
    given = AS_IT_WAS if payload is None else payload_of(payload)
    with Client(load_settings(config, bootstrap, namespace)) as client:
        try:
            handle = client.rerun(task_id, epoch, slot=slot, payload=given, id=dedup, priority=priority)
        except BadRecord as error:
            option = "ID" if error.field == "task" else f"--{error.field or 'payload'}"
            raise BadInput(f"{option}: {error.reason}") from error
        status = wait_for(handle, timeout) if wait else None
    show_handle(handle, status, as_json, "asked to run again:")
    if status is not None and status.kind != Outcome.SUCCEEDED.value:
        raise typer.Exit(FAILURE)

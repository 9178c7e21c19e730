"""`trigger`: ask for a run, and wait for it if wanted."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer

from fencepost.cli.failures import FAILURE, BadInput, Failure
from fencepost.cli.options import Bootstrap, Config, Json, Namespace, Pool, TaskId, load_settings
from fencepost.cli.output import emit, say
from fencepost.client import Client, Handle, RunStatus
from fencepost.codec import BadRecord, dumps, loads
from fencepost.core.task import Outcome
from fencepost.core.times import format_ms
from fencepost.kafka.errors import DeliveryUnknown


def trigger(
    task_id: TaskId,
    payload: Annotated[
        str | None, typer.Option("--payload", help="JSON; @FILE reads a file, - standard input.")
    ] = None,
    delay: Annotated[str | None, typer.Option("--delay", help="Run after a duration such as 10s or 1h30m.")] = None,
    run_at: Annotated[str | None, typer.Option("--run-at", help="Run at a time, RFC 3339 with offset.")] = None,
    dedup: Annotated[
        str | None, typer.Option("--id", help="Of the triggers with one ID within a day, one is taken.")
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="0 goes first, 9 last.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", help="NAME=TEXT for the run; may be repeated.")
    ] = None,
    cycle: Annotated[
        str | None, typer.Option("--cycle", help="What it belongs to, for tasks that run after it and others.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it has ended; exit code 1 if it did not succeed.")
    ] = False,
    timeout: Annotated[float | None, typer.Option("--timeout", help="With --wait: seconds to wait at most.")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Ask for a run of a task. Exit code 3: nobody can say whether Kafka took it; repeat with the same --id."""
    if delay is not None and run_at is not None:
        raise BadInput("--delay and --run-at exclude each other; give one of them")
    trigger_id = dedup if dedup is not None else uuid.uuid4().hex
    body = None if payload is None else payload_of(payload)
    headers = _headers(header or []) or None
    settings = load_settings(config, bootstrap, namespace, pool=pool)
    with Client(settings) as client:
        try:
            handle = client.trigger(
                task_id,
                body,
                delay=delay,
                run_at=run_at,
                id=trigger_id,
                priority=priority,
                headers=headers,
                cycle=cycle,
            )
        except BadRecord as error:
            option = "ID" if error.field == "task" else f"--{(error.field or 'payload').replace('_', '-')}"
            raise BadInput(f"{option}: {error.reason}") from error
        except DeliveryUnknown as error:
            again = f"fencepost trigger {task_id} --id {trigger_id}"
            raise DeliveryUnknown(f"{error}; repeat it harmlessly with the same ID: {again}") from error
        status = wait_for(handle, timeout) if wait else None
    show_handle(handle, status, as_json)
    if status is not None and status.kind != Outcome.SUCCEEDED.value:
        raise typer.Exit(FAILURE)


def wait_for(handle: Handle, timeout_s: float | None) -> RunStatus:
    """How it ended. Raises Failure when it had not in time."""
    try:
        return handle.wait(timeout_s)
    except TimeoutError as error:
        raise Failure(str(error)) from error


def payload_of(text: str) -> Any:
    """The JSON of --payload, @FILE or -. Raises BadInput."""
    try:
        return loads(_payload_bytes(text))
    except OSError as error:
        raise BadInput(f"--payload: cannot read {text[1:]}: {error.strerror}") from error
    except (BadRecord, UnicodeEncodeError) as error:
        raise BadInput(f"--payload: {error}; allowed: JSON, such as '{{\"n\": 1}}'") from error


def _payload_bytes(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    return Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()


def _headers(given: list[str]) -> dict[str, str]:
    headers = {}
    for item in given:
        name, sign, value = item.partition("=")
        if not sign or not name:
            raise BadInput(f"--header is {item!r}; allowed: NAME=TEXT")
        headers[name] = value
    return headers


def show_handle(handle: Handle, status: RunStatus | None, as_json: bool, what: str = "triggered") -> None:
    """What was sent, and how it ended if that was waited for."""
    if as_json:
        emit(_document(handle, status))
        return
    if status is None:
        say(f"{what} {handle.task} as {handle.id}")
        return
    epoch = "" if status.epoch is None else f", epoch {status.epoch}"
    say(f"{handle.task}: {status.kind}{epoch}{f': {status.cause}' if status.cause else ''}")
    if status.result is not None:
        say(dumps(status.result).decode())


def _document(handle: Handle, status: RunStatus | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "task": handle.task,
        "id": handle.id,
        "partition": handle.partition,
        "offset": handle.offset,
        "at": format_ms(handle.at_ms),
    }
    if status is not None:
        document |= {
            "outcome": status.kind,
            "epoch": status.epoch,
            "attempt": status.attempt,
            "result": status.result,
            "cause": status.cause,
        }
    return document

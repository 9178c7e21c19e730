"""`cancel`, `pause`, `resume`, `delete`: what operators say to a task."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.options import Bootstrap, Config, Json, Namespace, Pool, TaskId, load_settings
from fencepost.cli.output import emit, note, say
from fencepost.cli.view import load_tasks
from fencepost.client import Client
from fencepost.core.task import OnResume
from fencepost.core.times import format_ms
from fencepost.kafka.producer import Sent
from fencepost.settings import Settings

Reason = Annotated[str | None, typer.Option("--reason", help="For people; it goes into the history.")]


def cancel(
    task_id: TaskId,
    reason: Reason = None,
    run_only: Annotated[bool, typer.Option("--run-only", help="Leave alone what waits.")] = False,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """End the run that is on, and what waits."""
    settings = load_settings(config, bootstrap, namespace, pool=pool)
    with Client(settings) as client:
        _warn_if_unknown(settings, task_id)
        _told("cancel", task_id, client.cancel(task_id, reason, waiting=not run_only), as_json)


def pause(
    task_id: TaskId,
    reason: Reason = None,
    on_resume: Annotated[
        OnResume, typer.Option("--on-resume", help="What becomes of the slots of the pause.")
    ] = OnResume.MISS,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Hold back every start of a task; a run that is on goes on."""
    wanted = None if on_resume is OnResume.MISS else on_resume.value
    settings = load_settings(config, bootstrap, namespace, pool=pool)
    with Client(settings) as client:
        _warn_if_unknown(settings, task_id)
        _told("pause", task_id, client.pause(task_id, reason, on_resume=wanted), as_json)


def resume(
    task_id: TaskId,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Let a paused task start again; the slots of the pause count as missed."""
    settings = load_settings(config, bootstrap, namespace, pool=pool)
    with Client(settings) as client:
        _warn_if_unknown(settings, task_id)
        _told("resume", task_id, client.resume(task_id), as_json)


def delete(
    task_id: TaskId,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Take a task's definition away: no more slots, nothing waits; its history and its epoch stay."""
    settings = load_settings(config, bootstrap, namespace, pool=pool)
    with Client(settings) as client:
        _warn_if_unknown(settings, task_id)
        _told("delete", task_id, client.delete(task_id), as_json)


def _warn_if_unknown(settings: Settings, task_id: str) -> None:
    """A task declared in code has no record before its first run, so an unknown ID is no reason to refuse."""
    if task_id not in load_tasks(settings, task_id):
        note(f"warning: nothing is recorded of {task_id!r}; if no worker's code declares it, this has no effect")


def _told(what: str, task_id: str, sent: Sent, as_json: bool) -> None:
    if as_json:
        document = {"task": task_id, "op": what, "partition": sent.partition, "offset": sent.offset}
        emit({**document, "at": format_ms(sent.at_ms)})
    else:
        say(f"{what} of {task_id} is on record; its owner acts on it")

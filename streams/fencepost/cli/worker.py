"""`worker`: a replica."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

from fencepost.cli.failures import BadInput, Failure
from fencepost.cli.options import Bootstrap, Config, Namespace, Pool, load_settings


def worker(
    app: Annotated[str | None, typer.Option("--app", help="module:attribute of the App, for example shop:app.")] = None,
    slots: Annotated[int | None, typer.Option("--slots", help="Runs at once.")] = None,
    shared_processes: Annotated[
        int | None, typer.Option("--shared-processes", help="Runner processes for functions that share one.")
    ] = None,
    lanes: Annotated[int | None, typer.Option("--lanes", help="Group members in this process.")] = None,
    worker_id: Annotated[
        str | None, typer.Option("--worker-id", help="A name of its own: a restart within the session moves nothing.")
    ] = None,
    command: Annotated[
        list[str] | None, typer.Option("--allow", help="An executable that tasks may start; may be given often.")
    ] = None,
    call_hosts: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A host that HTTP tasks may call; may be given often.")
    ] = None,
    profile: Annotated[str | None, typer.Option("--profile", help="standard, swift or quick.")] = None,
    http_port: Annotated[
        int | None, typer.Option("--http-port", help="Serve /livez, /readyz and /metrics; 0 for any free port.")
    ] = None,
    http_host: Annotated[str | None, typer.Option("--http-host", help="The address to serve them at.")] = None,
    stop_limit_s: Annotated[
        float | None, typer.Option("--stop-limit", help="Seconds that runs may go on after SIGTERM.")
    ] = None,
    log_level: Annotated[str | None, typer.Option("--log-level", help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option("--log-format", help="auto, json or text.")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
) -> None:
    """Run a worker until it is told to stop (SIGTERM drains, a second one is quicker). Start as many as wanted."""
    settings = load_settings(
        config,
        bootstrap,
        namespace,
        pool=pool,
        app=app,
        slots=slots,
        shared_processes=shared_processes,
        lanes=lanes,
        worker_id=worker_id,
        commands=command or None,
        call_hosts=call_hosts or None,
        profile=profile,
        http_port=http_port,
        http_host=http_host,
        stop_limit_s=stop_limit_s,
        log_level=log_level,
        log_format=log_format,
    )
    # Loaded here: no other command needs the worker, and it takes as long as all of them together.
    from fencepost import logs
    from fencepost.worker.guard.start import AppNotImported, GuardError
    from fencepost.worker.worker import main

    logs.configure(settings)
    try:
        code = main(settings)
    except AppNotImported as error:
        raise BadInput(str(error)) from error
    except GuardError as error:
        raise Failure(str(error)) from error
    leave(code)


def leave(code: int) -> NoReturn:
    """Exit without the interpreter's own tidying up.

    That would wait for clients of the library that nobody could close, because what they were for had failed, and that
    may take for ever: a worker that has said that it ends must not stay.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

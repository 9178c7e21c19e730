"""The command itself: all groups put together, errors as one line with the right exit code."""

from __future__ import annotations

import fencepost.cli.early  # isort: skip  # noqa: F401

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from fencepost.cli import (
    apply,
    backfill,
    broker,
    control,
    crontab,
    dlq,
    graph,
    init,
    limits,
    owners,
    rerun,
    rules,
    runs,
    tasks,
    trigger,
    upcoming,
    verify,
    views,
    worker,
)
from fencepost.cli.failures import INTERRUPTED, OK, exit_code
from fencepost.cli.output import note
from fencepost.version import __version__

cli = typer.Typer(
    name="fencepost",
    help="A task scheduler whose only coordinator is Kafka.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_COMMANDS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("up", broker.up),
    ("down", broker.down),
    ("status", broker.status),
    ("init", init.init),
    ("apply", apply.apply),
    ("worker", worker.worker),
    ("trigger", trigger.trigger),
    ("rerun", rerun.rerun),
    ("backfill", backfill.backfill),
    ("cancel", control.cancel),
    ("pause", control.pause),
    ("resume", control.resume),
    ("delete", control.delete),
    ("tasks", tasks.tasks),
    ("describe", tasks.describe),
    ("runs", runs.runs),
    ("logs", runs.logs),
    ("owners", owners.owners),
    ("workers", owners.workers),
    ("next", upcoming.upcoming),
    ("graph", graph.graph),
    ("limits", limits.limits),
    ("verify", verify.verify),
    ("rules", rules.rules),
    ("views", views.views),
    ("alerts", views.alerts),
    ("stats", views.stats),
)
_SERVICES = ("worker", "rules", "views")
for _name, _command in _COMMANDS:
    cli.command(_name)(_command)
cli.add_typer(dlq.group, name="dlq")
cli.add_typer(crontab.group, name="import")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"fencepost {__version__}")
        raise typer.Exit


@cli.callback()
def common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what the Kafka client says.")] = False,
) -> None:
    if context.invoked_subcommand in _SERVICES:
        return  # they log for programs, as their settings say
    if verbose:
        logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s", level=logging.DEBUG)
    # The client repeats by itself what fails for a moment, and logs each time; what stays wrong is raised anyway.
    logging.getLogger("fencepost.kafka.client").setLevel(logging.DEBUG if verbose else logging.CRITICAL)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    try:
        cli(args=arguments, prog_name="fencepost")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        note(f"fencepost: {error}")
        return code
    return OK


def main() -> None:
    sys.exit(run())


if __name__ == "__main__":
    main()

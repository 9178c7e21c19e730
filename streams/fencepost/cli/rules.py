"""`rules`: turn records of other topics into triggers."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fencepost.app import load_app
from fencepost.cli.failures import BadInput, Failure
from fencepost.cli.options import Bootstrap, Config, Json, Namespace, load_settings
from fencepost.cli.output import emit, table
from fencepost.cli.worker import leave
from fencepost.views.rule import Rule
from fencepost.views.rulefile import check_names, read_rule_files


def rules(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="TOML files with [[rule]] tables.")
    ] = None,
    app: Annotated[str | None, typer.Option("--app", help="module:attribute of an App with rules of its own.")] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="now|beginning", help="Where to begin in a topic that was never read.")
    ] = "now",
    group: Annotated[str | None, typer.Option("--group", help="Consumer group; NAMESPACE-rules by default.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check the rules, and list them.")] = False,
    profile: Annotated[str | None, typer.Option("--profile", help="standard, swift or quick.")] = None,
    http_port: Annotated[
        int | None, typer.Option("--http-port", help="Serve /livez, /readyz and /metrics; 0 for any free port.")
    ] = None,
    log_level: Annotated[str | None, typer.Option("--log-level", help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option("--log-format", help="auto, json or text.")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Trigger tasks by records of other topics, as rules say, until told to stop (SIGTERM)."""
    settings = load_settings(
        config,
        bootstrap,
        namespace,
        app=app,
        profile=profile,
        http_port=http_port,
        log_level=log_level,
        log_format=log_format,
    )
    found = read_rule_files(files or [])
    if settings.app is not None:
        found += load_app(settings.app).rules()
    check_names(found)
    if not found:
        raise BadInput("no rules: give files with [[rule]] tables, or --app with an App that has rules")
    if start not in ("now", "beginning"):
        raise BadInput(f"--from is {start!r}; allowed: now, beginning")
    if check:
        _show(found, as_json)
        return
    need_views("rules")
    from fencepost import logs
    from fencepost.views.ruling import group_of, run

    logs.configure(settings)
    leave(run(settings, found, group or group_of(settings), start == "beginning"))


def need_views(command: str) -> None:
    """Raises Failure where the extra is not installed."""
    if "faust" not in sys.modules and find_spec("faust") is None:
        raise Failure(f"`fencepost {command}` needs faust: pip install 'fencepost[views]'")


def _show(rules: list[Rule], as_json: bool) -> None:
    if as_json:
        emit({"rules": [{"name": rule.name, "topic": rule.topic, "kind": rule.kind} for rule in rules]})
        return
    table(("RULE", "TOPIC", "KIND"), ((rule.name, rule.topic, rule.kind) for rule in rules), "no rules")

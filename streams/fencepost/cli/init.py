"""`init`: the topics of a namespace."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.options import Bootstrap, Config, Json, Namespace, Pool, load_settings
from fencepost.cli.output import emit, note, say
from fencepost.core.times import format_ms
from fencepost.kafka.admin import Report
from fencepost.kafka.admin import init as make


def init(
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="How many, for ever; 16 by default, 64 advised in production.")
    ] = None,
    replication: Annotated[int | None, typer.Option("--replication", help="Default: 3, or one per broker.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", help="standard, swift or quick.")] = None,
    group_protocol: Annotated[str | None, typer.Option("--group-protocol", help="auto, classic or consumer.")] = None,
    accept_new_topics: Annotated[
        bool, typer.Option("--accept-new-topics", help="Go on although a topic with state in it was deleted.")
    ] = False,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Make a namespace's topics, check what is there, settle the group's protocol. Safe to repeat."""
    settings = load_settings(config, bootstrap, namespace, pool=pool, profile=profile, group_protocol=group_protocol)
    report = make(settings, partitions, replication, accept_new_topics)
    if as_json:
        emit(_document(settings.namespace, report))
    else:
        _show(settings.namespace, report)
    for text in report.warnings:
        note(f"warning: {text}")


def _document(namespace: str, report: Report) -> dict[str, object]:
    return {
        "namespace": namespace,
        "partitions": report.info.partitions,
        "group_protocol": report.info.group_protocol,
        "session_timeout_s": report.info.session_timeout_s,
        "created_at": format_ms(report.info.created_ms),
        "created": list(report.created),
        "existing": list(report.existing),
        "changed": list(report.changed),
        "notes": list(report.notes),
        "warnings": list(report.warnings),
    }


def _show(namespace: str, report: Report) -> None:
    info = report.info
    say(
        f"namespace {namespace}: {info.partitions} partitions, {info.group_protocol} group protocol, "
        f"session timeout {info.session_timeout_s:g} s"
    )
    say(f"topics made: {', '.join(report.created) or 'none'}; there already: {len(report.existing)}")
    for line in report.changed:
        say(f"put right: {line}")
    for line in report.notes:
        say(f"note: {line}")

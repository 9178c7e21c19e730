"""`views`, `alerts`, `stats`: what is derived from the history."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from fencepost.cli.failures import BadInput
from fencepost.cli.options import Bootstrap, Config, Json, Namespace, Pool, load_settings
from fencepost.cli.output import duration, emit, local_time, note, table
from fencepost.cli.rules import need_views
from fencepost.cli.runs import read_history
from fencepost.cli.worker import leave
from fencepost.codec import BadRecord
from fencepost.core.times import format_ms, parse_duration
from fencepost.kafka.namespace import load_namespace
from fencepost.kafka.scan import scan
from fencepost.kafka.topics import Topics
from fencepost.views.counts import Counts, Row
from fencepost.wire.alert import RAISED, Alert, decode_alert


def views(
    failures: Annotated[int, typer.Option("--failures", min=1, help="So many failures in a row are an alert.")] = 3,
    late: Annotated[str, typer.Option("--late", help="A start, or a slot, that is later than this is one.")] = "1m",
    stuck: Annotated[
        str, typer.Option("--stuck", help="A run that goes on for longer, or work that nobody starts.")
    ] = "1h",
    every: Annotated[str, typer.Option("--every", help="How often it is looked for what has not happened.")] = "10s",
    profile: Annotated[str | None, typer.Option("--profile", help="standard, swift or quick.")] = None,
    http_port: Annotated[
        int | None, typer.Option("--http-port", help="Serve /livez, /readyz and /metrics; 0 for any free port.")
    ] = None,
    log_level: Annotated[str | None, typer.Option("--log-level", help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option("--log-format", help="auto, json or text.")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
) -> None:
    """Watch the history and write alerts, until told to stop (SIGTERM)."""
    settings = load_settings(
        config,
        bootstrap,
        namespace,
        pool=pool,
        profile=profile,
        http_port=http_port,
        log_level=log_level,
        log_format=log_format,
    )
    late_s, stuck_s, every_s = _seconds("--late", late), _seconds("--stuck", stuck), _seconds("--every", every)
    need_views("views")
    from fencepost import logs
    from fencepost.views.alarms import Limits
    from fencepost.views.watching import run

    logs.configure(settings)
    leave(run(settings, Limits(failures, late_s, stuck_s), max(0.1, every_s)))


def alerts(
    task: Annotated[str | None, typer.Option("--task", help="Only this task's.")] = None,
    still_open: Annotated[bool, typer.Option("--open", help="Only those that were raised and not cleared.")] = False,
    since: Annotated[str, typer.Option("--since", help="Only what was told since then, such as 10m or 2d.")] = "7d",
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """List alerts, newest last; each with its newest status."""
    settings = load_settings(config, bootstrap, namespace, pool=pool)
    load_namespace(settings)
    first_ms = time.time_ns() // 1_000_000 - round(_seconds("--since", since) * 1000)
    found: dict[tuple[str, str], Alert] = {}
    topic = Topics(settings.namespace).alerts
    for record in scan(settings, topic):
        try:
            alert = decode_alert(record.value or b"")
        except BadRecord as error:
            note(f"warning: {topic}/{record.partition}/{record.offset} is no alert of ours: {error}")
            continue
        if task is None or alert.task == task:
            found[alert.task, alert.id] = alert
    shown = sorted(found.values(), key=lambda alert: (alert.at_ms, alert.task, alert.id))
    shown = [alert for alert in shown if alert.at_ms >= first_ms and (alert.status == RAISED or not still_open)]
    if as_json:
        emit({"alerts": [_document(alert) for alert in shown]})
        return
    rows = ((local_time(alert.at_ms), alert.task, alert.kind, alert.status, alert.text) for alert in shown)
    table(("WHEN", "TASK", "KIND", "STATUS", "WHAT"), rows, "no alerts")


def stats(
    window: Annotated[str, typer.Option("--window", help="So far back, such as 10m or 2d.")] = "1h",
    task: Annotated[str | None, typer.Option("--task", help="Only this task's.")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Count runs of a window of time by how they ended, and how long they waited and took. Reads the history alone."""
    settings = load_settings(config, bootstrap, namespace, pool=pool)
    window_s = _seconds("--window", window)
    counts = Counts(window_s)
    for event in read_history(settings, task, f"{window_s:g}s"):
        counts.add(event)
    now_ms = time.time_ns() // 1_000_000
    rows = counts.rows(now_ms)
    if as_json:
        emit({"window_s": window_s, "until": format_ms(now_ms), "tasks": [row.document() for row in rows]})
        return
    headings = ("TASK", "STARTED", "SUCCEEDED", "FAILED", "TIMED OUT", "CANCELLED", "INTERRUPTED", "SKIPPED", "MISSED")
    table((*headings, "WAITED P50", "P99", "TOOK P50", "P99"), map(_row, rows), "nothing happened")


def _row(row: Row) -> list[object]:
    quantiles = (row.waited_p50_s, row.waited_p99_s, row.took_p50_s, row.took_p99_s)
    return [row.task, *row.counts.values(), *(None if each is None else _time(each) for each in quantiles)]


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else duration(seconds)


def _document(alert: Alert) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": alert.id,
        "task": alert.task,
        "kind": alert.kind,
        "status": alert.status,
        "at": format_ms(alert.at_ms),
        "text": alert.text,
        "epoch": alert.epoch,
        "slot": None if alert.slot_ms is None else format_ms(alert.slot_ms),
        "count": alert.count,
    }
    return {name: value for name, value in body.items() if value is not None}


def _seconds(option: str, value: str) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from error

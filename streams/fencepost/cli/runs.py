"""`runs` and `logs`: what happened, and what runs printed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from fencepost.cli.failures import BadInput
from fencepost.cli.options import Bootstrap, Config, Json, Namespace, Pool, TaskId, load_settings
from fencepost.cli.output import duration, emit, local_time, note, printable, say, table
from fencepost.codec import BadRecord
from fencepost.core.ids import check_task_id, partition_of
from fencepost.core.task import Outcome
from fencepost.core.times import format_ms, parse_duration
from fencepost.kafka.namespace import load_namespace
from fencepost.kafka.scan import Record, scan
from fencepost.kafka.tail import Tail
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.wire.history import HistoryRecord, decode_history
from fencepost.wire.log import LogPart, decode_log

_ENDS = {outcome.value for outcome in Outcome}
_FRAME = (
    "trigger",
    "slot",
    "asked_by",
    "batch",
    "given_up",
    "attempt",
    "cause",
    "error",
    "result",
    "retry_at",
    "duration_s",
    "waited_s",
)

Since = Annotated[str | None, typer.Option("--since", help="Only what is younger than this, such as 10m or 2d.")]


@dataclass(slots=True)
class RunView:
    """One run, put together from its events. `outcome` None: it has not ended."""

    task: str
    epoch: int
    started_ms: int | None = None
    ended_ms: int | None = None
    outcome: str | None = None
    lane: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def at_ms(self) -> int:
        return self.started_ms or self.ended_ms or 0


def runs(
    task_id: Annotated[str | None, typer.Argument(metavar="ID", help="Only this task's.")] = None,
    events: Annotated[bool, typer.Option("--events", help="All events, with skipped and missed ones.")] = False,
    limit: Annotated[int, typer.Option("--limit", help="The newest so many; 0 for all.", min=0)] = 50,
    since: Since = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Show runs, newest last."""
    settings = load_settings(config, bootstrap, namespace, pool=pool)
    history = read_history(settings, task_id, since)
    if events:
        found = _newest(sorted(history, key=lambda event: event.at_ms), limit)
        _show_events(found, as_json)
        return
    views = _newest(sorted(collect(history), key=lambda run: (run.at_ms, run.epoch)), limit)
    if as_json:
        emit({"runs": [_document(run) for run in views]})
        return
    table(
        ("TASK", "EPOCH", "ATTEMPT", "OUTCOME", "STARTED", "TOOK", "FOR", "LANE", "WHY"),
        (_row(run) for run in views),
        "no runs",
    )


def logs(
    task_id: TaskId,
    epoch: Annotated[int | None, typer.Argument(metavar="EPOCH", help="Only this run's.", min=1)] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes; end with Ctrl-C.")] = False,
    since: Since = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Show what runs of a task printed. With -f and --json: one JSON object a line."""
    settings = load_settings(config, bootstrap, namespace, pool=pool)
    topic, number = Topics(settings.namespace).logs, _partition(settings, task_id)
    if follow:
        with Tail(settings, topic, [number], _since_ms(since) or 0) as tail:
            for part in _parts(tail.follow(), task_id, epoch):
                for line in _lines(part):
                    emit(line) if as_json else _print(line, epoch)
        return
    lines = [line for part in _parts(_records(settings, topic, number, since), task_id, epoch) for line in _lines(part)]
    if as_json:
        emit({"task": task_id, "lines": lines})
        return
    for line in lines:
        _print(line, epoch)
    if not lines:
        note("nothing was printed, or it is no longer kept")


def read_history(settings: Settings, task_id: str | None, since: str | None) -> Iterator[HistoryRecord]:
    """Events of all tasks, or of one, in order per task. What cannot be read is said on stderr."""
    topic = Topics(settings.namespace).runs
    number = None if task_id is None else _partition(settings, task_id)
    if task_id is None:
        load_namespace(settings)
    for record in _records(settings, topic, number, since):
        if record.value is None or (task_id is not None and record.key != task_id.encode()):
            continue
        try:
            yield decode_history(record.value)
        except BadRecord as error:
            note(f"warning: {topic}/{record.partition}/{record.offset} cannot be read: {error}")


def collect(history: Iterable[HistoryRecord]) -> list[RunView]:
    """Runs, each from its start, its end and what came between."""
    views: dict[tuple[str, int], RunView] = {}
    for event in history:
        if event.epoch is None or (event.kind != "started" and "duration_s" not in event.fields):
            continue
        view = views.setdefault((event.task, event.epoch), RunView(event.task, event.epoch))
        view.fields |= {name: event.fields[name] for name in _FRAME if name in event.fields}
        if event.kind == "started":
            view.started_ms, view.lane = event.at_ms, event.lane
        elif event.kind in _ENDS:
            view.ended_ms, view.outcome = event.at_ms, event.kind
    return list(views.values())


def _records(settings: Settings, topic: str, number: int | None, since: str | None) -> Iterator[Record]:
    numbers = None if number is None else [number]
    since_ms = _since_ms(since)
    if since_ms is None:
        return scan(settings, topic, numbers)
    with Tail(settings, topic, numbers, since_ms) as tail:
        starts = tail.starts()
    return scan(settings, topic, numbers, starts)


def _since_ms(since: str | None) -> int | None:
    if since is None:
        return None
    try:
        return time.time_ns() // 1_000_000 - round(parse_duration(since) * 1000)
    except ValueError as error:
        raise BadInput(f"--since: {error}") from error


def _partition(settings: Settings, task_id: str) -> int:
    try:
        check_task_id(task_id)
    except ValueError as error:
        raise BadInput(f"ID: {error}") from error
    return partition_of(task_id.encode(), load_namespace(settings).partitions)


def _newest(items: list[Any], limit: int) -> list[Any]:
    return items[-limit:] if limit else items


def _document(run: RunView) -> dict[str, Any]:
    return {
        "task": run.task,
        "epoch": run.epoch,
        "outcome": run.outcome or "running",
        "started": None if run.started_ms is None else format_ms(run.started_ms),
        "ended": None if run.ended_ms is None else format_ms(run.ended_ms),
        "lane": run.lane,
        **run.fields,
    }


def _row(run: RunView) -> tuple[object, ...]:
    took = run.fields.get("duration_s")
    why = run.fields.get("error") or run.fields.get("cause")
    retry = run.fields.get("retry_at")
    return (
        run.task,
        run.epoch,
        run.fields.get("attempt"),
        run.outcome or "running",
        local_time(run.started_ms),
        None if took is None else duration(took),
        run.fields.get("trigger") or run.fields.get("slot"),
        run.lane,
        "; ".join(str(part) for part in (why and str(why).splitlines()[-1], retry and f"again at {retry}") if part),
    )


def _show_events(events: list[HistoryRecord], as_json: bool) -> None:
    if as_json:
        emit({"events": [_event(event) for event in events]})
        return
    rows = (
        (
            local_time(event.at_ms),
            event.task,
            event.kind,
            event.epoch,
            ", ".join(f"{name}={value}" for name, value in event.fields.items()),
        )
        for event in events
    )
    table(("AT", "TASK", "EVENT", "EPOCH", "FIELDS"), rows, "no events")


def _event(event: HistoryRecord) -> dict[str, Any]:
    return {
        "task": event.task,
        "kind": event.kind,
        "epoch": event.epoch,
        "at": format_ms(event.at_ms),
        "lane": event.lane,
        "nonce": event.nonce,
        **event.fields,
    }


def _parts(records: Iterable[Record], task_id: str, epoch: int | None) -> Iterator[LogPart]:
    for record in records:
        if record.key != task_id.encode() or record.value is None:
            continue
        try:
            part = decode_log(record.value)
        except BadRecord as error:
            note(f"warning: {record.topic}/{record.partition}/{record.offset} cannot be read: {error}")
            continue
        if epoch is None or part.epoch == epoch:
            yield part


def _lines(part: LogPart) -> Iterator[dict[str, Any]]:
    common = {"epoch": part.epoch, "at": format_ms(part.at_ms)}
    for stream, text in part.lines:
        yield {**common, "stream": stream, "text": text}
    if part.cut:
        yield {**common, "stream": "log", "text": "(more was printed than is kept)"}


def _print(line: dict[str, Any], epoch: int | None) -> None:
    text = "\n".join(printable(part) if part else "" for part in line["text"].rstrip("\n").split("\n"))
    say(text if epoch is not None else f"[{line['epoch']}] {text}")

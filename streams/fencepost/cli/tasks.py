"""`tasks` and `describe`: what is defined and where it stands."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from fencepost.cli.options import At, Bootstrap, Config, Json, Namespace, Pool, TaskId, load_settings
from fencepost.cli.output import age, emit, local_time, say, table
from fencepost.cli.owned import read_owners
from fencepost.cli.past import show_task
from fencepost.cli.view import TaskView, describe_handler, describe_schedule, find_task, load_tasks
from fencepost.cli.when import when_ms
from fencepost.codec import dumps
from fencepost.core.ids import partition_of
from fencepost.core.task import Backfill, TaskState, Work
from fencepost.core.times import format_ms
from fencepost.kafka.namespace import load_namespace
from fencepost.wire.definition import definition_to_json

App = Annotated[str | None, typer.Option("--app", help="Also show what this app declares (module:attribute).")]


_PLACES = {"topic": "the tasks topic", "code": "code", None: "code (name its app with --app to see it)"}


def tasks(
    pattern: Annotated[str | None, typer.Argument(metavar="PATTERN", help="Such as 'invoice/*'.")] = None,
    app: App = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """List tasks: those defined, and those with a state."""
    settings = load_settings(config, bootstrap, namespace, pool=pool, app=app)
    views = [
        view
        for task_id, view in sorted(load_tasks(settings).items())
        if pattern is None or fnmatchcase(task_id, pattern)
    ]
    if as_json:
        emit({"tasks": [document(view) for view in views]})
        return
    table(
        ("ID", "STATUS", "EPOCH", "WAITING", "NEXT SLOT", "LAST RUN", "SCHEDULE", "HANDLER"),
        (_row(view) for view in views),
        f"no tasks in namespace {settings.namespace}",
    )


def describe(
    task_id: TaskId,
    at: At = None,
    app: App = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Show all that is known of one task; with --at: what its history tells of that time.

    Exit code 1 for a task that nothing is known of, and if the history no longer reaches back to the time.
    """
    settings = load_settings(config, bootstrap, namespace, pool=pool, app=app)
    if at is not None:
        show_task(settings, task_id, when_ms("--at", at), as_json)
        return
    view = find_task(settings, task_id)
    number = partition_of(task_id.encode(), load_namespace(settings).partitions)
    fence = read_owners(settings, [number]).fences.get(number)
    owner = None if fence is None or fence.released else fence.lane
    if as_json:
        emit({**document(view), "partition": number, "owner": owner})
        return
    _show(view, number, owner)


def document(view: TaskView) -> dict[str, Any]:
    """A task as JSON: definition, state and what waits; `reason` says why there is no next slot."""
    next_ms = view.next_slot()
    body: dict[str, Any] = {
        "task": view.task,
        "status": view.status,
        "defined_in": view.defined_in,
        "definition": None if view.definition is None else definition_to_json(view.definition),
        "state": None if view.state is None else _state(view.state),
        "waiting": [_work(work) for work in sorted(view.waiting, key=lambda work: work.seq)],
        "next": None if next_ms is None else format_ms(next_ms),
    }
    if next_ms is None:
        body["reason"] = view.why_no_slot() or "no slot is left"
    if view.problem is not None:
        body["problem"] = view.problem
    return body


def _state(state: TaskState) -> dict[str, Any]:
    run, last = state.run, state.last
    return {
        "epoch": state.epoch,
        "status": state.status.value,
        "paused": state.paused,
        "pause_reason": state.pause_reason,
        "run": None
        if run is None
        else {
            "epoch": run.epoch,
            "attempt": run.attempt,
            "lane": run.lane,
            "nonce": run.nonce,
            "lease_ttl_s": run.lease_ttl_s,
            "started": format_ms(run.started_ms),
            "stopping": run.stopping,
        },
        "work": None if state.work is None else _work(state.work),
        "catching_up": None if state.catching is None else _range(state.catching.next_ms, state.catching.until_ms),
        "backfill": None if state.backfill is None else _backfill(state.backfill),
        "retry_at": _time(state.retry_at_ms),
        "last": None
        if last is None
        else {
            "epoch": last.epoch,
            "outcome": last.outcome.value,
            "cause": None if last.cause is None else last.cause.value,
            "ended": format_ms(last.ended_ms),
        },
    }


def _work(work: Work) -> dict[str, Any]:
    return {
        "seq": work.seq,
        "trigger": work.trigger_id,
        "slot": _time(work.slot_ms),
        "due": _time(work.due_ms or None),
        "arrived": _time(work.arrived_ms or None),
        "priority": work.priority,
        "attempt": work.attempt,
    }


def _range(next_ms: int, until_ms: int) -> dict[str, str]:
    return {"next": format_ms(next_ms), "until": format_ms(until_ms)}


def _backfill(backfill: Backfill) -> dict[str, Any]:
    if backfill.max_runs == 1:
        return {"id": backfill.id, "done": backfill.done, **_range(backfill.next_ms, backfill.until_ms)}
    at = {"next": None if backfill.next_ms > backfill.until_ms else format_ms(backfill.next_ms)}
    ends = {"succeeded": backfill.succeeded, "failed": backfill.failed, "skipped": backfill.skipped}
    until = format_ms(backfill.until_ms)
    return {"id": backfill.id, "done": backfill.done, "max_runs": backfill.max_runs, **ends, **at, "until": until}


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else format_ms(at_ms)


def _row(view: TaskView) -> tuple[object, ...]:
    state, definition = view.state, view.definition
    last = None if state is None or state.last is None else state.last
    next_ms = view.next_slot()
    return (
        view.task,
        view.status,
        None if state is None else state.epoch,
        len(view.waiting) or None,
        local_time(next_ms) or "none",
        None if last is None else f"{last.outcome.value}, {age(last.ended_ms)}",
        describe_schedule(view.schedule) or (state.schedule_fingerprint if state is not None else None),
        "(in code)" if definition is None else describe_handler(definition),
    )


def _show(view: TaskView, partition: int, owner: str | None) -> None:
    rows: list[tuple[str, object]] = [
        ("task", view.task),
        ("status", view.status),
        ("defined in", _PLACES[view.defined_in]),
    ]
    if view.problem is not None:
        rows.append(("problem", view.problem))
    if view.definition is not None:
        body = definition_to_json(view.definition)
        rows += [(name, dumps(value).decode()) for name, value in body.items() if name not in ("v", "task")]
    rows += [("partition", partition), ("owner", owner or "nobody")]
    state = view.state
    if state is not None:
        rows.append(("epoch", state.epoch))
        if state.run is not None:
            rows.append(("running", f"epoch {state.run.epoch} since {local_time(state.run.started_ms)}"))
        if state.retry_at_ms is not None:
            rows.append(("next attempt", local_time(state.retry_at_ms)))
        if state.last is not None:
            cause = "" if state.last.cause is None else f" ({state.last.cause.value})"
            ended = local_time(state.last.ended_ms)
            rows.append(("last run", f"epoch {state.last.epoch}: {state.last.outcome.value}{cause}, {ended}"))
        if state.catching is not None:
            first, last = local_time(state.catching.next_ms), local_time(state.catching.until_ms)
            rows.append(("catching up", f"from {first} to {last}"))
        if state.backfill is not None:
            first, last = local_time(state.backfill.next_ms), local_time(state.backfill.until_ms)
            told = f"{state.backfill.id}: {state.backfill.done} begun, next {first}, until {last}"
            if state.backfill.max_runs > 1:
                told += f"; {state.backfill.max_runs} at once, {state.backfill.succeeded} succeeded"
                told += f", {state.backfill.failed} failed, {state.backfill.skipped} skipped"
            rows.append(("backfill", told))
    rows.append(("waiting", len(view.waiting)))
    next_ms = view.next_slot()
    rows.append(("next slot", local_time(next_ms) or f"none: {view.why_no_slot() or 'no slot is left'}"))
    table(("", ""), rows, "")
    for work in sorted(view.waiting, key=lambda work: work.seq):
        say(f"  waits: {work.trigger_id or _time(work.slot_ms)} (due {local_time(work.due_ms or None) or 'now'})")

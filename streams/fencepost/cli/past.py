"""What `owners --at` and `describe --at` show."""

from __future__ import annotations

from typing import Any

import typer

from fencepost.audit.past import Held, OutOfReach, Then, owners_at, task_at
from fencepost.cli.failures import Failure
from fencepost.cli.output import emit, local_time, note, say, table
from fencepost.cli.progress import progress_bar
from fencepost.core.times import format_ms, parse_rfc3339
from fencepost.settings import Settings


def show_owners(settings: Settings, at_ms: int, as_json: bool) -> None:
    """Exit code 1 where the logs no longer tell of a partition."""
    try:
        found = owners_at(settings, at_ms)
    except OutOfReach as error:
        raise Failure(str(error)) from error
    if as_json:
        emit({"at": format_ms(at_ms), "owners": [_held(held) for held in found]})
    else:
        say(f"at {format_ms(at_ms)}")
        rows = [
            (held.partition, held.state, held.lane, held.worker, held.nonce, local_time(held.since_ms), held.source)
            for held in found
        ]
        table(("PARTITION", "STATE", "LANE", "WORKER", "NONCE", "SINCE", "FROM"), rows, "no partitions")
    unknown = [held for held in found if held.state == "unknown"]
    for held in unknown:
        reach = "" if held.reaches_ms is None else f": they reach back to {format_ms(held.reaches_ms)}"
        note(f"partition {held.partition}: the logs no longer tell{reach}")
    if unknown:
        raise typer.Exit(1)


def show_task(settings: Settings, task: str, at_ms: int, as_json: bool) -> None:
    try:
        with progress_bar("reading history", wanted=not as_json) as progress:
            then = task_at(settings, task, at_ms, progress)
    except OutOfReach as error:
        raise Failure(str(error)) from error
    if as_json:
        emit(_document(then))
        return
    past = then.past
    rows: list[tuple[str, object]] = [
        ("task", task),
        ("at", format_ms(at_ms)),
        ("status", _status(then)),
        ("partition", then.owner.partition),
        ("owner", _owner(then.owner)),
        ("epoch", past.epoch),
    ]
    if past.run is not None:
        rows.append(("running", f"epoch {past.run['epoch']} since {_local(past.run['started'])} on {past.run['lane']}"))
    if past.retry_at is not None:
        rows.append(("next attempt", _local(past.retry_at)))
    if past.last is not None:
        cause = f" ({past.last['cause']})" if "cause" in past.last else ""
        rows.append(
            ("last run", f"epoch {past.last['epoch']}: {past.last['outcome']}{cause}, {_local(past.last['ended'])}")
        )
    rows.append(("waiting", len(past.waiting)))
    table(("", ""), rows, "")
    for work in past.waiting.values():
        say(f"  waits: {work.get('trigger') or work.get('slot') or work.get('offset')} (since {_local(work['since'])})")
    if not then.complete:
        note("older history is no longer kept: what was paused or waits since before then is not told")


def _status(then: Then) -> str:
    past = then.past
    if past.status is None:
        return "nothing was recorded of it yet"
    more = [word for word, said in (("deleted", past.deleted), ("paused", past.paused)) if said]
    return ", ".join([past.status, *more])


def _owner(held: Held) -> str:
    if held.state == "held":
        return str(held.lane)
    return held.state if held.lane is None else f"{held.state} ({held.lane})"


def _local(text: str) -> str | None:
    return local_time(parse_rfc3339(text))


def _held(held: Held) -> dict[str, Any]:
    return {
        "partition": held.partition,
        "state": held.state,
        "lane": held.lane,
        "worker": held.worker,
        "nonce": held.nonce,
        "since": None if held.since_ms is None else format_ms(held.since_ms),
        "source": held.source,
    }


def _document(then: Then) -> dict[str, Any]:
    past = then.past
    return {
        "task": then.task,
        "at": format_ms(then.at_ms),
        "status": past.status,
        "epoch": past.epoch,
        "run": past.run,
        "retry_at": past.retry_at,
        "last": past.last,
        "paused": past.paused,
        "pause_reason": past.pause_reason,
        "deleted": past.deleted,
        "schedule": past.schedule,
        "waiting": list(past.waiting.values()),
        "partition": then.owner.partition,
        "owner": _held(then.owner),
        "complete": then.complete,
    }

"""`limits`: who holds and who waits under the keys of limits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from fencepost.claims import LimitStatus, read_limits
from fencepost.cli.options import Bootstrap, Config, Json, Namespace, load_settings
from fencepost.cli.output import age, emit, local_time, table


def limits(
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="Only this key.")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Show who holds and who waits under each limit's key, in the order in which they will be granted."""
    settings = load_settings(config, bootstrap, namespace)
    found = read_limits(settings, time.time_ns() // 1_000_000, key)
    if as_json:
        emit({"limits": [each.document() for each in found]})
        return
    empty = "nobody holds or waits under a limit" if key is None else f"nobody holds or waits under {key}"
    table(("KEY", "LIMIT", "STATUS", "TASK", "EPOCH", "SINCE", "POOL", "NEXT START"), _rows(found), empty)


def _rows(found: Iterable[LimitStatus]) -> Iterator[tuple[object, ...]]:
    for limit in found:
        first = (limit.key, _told(limit))
        due = local_time(limit.next_ms)
        for holder in limit.holders:
            status = "granted" if holder.epoch is None else "holds"
            yield (*first, status, holder.task, holder.epoch, age(holder.since_ms), holder.pool, due)
        for place, waiting in enumerate(limit.waiting, 1):
            yield (*first, f"waits, {place}.", waiting.task, None, age(waiting.since_ms), waiting.pool, due)
        if not limit.holders and not limit.waiting and limit.next_ms is not None:
            yield (*first, "free", None, None, None, None, due)


def _told(limit: LimitStatus) -> str | None:
    parts = [] if limit.max_runs is None else [f"{limit.max_runs} at once"]
    if limit.rate is not None:
        parts.append(limit.rate if limit.burst == 1 else f"{limit.rate}, burst {limit.burst}")
    return ", ".join(parts) or None

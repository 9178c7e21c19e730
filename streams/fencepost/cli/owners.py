"""`owners` and `workers`: who holds which partition, and what each worker says of itself."""

from __future__ import annotations

from typing import Any

from fencepost.cli.options import At, Bootstrap, Config, Json, Namespace, Pool, load_settings
from fencepost.cli.output import age, emit, note, table
from fencepost.cli.owned import Owners, read_owners
from fencepost.cli.past import show_owners
from fencepost.cli.view import newest
from fencepost.cli.when import when_ms
from fencepost.codec import BadRecord, loads
from fencepost.core.times import format_ms
from fencepost.kafka.namespace import load_namespace
from fencepost.kafka.scan import scan
from fencepost.kafka.topics import Topics
from fencepost.wire.worker_info import WorkerInfo, decode_worker_info, different_time_data


def owners(
    at: At = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Show which lane holds each partition, and under which nonce; with --at: which one did.

    Exit code 1 if the logs no longer reach back to the time.
    """
    settings = load_settings(config, bootstrap, namespace, pool=pool)
    if at is not None:
        show_owners(settings, when_ms("--at", at), as_json)
        return
    count = load_namespace(settings).partitions
    found = read_owners(settings)
    for line in found.unreadable:
        note(f"warning: a record of the owners topic cannot be read: {line}")
    if as_json:
        emit({"owners": [_owner(found, number) for number in range(count)], "leases": _leases(found)})
        return
    rows = []
    for number in range(count):
        owner = _owner(found, number)
        since = found.at_ms.get(str(number))
        state = "held" if owner["held"] else "released" if owner["lane"] else "never held"
        rows.append((number, state, owner["lane"], owner["worker"], owner["nonce"], age(since)))
    table(("PARTITION", "STATE", "LANE", "WORKER", "NONCE", "SINCE"), rows, "no partitions")


def workers(
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Show the workers, as they last told of themselves."""
    settings = load_settings(config, bootstrap, namespace, pool=pool)
    load_namespace(settings)
    infos, documents, heard = [], [], []
    for key, record in sorted(newest(scan(settings, Topics(settings.namespace).workers))):
        try:
            infos.append(decode_worker_info(record.value or b""))
            heard.append((infos[-1], record.at_ms))
            documents.append(loads(record.value or b""))
        except BadRecord as error:
            note(f"warning: the record of worker {key!r} cannot be read: {error}")
    for release, names in different_time_data(heard).items():
        note(f"warning: workers have different time data: {release} on {', '.join(names)}")
    if as_json:
        emit({"workers": documents})
        return
    table(
        ("WORKER", "STATUS", "HOST", "PID", "LOAD", "VERSION", "TZDATA", "HEARD", "HANDLERS", "NOTES"),
        (_row(info) for info in infos),
        "no workers",
    )


def _owner(found: Owners, number: int) -> dict[str, Any]:
    fence = found.fences.get(number)
    at_ms = found.at_ms.get(str(number))
    return {
        "partition": number,
        "held": fence is not None and not fence.released,
        "lane": None if fence is None else fence.lane,
        "worker": None if fence is None else fence.worker,
        "nonce": None if fence is None else fence.nonce,
        "at": None if at_ms is None else format_ms(at_ms),
    }


def _leases(found: Owners) -> list[dict[str, Any]]:
    return [
        {
            "lane": lane,
            "number": renewal.number,
            "held": {str(partition): nonce for partition, nonce in renewal.held},
            "at": format_ms(found.at_ms[lane]),
        }
        for lane, renewal in sorted(found.leases.items())
    ]


def _row(info: WorkerInfo) -> tuple[object, ...]:
    return (
        info.worker,
        info.status,
        info.host,
        info.pid,
        f"{info.load}/{info.capacity}",
        info.version,
        info.tzdata,
        age(info.at_ms),
        ", ".join(info.handlers),
        "; ".join(info.notes),
    )

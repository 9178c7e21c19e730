"""What ties a task to others, and the cycles that wait for its parents, each in a record of its own."""

from __future__ import annotations

from typing import Any, Final

from fencepost.codec import dumps
from fencepost.core.links import Done, Join, Links, Origin, Shard, ShardEnd
from fencepost.core.times import format_ms
from fencepost.wire.schema import read_own
from fencepost.wire.times import read_time

VERSION: Final = 1
LINKS: Final = "links"  # the kinds in the records' keys, see core.ids.side_key
JOIN: Final = "join"
_OF_BROADCAST: Final = ("worker", "attempt", "losses")


def encode_links(task: str, links: Links, lane: str, nonce: str) -> bytes:
    """The value of a links record; its key is the task ID, U+001F, "links", U+001F and 0. Joins are not in it."""
    body: dict[str, Any] = {"v": VERSION, "task": task, "lane": lane, "nonce": nonce}
    if links.children:
        body["children"] = list(links.children)
    if links.parents:
        body["parents"] = list(links.parents)
    if links.ran:
        body["ran"] = " ".join(links.ran)
    if links.shards:
        body["shards"] = links.shards
    if links.on:
        body["on"] = " ".join(links.on)
    if links.shard_definition:
        body["shard_definition"] = links.shard_definition
    if links.backfill_ids:
        body["backfill_ids"], body["backfill_definition"] = links.backfill_ids, links.backfill_definition
    if links.cancelled_to >= 0:
        body["cancelled_to"] = links.cancelled_to
    return dumps(body)


def decode_links(value: bytes) -> Links:
    """Raises BadRecord."""
    body = read_own("links", value, VERSION)
    ran = body.get("ran")
    return Links(
        tuple(body.get("children", ())),
        tuple(body.get("parents", ())),
        () if ran is None else tuple(ran.split(" ")),
        shards=body.get("shards", 0),
        shard_definition=body.get("shard_definition", ""),
        backfill_ids=body.get("backfill_ids", 0),
        backfill_definition=body.get("backfill_definition", ""),
        cancelled_to=body.get("cancelled_to", -1),
        on=tuple(body["on"].split(" ")) if "on" in body else (),
    )


def encode_join(task: str, join: Join, lane: str, nonce: str) -> bytes:
    """The value of a join record; its key is the task ID, U+001F, "join", U+001F and its number."""
    body: dict[str, Any] = {
        "v": VERSION,
        "task": task,
        "lane": lane,
        "nonce": nonce,
        "number": join.number,
        "cycle": join.cycle,
        "opened": format_ms(join.opened_ms),
        "done": [{"parent": item.parent, "ok": item.ok, **end_fields(item)} for item in join.done],
    }
    if join.path:
        body["path"] = list(join.path)
    if join.failed:
        body["failed"] = True
    return dumps(body)


def decode_join(value: bytes) -> Join:
    """Raises BadRecord."""
    body = read_own("join", value, VERSION)
    return Join(
        body["number"],
        body["cycle"],
        read_time(body["opened"], "opened"),
        tuple(_read_done(item) for item in body["done"]),
        tuple(body.get("path", ())),
        body.get("failed", False),
    )


def origin_fields(origin: Origin) -> dict[str, Any]:
    """Where a request comes from, as fields of its work."""
    fields: dict[str, Any] = {"cycle": origin.cycle}
    if origin.path:
        fields["path"] = list(origin.path)
    if origin.upstream is not None:
        fields["upstream"] = origin.upstream
    if origin.shard is not None:
        fields["shard"] = shard_to_json(origin.shard)
    return fields


def shard_to_json(shard: Shard) -> dict[str, Any]:
    """Which part of which request."""
    body: dict[str, Any] = {"of": shard.of, "number": shard.number, "shard": shard.shard, "shards": shard.shards}
    for name in _OF_BROADCAST:
        value = getattr(shard, name)
        if value:
            body[name] = value
    return body


def read_shard(body: dict[str, Any]) -> Shard | None:
    """From the fields of work or of a trigger; None where it is no shard's."""
    shard = body.get("shard")
    if shard is None:
        return None
    of_broadcast = {name: shard[name] for name in _OF_BROADCAST if name in shard}
    return Shard(shard["of"], shard["number"], shard["shard"], shard["shards"], **of_broadcast)


def read_origin(body: dict[str, Any]) -> Origin | None:
    """From the fields of work; None where it belongs to no cycle."""
    cycle = body.get("cycle")
    return None if cycle is None else Origin(cycle, tuple(body.get("path", ())), body.get("upstream"), read_shard(body))


def end_fields(end: Done | ShardEnd) -> dict[str, Any]:
    """How a request ended, besides whose it was."""
    fields: dict[str, Any] = {"outcome": end.outcome}
    if end.epoch:
        fields["epoch"] = end.epoch
    if end.result is not None:
        fields["result"] = end.result
    if end.result_dropped is not None:
        fields["result_dropped"] = end.result_dropped
    if end.size:
        fields["size"] = end.size
    return fields


def _read_done(body: dict[str, Any]) -> Done:
    return Done(
        body["parent"],
        body["outcome"],
        body["ok"],
        body.get("epoch", 0),
        body.get("result"),
        body.get("result_dropped"),
        body.get("size", 0),
    )

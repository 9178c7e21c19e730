"""A request whose shards have not all ended, in a record of its own."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from fencepost.codec import dumps
from fencepost.core.links import Fan, ShardEnd, Target
from fencepost.core.times import format_ms
from fencepost.wire.links import end_fields
from fencepost.wire.schema import read_own
from fencepost.wire.times import read_time
from fencepost.wire.work import read_work, work_fields

VERSION: Final = 1
FAN: Final = "fan"  # the kind in the record's key, see core.ids.side_key


def encode_fan(task: str, fan: Fan, lane: str, nonce: str) -> bytes:
    """The value of a fan record; its key is the task ID, U+001F, "fan", U+001F and the request's number."""
    body: dict[str, Any] = {
        "v": VERSION,
        "task": task,
        "lane": lane,
        "nonce": nonce,
        "shards": fan.shards,
        "opened": format_ms(fan.opened_ms),
        "work": work_fields(fan.work),
        "done": [{"shard": end.shard, **end_fields(end)} for end in fan.done],
    }
    if fan.failed:
        body["failed"] = True
    if fan.place is not None:
        body["place"] = fan.place
    if fan.targets:
        body["targets"] = [_target_to_json(target) for target in fan.targets]
    return dumps(body)


def decode_fan(value: bytes) -> Fan:
    """Raises BadRecord."""
    body = read_own("fan", value, VERSION)
    work = read_work(body["work"], "own_record", "work.")
    done = tuple([_read_end(end) for end in body["done"]])
    targets = tuple([Target(**target) for target in body.get("targets", ())])
    opened_ms = read_time(body["opened"], "opened")
    return Fan(work.seq, body["shards"], opened_ms, work, done, body.get("failed", False), body.get("place"), targets)


def _target_to_json(target: Target) -> dict[str, Any]:
    """Its fields, without those at their default."""
    return {item.name: value for item in fields(Target) if (value := getattr(target, item.name)) != item.default}


def _read_end(body: dict[str, Any]) -> ShardEnd:
    return ShardEnd(
        body["shard"],
        body["outcome"],
        body.get("epoch", 0),
        body.get("result"),
        body.get("result_dropped"),
        body.get("size", 0),
    )

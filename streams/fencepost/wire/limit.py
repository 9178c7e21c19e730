"""Limits in definitions, permits in the state of tasks, and who holds and waits under a limit's key."""

from __future__ import annotations

from typing import Any, Final

from fencepost.codec import BadRecord, dumps
from fencepost.core.ids import check_task_id
from fencepost.core.limits import PREFIX, Claim, Limit, Permit, group_id, interval_ms
from fencepost.core.room import escapes
from fencepost.core.times import format_ms
from fencepost.wire.schema import read_own
from fencepost.wire.times import read_time

VERSION: Final = 1
CLAIM: Final = "claim"  # the kinds in the records' keys, see core.ids.side_key
GROUP: Final = "group"
KEY_BYTES: Final = 240


def read_limit(body: dict[str, Any]) -> Limit:
    """From its JSON, checked against the schema before. Raises BadRecord."""
    limit = limit_of(body)
    try:
        check_task_id(group_id(limit.key))  # an ID that nobody can own would never be granted anything
    except ValueError as error:
        raise BadRecord(f"cannot be part of an ID, {PREFIX}KEY: {error}", "limit.key") from error
    size = len(limit.key.encode()) + escapes(limit.key)
    if size > KEY_BYTES:  # it stands in the state of each task that is limited by it
        raise BadRecord(f"has {size} bytes as JSON; allowed: at most {KEY_BYTES}", "limit.key")
    if limit.max_runs is None and limit.rate is None:
        raise BadRecord("limits nothing; give max_runs, rate or both", "limit")
    if limit.rate is None and "burst" in body:
        raise BadRecord("is for a rate", "limit.burst")
    if limit.rate is not None:
        try:
            interval_ms(limit.rate)
        except ValueError as error:
            raise BadRecord(str(error), "limit.rate") from error
    return limit


def limit_of(body: dict[str, Any]) -> Limit:
    """From JSON of our own."""
    return Limit(body["key"], body.get("max_runs"), body.get("rate"), int(body.get("burst", 1)))


def limit_to_json(limit: Limit) -> dict[str, Any]:
    """The JSON object; what is at its default is left out."""
    body: dict[str, Any] = {"key": limit.key}
    if limit.max_runs is not None:
        body["max_runs"] = limit.max_runs
    if limit.rate is not None:
        body["rate"] = limit.rate
    if limit.burst != 1:
        body["burst"] = limit.burst
    return body


def permit_to_json(permit: Permit) -> dict[str, Any]:
    body: dict[str, Any] = {"ticket": permit.ticket, "limit": limit_to_json(permit.limit)}
    if permit.granted:
        body["granted"] = True
    if permit.epoch:
        body["epoch"] = permit.epoch
    return body


def read_permit(body: dict[str, Any]) -> Permit:
    return Permit(body["ticket"], limit_of(body["limit"]), body.get("granted", False), body.get("epoch", 0))


def encode_claim(task: str, claim: Claim, lane: str, nonce: str) -> bytes:
    """The value of a claim record; its key is the ID of the limit's key, U+001F, "claim", U+001F and its number."""
    body: dict[str, Any] = {
        "v": VERSION,
        "task": task,
        "lane": lane,
        "nonce": nonce,
        "number": claim.number,
        "for": claim.task,
        "ticket": claim.ticket,
        "limit": limit_to_json(claim.limit),
        "asked": format_ms(claim.asked_ms),
    }
    if claim.granted:
        body["granted"] = True
    return dumps(body)


def decode_claim(value: bytes) -> Claim:
    """Raises BadRecord."""
    body = read_own("claim", value, VERSION)
    return Claim(
        body["number"],
        body["for"],
        body["ticket"],
        limit_of(body["limit"]),
        read_time(body["asked"], "asked"),
        body.get("granted", False),
    )


def encode_group(task: str, next_ms: float, lane: str, nonce: str) -> bytes:
    """The value of a group record; its key is the ID of the limit's key, U+001F, "group", U+001F and 0."""
    return dumps({"v": VERSION, "task": task, "lane": lane, "nonce": nonce, "next_ms": next_ms})


def decode_group(value: bytes) -> float:
    """When the next start is due by the rate. Raises BadRecord."""
    return float(read_own("group", value, VERSION)["next_ms"])

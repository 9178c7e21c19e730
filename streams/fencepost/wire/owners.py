"""The records of the owners topic: per partition its fence, per lane its lease; and the stamp of an offset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fencepost.codec import BadRecord, dumps, loads
from fencepost.core.lease import OffsetStamp, Renewal, SentRenewal
from fencepost.core.ownership import FenceRecord, Holder

VERSION = 1


def encode_fence(record: FenceRecord) -> bytes:
    """The fence record of a partition. Key: the partition's number."""
    body: dict[str, Any] = {
        "v": VERSION,
        "partition": record.partition,
        "worker": record.worker,
        "lane": record.lane,
        "nonce": record.nonce,
        "ring": record.ring,
        "released": record.released,
    }
    if record.open:
        body["open"] = [{"lane": holder.lane, "ring": holder.ring} for holder in record.open]
    if record.ended:
        body["ended"] = record.ended
    return dumps(body)


def decode_fence(value: bytes) -> FenceRecord:
    """Raises BadRecord where a field is missing or the version is not known."""
    body = _body(value)
    try:
        return FenceRecord(
            partition=int(body["partition"]),
            worker=str(body.get("worker", "")),
            lane=str(body["lane"]),
            nonce=str(body["nonce"]),
            ring=tuple(body["ring"]),
            open=tuple(Holder(h["lane"], tuple(h["ring"])) for h in body.get("open", ())),
            ended=tuple(body.get("ended", ())),
            released=bool(body["released"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadRecord(f"not a fence record: {error!r}", "owners") from error


def encode_renewal(lane: str, worker: str, ttl_s: float, sent: SentRenewal) -> bytes:
    """The lease record of a lane. Key: the lane ID."""
    return dumps(
        {
            "v": VERSION,
            "lane": lane,
            "worker": worker,
            "number": sent.number,
            "ttl_s": ttl_s,
            "held": {str(partition): nonce for partition, nonce in sent.held},
        }
    )


def decode_renewal(value: bytes) -> Renewal:
    """Raises BadRecord where a field is missing or the version is not known."""
    body = _body(value)
    try:
        held: Iterable[tuple[str, str]] = body["held"].items()
        return Renewal(body["lane"], int(body["number"]), tuple((int(p), nonce) for p, nonce in held))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadRecord(f"not a lease record: {error!r}", "owners") from error


def encode_stamp(stamp: OffsetStamp) -> str:
    """The metadata string of an offset."""
    body: dict[str, Any] = {"l": stamp.lane, "n": stamp.nonce}
    if stamp.renewed_by is not None:
        body["h"] = stamp.renewed_by
        body["r"] = stamp.renewal
    return dumps(body).decode()


def decode_stamp(metadata: str | None) -> OffsetStamp | None:
    """None where the offset was not committed by a lane (reset by an administrator): then the full wait counts."""
    if not metadata:
        return None
    try:
        body = loads(metadata.encode())
        return OffsetStamp(body["l"], body["n"], body.get("h"), int(body.get("r", 0)))
    except (BadRecord, AttributeError, KeyError, TypeError, ValueError):
        return None


def _body(value: bytes) -> dict[str, Any]:
    body = loads(value)
    if not isinstance(body, dict):
        raise BadRecord("not a JSON object", "owners")
    if body.get("v") != VERSION:
        raise BadRecord(f"unknown version {body.get('v')!r}, known: {VERSION}", "v")
    return body

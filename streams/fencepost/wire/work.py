"""Work that waits, or is too large for the state record, in a record of its own; and checkpoints."""

from __future__ import annotations

from typing import Any, Final

from fencepost.codec import BadRecord, NotEncodable, dumps
from fencepost.core.batches import numbers_of, numbers_text
from fencepost.core.evolve import builder
from fencepost.core.task import Attempt, Outcome, Work
from fencepost.core.times import format_ms
from fencepost.wire.edge import CHECKPOINT_BYTES, require_size
from fencepost.wire.links import origin_fields, read_origin
from fencepost.wire.schema import read_own
from fencepost.wire.times import read_time

VERSION: Final = 1
WORK: Final = "work"  # the kind in the record's key, see core.ids.side_key
CHECKPOINT: Final = "checkpoint"
_new_work = builder(Work)


def encode_work(task: str, work: Work, lane: str, nonce: str) -> bytes:
    """The value of a work record; its key is the task ID, U+001F, "work", U+001F and `seq`."""
    body = {"v": VERSION, "task": task, "lane": lane, "nonce": nonce, **work_fields(work)}
    if work.own_record:
        body["own_record"] = True
    return dumps(body)


def decode_work(value: bytes) -> Work:
    """Raises BadRecord."""
    return read_work(read_own("work", value, VERSION), "own_record", "")


def check_checkpoint(data: Any) -> None:
    """Whether a run may save this: raises BadRecord where it is too large or not JSON. Asked before it is an event."""
    try:
        require_size(data, CHECKPOINT_BYTES, "checkpoint")
    except NotEncodable as error:
        raise BadRecord(str(error), "checkpoint") from error


def encode_checkpoint(task: str, data: Any, lane: str, nonce: str, epoch: int | None = None) -> bytes:
    """The value of a checkpoint; its key is the task ID, U+001F, "checkpoint", U+001F and 0. Raises NotEncodable."""
    body = {"v": VERSION, "task": task, "lane": lane, "nonce": nonce, "data": data}
    if epoch is not None:
        body["epoch"] = epoch
    return dumps(body)


def decode_checkpoint(value: bytes) -> Any:
    """The data. Raises BadRecord."""
    return read_own("checkpoint", value, VERSION)["data"]


def work_fields(work: Work) -> dict[str, Any]:
    """Work as JSON, without what is at its default."""
    fields: dict[str, Any] = {"seq": work.seq}
    if work.trigger_id is not None:
        fields["trigger"] = work.trigger_id
    if work.slot_ms is not None:
        fields["slot"] = format_ms(work.slot_ms)
    if work.due_ms:
        fields["due"] = format_ms(work.due_ms)
    if work.arrived_ms:
        fields["arrived"] = format_ms(work.arrived_ms)
    if work.payload is not None:
        fields["payload"] = work.payload
    if work.headers is not None:
        fields["headers"] = work.headers
    if work.priority != 5:
        fields["priority"] = work.priority
    if work.offset >= 0:
        fields["offset"] = work.offset
    if work.attempt:
        fields["attempt"] = work.attempt
    if work.losses:
        fields["losses"] = work.losses
    if work.resumed:
        fields["resumed"] = True
    if work.replays:
        fields["replays"] = work.replays
    if work.began_ms:
        fields["began"] = format_ms(work.began_ms)
    if work.members:
        fields["batch"] = numbers_text(member.seq for member in work.members)
    if work.asked_by is not None:
        fields["asked_by"] = work.asked_by
    if work.past:
        fields["past"] = [_attempt_text(attempt) for attempt in work.past]
    if work.origin is not None:
        fields.update(origin_fields(work.origin))
    return fields


def read_work(body: dict[str, Any], own_record: str, prefix: str) -> Work:
    """Work from its JSON, checked against the schema before. `own_record`: the name of that mark here."""
    slot, due, arrived = body.get("slot"), body.get("due"), body.get("arrived")
    return _new_work(
        body["seq"],
        body.get("trigger"),
        None if slot is None else read_time(slot, f"{prefix}slot"),
        0 if due is None else read_time(due, f"{prefix}due"),
        0 if arrived is None else read_time(arrived, f"{prefix}arrived"),
        body.get("payload"),
        body.get("headers"),
        body.get("priority", 5),
        body.get("offset", -1),
        body.get("attempt", 0),
        body.get("losses", 0),
        body.get("resumed", False),
        body.get(own_record, False),
        body.get("replays", 0),
        0 if (began := body.get("began")) is None else read_time(began, f"{prefix}began"),
        tuple([_read_attempt(text, f"{prefix}past") for text in body["past"]]) if "past" in body else (),
        read_origin(body) if "cycle" in body else None,
        tuple([_new_work(seq) for seq in numbers_of(body["batch"])]) if "batch" in body else (),
        body.get("asked_by"),
    )


def _attempt_text(attempt: Attempt) -> str:
    """Short, as several stand in a state record: epoch, when it ended, how, and its cause."""
    text = f"{attempt.epoch} {format_ms(attempt.ended_ms)} {attempt.outcome.value}"
    return text if attempt.cause is None else f"{text} {attempt.cause}"


def _read_attempt(text: str, field: str) -> Attempt:
    epoch, ended, outcome, *cause = text.split(" ")
    return Attempt(int(epoch), Outcome(outcome), cause[0] if cause else None, read_time(ended, field))

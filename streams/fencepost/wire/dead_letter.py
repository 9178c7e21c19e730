"""Dead letters: what could not be handled, as it was received."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, Final

from fencepost.codec import BadRecord, dumps, loads_own
from fencepost.core.commands import GiveUp
from fencepost.core.making import bounded
from fencepost.core.task import Attempt, Outcome
from fencepost.core.times import format_ms
from fencepost.wire.schema import check
from fencepost.wire.times import read_time
from fencepost.wire.trigger import REPLAYS_HEADER, Headers, encode_again, replays_of

__all__ = ["REPLAYS_HEADER", "DeadLetter", "decode_dead_letter", "encode_dead_letter", "given_up", "refused"]

VERSION: Final = 1
_REASON_CHARS: Final = 1000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`key`, `value` and `headers` are the original bytes, topic, partition and offset the place they came from."""

    reason: str
    topic: str
    partition: int
    offset: int  # -1: it was no record (a slot)
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    at_ms: int = 0
    field: str | None = None
    task: str | None = None
    epoch: int | None = None
    replays: int = 0
    attempts: tuple[Attempt, ...] = ()  # of work that was given up: its last runs
    error: str | None = None  # of the last one


def refused(
    error: BadRecord,
    topic: str,
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers | None,
    at_ms: int,
) -> DeadLetter:
    """The dead letter of a record that could not be read."""
    kept = tuple(headers or ())
    return DeadLetter(
        error.reason, topic, partition, offset, key, value, kept, at_ms, error.field, replays=replays_of(kept)
    )


def given_up(task: str, command: GiveUp, epoch: int, topic: str, partition: int, at_ms: int) -> DeadLetter:
    """The dead letter of work whose attempts or losses are used up: the trigger that would ask for it again.

    It counts on from the replays of the trigger that it came from, so that a replay of a replay says so.
    """
    work = command.work
    return DeadLetter(
        command.reason,
        topic,
        partition,
        work.offset,
        task.encode(),
        encode_again(work),
        (),
        at_ms,
        None,
        task,
        epoch,
        work.replays,
        command.attempts,
        command.error,
    )


def encode_dead_letter(letter: DeadLetter, lane: str, nonce: str) -> bytes:
    """The value of a dead letter; its key is `letter.key`.

    Bytes stand as text where they are UTF-8 and that is shorter than base64. The record is up to half again as large as
    the original, so the topic must allow larger records than the others.
    """
    body: dict[str, Any] = {
        "v": VERSION,
        "lane": lane,
        "nonce": nonce,
        "at": format_ms(letter.at_ms),
        "reason": letter.reason[:_REASON_CHARS],
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "key": _shown(letter.key),
        "value": _shown(letter.value),
        "headers": [[_name(name), _shown(raw)] for name, raw in letter.headers],
        "replays": letter.replays,
    }
    for name in ("field", "task", "epoch"):
        if getattr(letter, name) is not None:
            body[name] = getattr(letter, name)
    if letter.attempts:
        body["attempts"] = [attempt_fields(attempt) for attempt in letter.attempts]
    if letter.error is not None:
        body["error"] = bounded(letter.error)
    return dumps(body)


def decode_dead_letter(value: bytes) -> DeadLetter:
    """Raises BadRecord."""
    body = loads_own(value)
    if type(body) is not dict:
        raise BadRecord("a dead letter is a JSON object")
    check("dead_letter", body)
    return DeadLetter(
        body["reason"],
        body["topic"],
        body["partition"],
        body["offset"],
        _read(body["key"]),
        _read(body["value"]),
        tuple((name, _read(raw)) for name, raw in body["headers"]),
        read_time(body["at"], "at"),
        body.get("field"),
        body.get("task"),
        body.get("epoch"),
        body["replays"],
        tuple([_read_attempt(attempt) for attempt in body.get("attempts", ())]),
        body.get("error"),
    )


def attempt_fields(attempt: Attempt) -> dict[str, Any]:
    """An attempt as JSON."""
    fields: dict[str, Any] = {
        "epoch": attempt.epoch,
        "outcome": attempt.outcome.value,
        "ended": format_ms(attempt.ended_ms),
    }
    if attempt.cause is not None:
        fields["cause"] = attempt.cause
    return fields


def _read_attempt(body: dict[str, Any]) -> Attempt:
    return Attempt(
        body["epoch"], Outcome(body["outcome"]), body.get("cause"), read_time(body["ended"], "attempts.ended")
    )


def _shown(raw: bytes | None) -> dict[str, str] | None:
    if raw is None:
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(raw).decode()}
    # Quotes and control characters grow when they are written into a JSON string.
    if len(dumps(text)) > len(raw) * 3 // 2 + 16:
        return {"base64": b64encode(raw).decode()}
    return {"text": text}


def _name(name: str) -> str:
    """Header names come from the client as text, perhaps with lone surrogates for bytes that are not UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()


def _read(body: dict[str, str] | None) -> bytes | None:
    if body is None:
        return None
    if "text" in body:
        return body["text"].encode()
    try:
        return b64decode(body["base64"], validate=True)
    except ValueError as error:
        raise BadRecord(f"not base64: {error}", "base64") from error

"""A dead letter as the record that sends it again.

It goes where it came from, as it was, with two headers: where the dead letter lies, and how often it was replayed. A
trigger's ID was remembered when it was first taken, so the copy gets one of its own, or it would count as a duplicate.
"""

from __future__ import annotations

from fencepost.codec import BadRecord, dumps, loads
from fencepost.core.ids import partition_of
from fencepost.kafka.producer import Outgoing
from fencepost.kafka.topics import Topics
from fencepost.wire.dead_letter import REPLAYS_HEADER, DeadLetter

ORIGIN_HEADER = "fencepost_origin"
_ID_BYTES = 255


def replay_of(letter: DeadLetter, place: str, topics: Topics, partitions: int) -> Outgoing:
    """Raises ValueError if the letter came from a topic that replays may not be sent to, or had no value."""
    allowed = (topics.triggers, topics.control, topics.tasks)
    if letter.topic not in allowed:
        raise ValueError(f"it came from {letter.topic}; allowed: {', '.join(allowed)}")
    if letter.value is None:
        # A tombstone would delete a definition, and is refused everywhere else: nothing is won by sending it again.
        raise ValueError("it is a tombstone")
    suffix = f"~{letter.replays + 1}"
    headers: dict[str, bytes | None] = {
        name: value for name, value in letter.headers if name not in (REPLAYS_HEADER, ORIGIN_HEADER)
    }
    value = letter.value
    if letter.topic == topics.triggers:
        value = _with_new_id(value, suffix)
        event_id = headers.get("ce_id")
        if event_id is not None:
            headers["ce_id"] = event_id[: _ID_BYTES - len(suffix)] + suffix.encode()
    headers[ORIGIN_HEADER] = f"{topics.dead_letter}/{place.replace(':', '/')}".encode()
    headers[REPLAYS_HEADER] = str(letter.replays + 1).encode()
    at = letter.partition if letter.key is None else partition_of(letter.key, partitions)
    return Outgoing(letter.topic, letter.key, value, headers, at)


def _with_new_id(value: bytes, suffix: str) -> bytes:
    """The body with `id` marked as a replay; a body that cannot be read goes as it is."""
    try:
        body = loads(value)
    except BadRecord:
        return value
    if not isinstance(body, dict) or not isinstance(body.get("id"), str):
        return value
    kept = body["id"].encode("utf-8", "replace")[: _ID_BYTES - len(suffix)].decode("utf-8", "ignore")
    return dumps({**body, "id": kept + suffix})

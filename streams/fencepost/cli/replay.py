"""A dead letter as the record that sends it again.

It goes where it came from, as it was, with two headers: where the dead letter lies, and how often it was replayed. A
trigger's ID was remembered when it was first taken, so the copy gets one of its own, or it would count as a duplicate.
One of a rule does not go back: the topic is somebody's, whose other readers would see it twice. Its rule is applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fencepost.codec import BadRecord, dumps, loads
from fencepost.core.ids import partition_of
from fencepost.kafka.producer import Outgoing
from fencepost.kafka.topics import Topics
from fencepost.views.firing import MOST_LETTER_BYTES, Batch, Firing
from fencepost.views.record import SourceRecord
from fencepost.views.rule import Rule
from fencepost.wire.dead_letter import REPLAYS_HEADER, DeadLetter

_OF_A_RULE = re.compile(r"rule ([A-Za-z0-9._-]{1,100}): ")
ORIGIN_HEADER = "fencepost_origin"
_ID_BYTES = 255


def replay_of(letter: DeadLetter, place: str, topics: Topics, partitions: int) -> Outgoing:
    """Raises ValueError if the letter came from a topic that replays may not be sent to, or had no value."""
    allowed = (topics.triggers, topics.control, topics.tasks)
    if letter.topic not in allowed:
        name = rule_of(letter, topics)
        if name is not None:
            raise ValueError(
                f"rule {name} could not use a record of {letter.topic}, which others read as well: it is not sent there"
                " again; give the rule as it is now, with --rules FILE or --app, and what it triggers is sent"
            )
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


def rule_of(letter: DeadLetter, topics: Topics) -> str | None:
    """The name of the rule that could not use the record; None: it is no letter of a rule."""
    match = _OF_A_RULE.match(letter.reason)
    ours = (topics.triggers, topics.control, topics.tasks)
    return None if match is None or letter.topic in ours else match[1]


def triggers_of(
    letter: DeadLetter, name: str, rules: Iterable[Rule], topics: Topics, partitions: int
) -> list[Outgoing]:
    """What the rule triggers of the record now. The IDs are those of the first time: each triggers once, however often.

    Raises ValueError: there is no such rule, it still cannot use the record, or the record is not kept whole.
    """
    rule = next((each for each in rules if each.name == name and each.topic == letter.topic), None)
    if rule is None:
        raise ValueError(f"no rule {name} on {letter.topic} is among those given")
    if letter.value is not None and len(letter.value) >= MOST_LETTER_BYTES:
        raise ValueError("the record was too large to be kept whole; produce it anew")
    record = SourceRecord(
        letter.topic, letter.partition, letter.offset, letter.key, letter.value, letter.headers, letter.at_ms
    )
    firing = Firing([rule], topics, partitions, f"/fencepost/{topics.namespace}/rules")
    fired = firing.fire(record)
    if fired.bad:
        raise ValueError(f"rule {name} still cannot use it: {fired.bad[0][1]}")
    return firing.outgoing(Batch([fired]))


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

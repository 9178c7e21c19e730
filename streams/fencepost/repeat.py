"""What a past run was given: looked up in the history, and in the log of triggers as long as that keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fencepost.codec import BadRecord
from fencepost.core.events import Trigger
from fencepost.core.times import parse_rfc3339
from fencepost.wire.history import HistoryRecord
from fencepost.wire.trigger import read_trigger

if TYPE_CHECKING:
    from fencepost.client import Client
    from fencepost.kafka.scan import Record

_MOST_STEPS: Final = 100  # a rerun of a rerun of a rerun …


class NotKept(Exception):
    """The run, or what it was given, is no longer in Kafka. The message says which, and what can be done."""


@dataclass(frozen=True, slots=True)
class PastRequest:
    """A run of the past and what it was given. payload None: the definition's."""

    epoch: int
    slot_ms: int | None
    payload: Any
    headers: dict[str, str] | None = None
    priority: int | None = None


def past_request(client: Client, task: str, epoch: int | None, *, with_payload: bool = True) -> PastRequest:
    """The run `epoch` of the task, or its last one. Raises NotKept, BadRecord, KafkaProblem.

    with_payload False: somebody gives another payload, so that of the run need not be kept.
    """
    starts = {event.epoch: event for event in client.history(task) if event.kind == "started"}
    if not starts:
        raise NotKept(f"history tells of no run of {task}; it is kept for 30 days by default")
    wanted = max(number for number in starts if number is not None) if epoch is None else epoch
    if wanted not in starts:
        raise NotKept(f"history does not tell of epoch {wanted} of {task}; it tells of {_range(starts)}")
    slot = starts[wanted].fields.get("slot")
    slot_ms = None if slot is None else parse_rfc3339(slot)
    first = _first(starts, wanted)
    if not with_payload or first.fields.get("slot") is not None:
        return PastRequest(wanted, slot_ms, None)
    return _from_trigger(client, task, wanted, slot_ms, first)


def _first(starts: dict[int | None, HistoryRecord], epoch: int) -> HistoryRecord:
    """The run that the others repeat, attempts and reruns alike, as far as history goes back."""
    event = starts[epoch]
    for _ in range(_MOST_STEPS):
        asked_by = event.fields.get("asked_by")
        word, _, number = asked_by.rpartition(" ") if isinstance(asked_by, str) else ("", "", "")
        if word != "rerun of epoch" or int(number) not in starts:
            return event
        event = starts[int(number)]
    return event


def _from_trigger(client: Client, task: str, epoch: int, slot_ms: int | None, event: HistoryRecord) -> PastRequest:
    topic, number = client.topics.triggers, client.partition_of(task)
    offset = event.fields.get("offset")
    if offset is None:
        raise NotKept(_hint(f"what epoch {epoch} of {task} was given is in no record any more"))
    record = client.record_at(topic, number, offset)
    trigger = None if record is None else _read(record)
    if trigger is not None and (trigger.task, trigger.id) == (task, event.fields.get("trigger")):
        return PastRequest(epoch, slot_ms, trigger.payload, trigger.headers, trigger.priority)
    raise NotKept(_hint(f"the trigger of epoch {epoch} of {task}, {topic}/{number}/{offset}, is no longer kept"))


def _read(record: Record) -> Trigger | None:
    try:
        return read_trigger(record.key, record.value, record.headers, record.offset, 0)
    except BadRecord:
        return None


def _hint(text: str) -> str:
    return f"{text}; give a payload to run it again with that"


def _range(starts: dict[int | None, HistoryRecord]) -> str:
    numbers = sorted(number for number in starts if number is not None)
    return f"epoch {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} from {numbers[0]} to {numbers[-1]}"


def succeeded_slots(client: Client, task: str, since_ms: int, until_ms: int) -> list[int]:
    """The task's slots in the range that have succeeded, as far as history goes back."""
    found: set[int] = set()
    for event in client.history(task):
        if "succeeded" not in (event.kind, event.fields.get("outcome")):  # the second: by shards, or side by side
            continue
        for request in (event.fields, *event.fields.get("batch", ())):
            if (slot := request.get("slot")) is not None and since_ms <= (slot_ms := parse_rfc3339(slot)) <= until_ms:
                found.add(slot_ms)
    return sorted(found)

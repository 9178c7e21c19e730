"""What a task brings along into a pool, as part of the definition that the pool is given."""

from __future__ import annotations

from typing import Any

from fencepost.core.place import Arrival, Luggage
from fencepost.core.times import format_ms
from fencepost.wire.times import read_time


def arrival_to_json(arrival: Arrival) -> dict[str, Any]:
    """The JSON object; what is at its default is left out."""
    luggage = arrival.luggage
    body: dict[str, Any] = {"number": luggage.number, "epoch": luggage.epoch}
    if luggage.last_slot_ms >= 0:
        body["last_slot"] = format_ms(luggage.last_slot_ms)
    if luggage.not_before_ms:
        body["not_before"] = format_ms(luggage.not_before_ms)
    if luggage.paused:
        body["paused"] = True
    if luggage.pause_reason is not None:
        body["pause_reason"] = luggage.pause_reason
    if luggage.schedule is not None:
        body["schedule"] = luggage.schedule
    if luggage.recent:
        body["recent"] = list(luggage.recent)
    if luggage.cancelled_to >= 0:
        body["cancelled_to"] = luggage.cancelled_to
    if luggage.next_seq > 1:
        body["next_seq"] = luggage.next_seq
    if luggage.defined_paused:
        body["defined_paused"] = True
    if arrival.recall:
        body["recall"] = True
    return body


def read_arrival(body: dict[str, Any]) -> Arrival:
    """From its JSON, checked against the schema before. Raises BadRecord."""
    last_slot, not_before = body.get("last_slot"), body.get("not_before")
    luggage = Luggage(
        int(body["number"]),
        int(body["epoch"]),
        -1 if last_slot is None else read_time(last_slot, "arrival.last_slot"),
        0 if not_before is None else read_time(not_before, "arrival.not_before"),
        body.get("paused", False),
        body.get("pause_reason"),
        body.get("schedule"),
        tuple(body.get("recent", ())),
        int(body.get("cancelled_to", -1)),
        int(body.get("next_seq", 1)),
        body.get("defined_paused", False),
    )
    return Arrival(luggage, body.get("recall", False))

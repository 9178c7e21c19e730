"""Triggers as anybody may produce them: the cases of kind 4 (bad input), at the level of the record."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.codec import BadRecord, NotEncodable, dumps
from fencepost.core.events import Defined, Started, Trigger, Triggered, Woken
from fencepost.core.machine import new_task, startable, step
from fencepost.core.task import Definition, PythonHandler
from fencepost.core.times import parse_rfc3339
from fencepost.wire.edge import PAYLOAD_BYTES
from fencepost.wire.state import decode_state, encode_state
from fencepost.wire.trigger import encode_trigger, read_trigger
from fencepost.wire.work import decode_work, encode_work

ARRIVED = 1_700_000_000_000
KEY = b"report"


def read(value: bytes | dict[str, Any] | None, key: bytes | None = KEY, headers: Any = None) -> Trigger:
    raw = json.dumps(value).encode() if isinstance(value, dict) else value
    return read_trigger(key, raw, headers, 7, ARRIVED)


def refusal(value: bytes | dict[str, Any] | None, key: bytes | None = KEY, headers: Any = None) -> BadRecord:
    with pytest.raises(BadRecord) as raised:
        read(value, key, headers)
    assert raised.value.reason
    return raised.value


# -- what is taken --------------------------------------------------------------------------------------------------


def test_a_plain_producer_needs_a_key_and_a_payload_only() -> None:
    trigger = read(b'{"payload": {"n": 1}}')
    assert trigger == Trigger("report", payload={"n": 1}, offset=7, arrived_ms=ARRIVED, size=19)


def test_every_field_is_read() -> None:
    body = {
        "v": 1,
        "task": "report",
        "id": "order-7",
        "payload": [1],
        "run_at": "2026-03-08T03:00:00-04:00",
        "priority": 0,
        "headers": {"traceparent": "00-1"},
    }
    trigger = read(body)
    assert (trigger.task, trigger.id, trigger.payload, trigger.priority) == ("report", "order-7", [1], 0)
    assert trigger.headers == {"traceparent": "00-1"}
    assert trigger.run_at_ms == parse_rfc3339("2026-03-08T07:00:00Z")


@pytest.mark.parametrize("value", [b"{}", b"null", b"", b" null\n", b" { } "])
def test_an_empty_form_of_a_ui_is_a_trigger_without_payload(value: bytes) -> None:
    trigger = read(value)
    assert (trigger.task, trigger.payload, trigger.id) == ("report", None, None)


@pytest.mark.parametrize(("delay", "ms"), [("10s", 10_000), (10, 10_000), (0.5, 500), ("1h30m", 5_400_000), (0, 0)])
def test_a_delay_counts_from_the_arrival(delay: object, ms: int) -> None:
    trigger = read({"delay": delay})
    assert (trigger.run_at_ms, trigger.delay_ms, trigger.arrived_ms) == (None, ms, ARRIVED)


def test_priority_may_be_written_as_a_float() -> None:
    priority = read(b'{"priority": 3.0}').priority
    assert (priority, type(priority)) == (3, int)


def test_the_header_ce_id_is_the_id() -> None:
    headers = [("ce_specversion", b"1.0"), ("ce_id", b"abc"), ("content-type", b"application/json")]
    assert read({}, headers=headers).id == "abc"
    assert read({"id": "abc"}, headers=headers).id == "abc"


@pytest.mark.parametrize("task_id", ["__proto__", "../../x", "задача-1", "a b", "😀"])
def test_i05_odd_ids_are_ids_like_others(task_id: str) -> None:
    assert read({}, key=task_id.encode()).task == task_id
    assert read({"task": task_id}, key=None).task == task_id


# -- I01: not UTF-8 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "headers", "field"),
    [
        (b"\x83\xff", b"{}", None, "key"),
        (KEY, b"\xc3\x28", None, None),
        (KEY, b"{}", [("h", b"\xc3\x28")], "header h"),
        (KEY, b"{}", [("h\u00e9", b"x")], "header 'h\u00e9'"),
        (KEY, b"{}", [("h", None)], "header h"),
        (KEY, b"{}", [("ce_id", b"\xff")], "header ce_id"),
    ],
)
def test_i01_bytes_that_are_not_utf8_are_refused(key: bytes, value: bytes, headers: Any, field: str | None) -> None:
    assert refusal(value, key, headers).field == field


# -- I03: tombstones ------------------------------------------------------------------------------------------------


def test_i03_a_tombstone_is_no_trigger() -> None:
    error = refusal(None)
    assert error.field == "value"
    assert "tombstone" in error.reason


# -- I05: JSON that parses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        b'{"payload":{"a":1e309}}',
        b'{"payload":NaN}',
        b'{"payload":' + b"9" * 5000 + b"}",
        b'{"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"id":"a","id":"b"}',
        rb'{"id":"\ud800"}',
    ],
    ids=lambda value: repr(value[:24]),
)
def test_i05_such_a_record_is_refused(value: bytes) -> None:
    refusal(value)


@pytest.mark.parametrize(
    "task_id", ["a\0b", "a\nb", "a\x1fwork\x1f1", "x" * 256, "x" * 300_000, "\ud800"], ids=lambda item: repr(item[:9])
)
def test_i05_what_is_no_id_is_refused_as_key_and_in_the_body(task_id: str) -> None:
    if task_id != "\ud800":
        assert refusal({}, key=task_id.encode()).field == "key"
        assert refusal({"task": task_id}, key=None).field == "task"
    else:
        refusal(rb'{"task":"\ud800"}', key=None)


# -- I07, I09: keys -------------------------------------------------------------------------------------------------


def test_i07_a_null_key_needs_the_task_in_the_body() -> None:
    assert read({"task": "report"}, key=None).task == "report"
    for value in (b"{}", b"null", b"", b'{"payload":1}'):
        error = refusal(value, key=None)
        assert error.field == "task"
        assert "no key" in error.reason


@pytest.mark.parametrize("key", [b"other", b"7f3c2e51-random", b"REPORT"])
def test_i07_a_key_that_differs_from_the_body_is_refused(key: bytes) -> None:
    error = refusal({"task": "report"}, key=key)
    assert error.field == "task"
    assert repr(key.decode()) in error.reason
    assert "'report'" in error.reason


def test_i09_an_empty_key_is_refused_whatever_the_body_says() -> None:
    assert refusal({}, key=b"").field == "key"
    assert refusal({"task": "report"}, key=b"").field == "key"
    assert refusal({"task": ""}, key=None).field == "task"


# -- I11: time stamps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stamp_ms", [0, 1, ARRIVED * 1000, ARRIVED // 1000, -1, 253_402_300_799_999])
@pytest.mark.parametrize(("value", "delay_ms"), [(b"{}", 0), (b'{"delay": "1m"}', 60_000)])
def test_i11_no_time_stamp_puts_a_run_off_or_spoils_a_record(stamp_ms: int, value: bytes, delay_ms: int) -> None:
    task, _ = step(new_task("report"), Defined(Definition("report", PythonHandler("report"))), ARRIVED)
    task, _ = step(task, Triggered(read_trigger(KEY, value, None, 0, stamp_ms)), ARRIVED)
    for work in (*task.waiting, *task.delayed):
        assert decode_work(encode_work("report", work, "lane", "nonce")) == work
    task, _ = step(task, Woken(), ARRIVED + delay_ms)
    assert startable(task, ARRIVED + delay_ms)
    task, _ = step(task, Started("lane", "nonce", 15.0), ARRIVED + delay_ms)
    assert decode_state(encode_state(task.state, "lane", "nonce")) == task.state
    assert not task.waiting
    assert not task.delayed


# -- I13: versions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [99, 0, "1", None, True])
def test_i13_an_unknown_version_is_refused(version: object) -> None:
    error = refusal({"v": version})
    assert error.field == "v"
    assert "version" in error.reason


# -- fields ---------------------------------------------------------------------------------------------------------


def of_shard(task: str, **more: Any) -> dict[str, Any]:
    return {"cycle": "c", "shard": {"of": task, "number": 1, "shard": 0, "shards": 0, **more}}


@pytest.mark.parametrize(
    ("more", "field", "says"),
    [
        ({"slot": "2026-03-08T03:00:00Z"}, "shard.slot", "go together"),
        ({"asked_by": "backfill june"}, "shard.slot", "go together"),
        ({"slot": "2026-03-08T03:00:00Z", "asked_by": "catch up"}, "shard.asked_by", "allowed: backfill, a space"),
    ],
    ids=["slot alone", "name alone", "no backfill"],
)
def test_a_slot_of_a_backfill_that_no_owner_can_have_written_is_refused(
    more: dict[str, Any], field: str, says: str
) -> None:
    """As one of the schedule it would count among the slots of the ID."""
    value = dumps(of_shard("report", **more))
    with pytest.raises(BadRecord, match=says) as caught:
        read_trigger(b"report/backfill/0", value, None, 7, ARRIVED)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"playload": 1}, "playload", "unknown field; allowed: v, task, id, payload, run_at, delay, priority, headers"),
        ({"priority": 10}, "priority", "10 is out of range; allowed: 0 to 9"),
        ({"priority": -1}, "priority", "0 to 9"),
        ({"priority": "high"}, "priority", '"high" is not allowed; allowed: an integer, 0 to 9'),
        ({"priority": True}, "priority", "an integer"),
        ({"priority": 1.5}, "priority", "an integer"),
        ({"id": ""}, "id", "has 0 characters; allowed: 1 to 255"),
        ({"id": 7}, "id", "7 is not allowed; allowed: a string"),
        ({"id": "x" * 256}, "id", "has 256 characters; allowed: 1 to 255"),
        ({"id": "ä" * 128}, "id", "256 bytes"),
        ({"id": "a\nb"}, "id", "control character, U+000A, at position 1"),
        ({"run_at": "tomorrow"}, "run_at", "not an RFC 3339 time"),
        ({"run_at": "2026-03-08T03:00:00"}, "run_at", "no offset"),
        ({"run_at": 1700000000}, "run_at", "a string"),
        ({"run_at": "2026-02-30T03:00:00Z"}, "run_at", "no real time"),
        ({"delay": "soon"}, "delay", "not a duration"),
        ({"delay": -1}, "delay", "0 to"),
        ({"delay": None}, "delay", "a number or a string"),
        ({"run_at": "2026-03-08T03:00:00Z", "delay": "1s"}, "delay", "exclude each other"),
        ({"headers": {"a": 1}}, "headers.a", "1 is not allowed; allowed: a string"),
        ({"headers": []}, "headers", "an object"),
        ({"headers": {"a": "x" * 8000, "b": "x" * 8000, "c": "x" * 8000}}, "headers", "at most 16,384"),
        ({"task": 5}, "task", "a string"),
        (of_shard("t"), "shard.of", "is no shard of 't'"),
        (of_shard("repor"), "shard.of", "is no shard of 'repor'"),
    ],
    ids=lambda item: str(item)[:30],
)
def test_a_wrong_field_is_named_with_what_is_allowed(body: dict[str, Any], field: str, says: str) -> None:
    error = refusal(body)
    assert error.field == field
    assert says in error.reason


@pytest.mark.parametrize("value", [b"[]", b"1", b'"x"', b"true", b"[null]"])
def test_a_value_that_is_no_object_is_refused(value: bytes) -> None:
    assert "is a JSON object, not" in refusal(value).reason


def test_a_header_that_contradicts_the_body_is_refused() -> None:
    error = refusal({"id": "a"}, headers=[("ce_id", b"b")])
    assert error.field == "id"
    assert "'b'" in error.reason


def test_a_payload_has_256_kibibytes_at_most() -> None:
    fits = "x" * (PAYLOAD_BYTES - 2)
    assert read({"payload": fits}).payload == fits
    # Blanks are not counted.
    assert read(b'{"payload":' + b" " * PAYLOAD_BYTES + b"1}").payload == 1
    error = refusal({"payload": fits + "x"})
    assert error.field == "payload"
    assert "262,145 bytes" in error.reason


def test_the_size_is_at_least_that_of_the_payload_written_again() -> None:
    value = b'{"payload":[' + b",".join([b"1e5"] * 100) + b"]}"
    assert len(value) < len(dumps([1e5] * 100)) <= read(value).size


# -- anything -------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 12) | st.floats(-2, 12) | st.text(max_size=5) | st.just("10s"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
bodies = st.dictionaries(
    st.sampled_from(["v", "task", "id", "payload", "run_at", "delay", "priority", "headers", "other"]),
    json_values | st.sampled_from([1, "report", "2026-03-08T03:00:00Z", {"a": "b"}]),
    max_size=5,
)


@given(bodies, st.sampled_from([KEY, None, b""]), st.sampled_from([None, [("ce_id", b"a")], [("x", None)]]))
def test_any_body_is_taken_whole_or_refused(body: dict[str, Any], key: bytes | None, headers: Any) -> None:
    value = json.dumps(body).encode()
    try:
        trigger = read_trigger(key, value, headers, 1, ARRIVED)
    except BadRecord:
        return
    assert set(body) <= {"v", "task", "id", "payload", "run_at", "delay", "priority", "headers"}
    assert trigger.task in ("report", body.get("task"))
    assert trigger.payload == body.get("payload")
    assert trigger.id == body.get("id", trigger.id)
    assert (trigger.run_at_ms is None) == ("run_at" not in body)
    assert (trigger.delay_ms is None) == ("delay" not in body)


@given(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=80))
def test_any_bytes_are_taken_or_refused(key: bytes | None, value: bytes | None) -> None:
    with suppress(BadRecord):
        assert read_trigger(key, value, None, 1, ARRIVED).task


# -- encoding -------------------------------------------------------------------------------------------------------


def test_a_trigger_that_was_encoded_is_read_again() -> None:
    value = encode_trigger(id="a", payload={"n": 1}, run_at_ms=ARRIVED, priority=3, headers={"x": "y"})
    trigger = read(value)
    assert (trigger.id, trigger.payload, trigger.run_at_ms) == ("a", {"n": 1}, ARRIVED)
    assert (trigger.priority, trigger.headers) == (3, {"x": "y"})
    assert read(encode_trigger(delay_s=1.5)).delay_ms == 1500
    assert read(encode_trigger()) == Trigger("report", offset=7, arrived_ms=ARRIVED, size=2)


def test_what_would_be_refused_on_arrival_is_not_encoded() -> None:
    with pytest.raises(BadRecord, match="priority"):
        encode_trigger(priority=12)
    with pytest.raises(BadRecord, match="exclude"):
        encode_trigger(run_at_ms=1, delay_s=1)
    with pytest.raises(BadRecord, match="payload"):
        encode_trigger(payload="x" * PAYLOAD_BYTES)
    with pytest.raises(BadRecord, match="task"):
        encode_trigger(task="a\n")
    with pytest.raises(NotEncodable):
        encode_trigger(payload={1, 2})

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.codec import BadRecord
from fencepost.core.commands import GiveUp, History
from fencepost.core.events import Cancelled, Paused, Resumed, Signalled
from fencepost.core.signals import (
    KINDS,
    Ask,
    CancelShard,
    Carry,
    GaveBack,
    GiveBack,
    Grant,
    ShardDone,
    ShardMoved,
    Subscribe,
    TellChildren,
    Unsubscribe,
    UpstreamDone,
    UpstreamMissed,
)
from fencepost.core.task import Work
from fencepost.wire.control import encode_control, encode_signal, read_control
from fencepost.wire.dead_letter import DeadLetter, decode_dead_letter, encode_dead_letter, given_up, refused
from fencepost.wire.headers import ce_headers
from fencepost.wire.history import HistoryRecord, decode_history, encode_history
from fencepost.wire.log import LogPart, decode_log, encode_log
from fencepost.wire.trigger import read_trigger

T0 = 1_700_000_000_000
SIGNALS: dict[str, Any] = {
    "subscribe": Subscribe(2),
    "unsubscribe": Unsubscribe(),
    "ask": Ask(4, 2, "5/10m", 3),
    "give_back": GiveBack(4),
    "grant": Grant(4),
    "carry": Carry(Work(3, "id", T0, T0, T0, {"n": 1}, {"h": "x"}, 2, -1, 1, 1, True), {"row": 7}, True, 12),
    "tell_children": TellChildren("slot:2026-11-30T02:00:00.000Z", "skipped", ("a", "b"), 7, {"n": 1}, True),
    "gave_back": GaveBack(2, 9, T0, T0, True, "lunch", "every 60", ("abcdefghij 1700000000000",), 3, 12, True),
    "upstream_done": UpstreamDone("slot:2026-11-30T02:00:00.000Z", "failed", ("a", "b"), 7, {"n": 1}, None, True),
    "upstream_missed": UpstreamMissed(T0, T0 + 60_000, True),
    "shard_moved": ShardMoved("slot:2026-11-30T02:00:00.000Z", 4, 0, 2, 1),
    "shard_done": ShardDone("slot:2026-11-30T02:00:00.000Z", 4, 0, "succeeded", 7, None, "too large"),
    "cancel_shard": CancelShard((4, 7), "no longer wanted", True),
}


# -- control --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "event"),
    [
        ({"op": "cancel"}, Cancelled(5)),
        ({"op": "cancel", "reason": "late", "waiting": False}, Cancelled(5, "late", False)),
        ({"op": "pause", "reason": "late", "v": 1}, Paused(5, "late")),
        ({"op": "resume", "task": "a"}, Resumed(5)),
        ({"op": "signal", "signal": {"kind": "subscribe"}, "from": "b"}, Signalled(Subscribe(), 5, "b")),
    ],
    ids=str,
)
def test_a_control_becomes_its_event(body: dict[str, Any], event: object) -> None:
    assert read_control(b"a", json.dumps(body).encode(), 5) == ("a", event)
    assert read_control(None, json.dumps({**body, "task": "a"}).encode(), 5) == ("a", event)


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        (b"a", None, "value"),
        (b"a", b"{}", "op"),
        (b"a", b'{"op":"stop"}', "op"),
        (b"a", b'{"op":"pause","waiting":true}', "waiting"),
        (b"a", b'{"op":"pause","why":"x"}', "why"),
        (b"a", b'{"op":"pause","v":2}', "v"),
        (b"a", b'{"op":"pause","from":"b"}', "from"),
        (b"a", b'{"op":"pause","max_runs":2}', "max_runs"),
        (b"a", b'{"op":"backfill","stop":true,"max_runs":2}', "max_runs"),
        (
            b"a",
            b'{"op":"backfill","since":"2026-01-01T00:00:00Z","until":"2026-01-01T00:00:00Z","max_runs":0}',
            "max_runs",
        ),
        (
            b"a",
            b'{"op":"backfill","since":"2026-01-01T00:00:00Z","until":"2026-01-01T00:00:00Z","max_runs":101}',
            "max_runs",
        ),
        (b"a", b'{"op":"signal","from":"b"}', "signal"),
        (b"a", b'{"op":"signal","signal":{"kind":"subscribe"}}', "from"),
        (b"a", b'{"op":"signal","signal":{"kind":"shout"},"from":"b"}', "kind"),
        (b"a", b'{"op":"signal","signal":{"kind":"subscribe","n":1},"from":"b"}', "n"),
        (b"a", b'{"op":"pause","task":"b"}', "task"),
        (b"", b'{"op":"pause"}', "key"),
        (b"\xff", b'{"op":"pause"}', "key"),
        (None, b'{"op":"pause"}', "task"),
        (b"a", b"null", None),
    ],
    ids=str,
)
def test_what_is_no_control_is_refused(key: bytes | None, value: bytes | None, field: str | None) -> None:
    with pytest.raises(BadRecord) as raised:
        read_control(key, value, 0)
    assert raised.value.field == field


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_comes_out_as_it_went_in(kind: str) -> None:
    signal = SIGNALS[kind]
    value = encode_signal("b", signal, "lane", "nonce")
    assert json.loads(value)["signal"]["kind"] == kind
    task, event = read_control(b"a", value, 5)
    assert task == "a"
    assert isinstance(event, Signalled)
    assert (event.offset, event.sender) == (5, "b")
    read = event.signal
    assert read == (replace(signal, size=len(value)) if "size" in signal.__dataclass_fields__ else signal)


def test_a_control_is_checked_before_it_is_sent() -> None:
    assert json.loads(encode_control("cancel", reason="late", waiting=False)) == {
        "op": "cancel",
        "reason": "late",
        "waiting": False,
    }
    with pytest.raises(BadRecord, match='"cancel", "pause", "resume"'):
        encode_control("stop")
    with pytest.raises(BadRecord, match="for cancel only"):
        encode_control("pause", waiting=True)


# -- history --------------------------------------------------------------------------------------------------------


def test_history_goes_through_its_record_unharmed() -> None:
    fields = {"attempt": 2, "trigger": "a", "error": "boom", "retry_at": "2026-01-01T00:00:00.000Z"}
    value = encode_history("report", History("failed", 7, T0, fields), "lane", "nonce")
    assert decode_history(value) == HistoryRecord("report", "failed", 7, T0, "lane", "nonce", fields)


@pytest.mark.parametrize(
    ("result", "why"),
    [("x" * 65_535, "65,537 bytes"), ({1}, "not JSON"), (2**70, "not JSON"), (float("nan"), "no number")],
    ids=["large", "set", "int", "nan"],
)
def test_the_end_of_a_run_is_recorded_whatever_it_returned(result: object, why: str) -> None:
    value = encode_history("report", History("succeeded", 7, T0, {"result": result}), "lane", "nonce")
    fields = decode_history(value).fields
    assert "result" not in fields
    assert why in fields["result_dropped"]


def test_a_result_of_64_kibibytes_is_kept() -> None:
    value = encode_history("report", History("succeeded", 7, T0, {"result": "x" * 65_534}), "lane", "nonce")
    assert len(decode_history(value).fields["result"]) == 65_534


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "exploded"}, "kind"),
        ({"v": 2}, "v"),
        ({"colour": 1}, "colour"),
        ({"at": "then"}, "at"),
        ({"kind": "started"}, "epoch"),
    ],
)
def test_unreadable_history_is_refused(change: dict[str, Any], field: str) -> None:
    good = json.loads(encode_history("report", History("paused", None, T0, {}), "lane", "nonce"))
    with pytest.raises(BadRecord) as raised:
        decode_history(json.dumps({**good, **change}).encode())
    assert raised.value.field == field


# -- dead letters ---------------------------------------------------------------------------------------------------

header_lists = st.lists(st.tuples(st.text("abcä", max_size=4), st.none() | st.binary(max_size=8)), max_size=3).map(
    tuple
)


@given(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=200), header_lists)
def test_i01_the_original_bytes_come_back(key: bytes | None, value: bytes | None, headers: Any) -> None:
    letter = DeadLetter("because", "fencepost.triggers", 3, 12, key, value, headers, T0, "key", "a", 4, 2)
    assert decode_dead_letter(encode_dead_letter(letter, "lane", "nonce")) == letter


@given(st.binary(min_size=100, max_size=3000) | st.text('\x00"\\\n', min_size=100).map(str.encode))
def test_a_dead_letter_is_at_most_half_again_as_large(value: bytes) -> None:
    letter = DeadLetter("because", "t", 0, 0, None, value, (), T0)
    assert len(encode_dead_letter(letter, "lane", "nonce")) <= len(value) * 1.5 + 300


def test_a_refused_record_says_why_where_and_how_often_it_was_replayed() -> None:
    headers = [("h", b"\xc3\x28"), ("fencepost_replays", b"2")]
    with pytest.raises(BadRecord) as raised:
        read_trigger(b"\x83\xff", b"\xc3\x28", headers, 9, T0)
    letter = refused(raised.value, "fencepost.triggers", 1, 9, b"\x83\xff", b"\xc3\x28", headers, T0)
    body = json.loads(encode_dead_letter(letter, "lane", "nonce"))
    assert (body["field"], body["topic"], body["partition"], body["offset"]) == ("key", "fencepost.triggers", 1, 9)
    assert body["key"] == {"base64": "g/8="}
    assert body["replays"] == 2
    assert "not UTF-8" in body["reason"]


def test_a_header_name_that_is_not_utf8_is_kept_readable() -> None:
    letter = DeadLetter("because", "t", 0, 0, None, None, (("\udcff", b"x"),), T0)
    assert decode_dead_letter(encode_dead_letter(letter, "l", "n")).headers == (("\\udcff", b"x"),)


def test_work_that_was_given_up_can_be_asked_for_again() -> None:
    work = Work(4, "order-7", payload={"n": 1}, headers={"a": "b"}, priority=2, offset=77, attempt=3)
    letter = given_up("report", GiveUp(work, "failed in attempt 3 of 3"), 9, "fencepost.triggers", 5, T0)
    assert (letter.task, letter.epoch, letter.offset, letter.key) == ("report", 9, 77, b"report")
    again = read_trigger(letter.key, letter.value, None, 0, T0)
    assert (again.id, again.payload, again.headers, again.priority) == ("order-7", {"n": 1}, {"a": "b"}, 2)
    slot = given_up("report", GiveUp(Work(5, slot_ms=T0), "lost"), 9, "fencepost.triggers", 5, T0)
    assert slot.offset == -1
    assert read_trigger(slot.key, slot.value, None, 0, T0).payload is None


# -- logs and headers -----------------------------------------------------------------------------------------------


def test_a_log_goes_through_its_record_unharmed() -> None:
    part = LogPart("a", 3, "w", 0, T0, (("out", "hello"), ("err", "ä")), cut=True)
    assert decode_log(encode_log(part)) == part
    odd = LogPart("a", 3, "w", 0, T0, (("out", "\udcff"),))
    assert decode_log(encode_log(odd)).lines == (("out", "?"),)


def test_headers_are_cloudevents_in_binary_mode() -> None:
    headers = dict(ce_headers("started", "задача-1", "worker-1", "x-1"))
    assert headers == {
        "content-type": b"application/json",
        "ce_specversion": b"1.0",
        "ce_type": b"fencepost.started",
        "ce_source": b"worker-1",
        "ce_subject": "задача-1".encode(),
        "ce_id": b"x-1",
    }
    assert dict(ce_headers("a", "b", "c"))["ce_id"] != dict(ce_headers("a", "b", "c"))["ce_id"]

"""What is not exactly representable as JSON is refused when it is read, not when it blows up later (case I05)."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.codec import MAX_DEPTH, BadRecord, NotEncodable, dumps, dumps_given, loads


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"a":1e309}', "infinity"),
        (b'{"a":-1e999}', "infinity"),
        (b'{"a":NaN}', "not JSON"),
        (b"Infinity", "not JSON"),
        (b"9" * 5000, "infinity"),
        (b'{"a":' + b"9" * 100 + b"}", "does not fit into 64 bits"),
        (b"18446744073709551616", "does not fit into 64 bits"),
        (b"-9223372036854775809", "does not fit into 64 bits"),
        (b"[" * 100_000 + b"]" * 100_000, "depth"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a":' * 100_000, "not JSON"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested deeper"),
        (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "nested deeper"),
        (rb'"\ud800"', "surrogate"),
        (rb'{"\udc00":1}', "surrogate"),
        (b'"\xed\xa0\x80"', "not JSON"),
        (b"\xc3\x28", "not JSON"),
        (b"\x83\xff", "not JSON"),
        (b'{"id":"a","id":"b"}', "twice"),
        (rb'{"id":"a","\u0069d":"b"}', "twice"),
        (b'{"a":{"b":[{"c":1,"d":2 , "c" :3}]}}', "twice"),
        (b'{"a\xc3\xa4":1,"a\xc3\xa4":1}', "twice"),
        (b"", "not JSON"),
        (b" ", "not JSON"),
        (b"{", "not JSON"),
        (b"{} {}", "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b"01", "not JSON"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a":"\x00"}', "not JSON"),
    ],
    ids=lambda item: repr(item[:20]) if isinstance(item, bytes) else "",
)
def test_i05_json_that_blows_up_later_is_refused_at_once(value: bytes, why: str) -> None:
    with pytest.raises(BadRecord, match=why):
        loads(value)


@pytest.mark.parametrize(
    "value",
    [
        b"null",
        b"18446744073709551615",
        b"-9223372036854775808",
        b"1234567890.1234567890123456789",
        b'"12345678901234567890"',
        b'{"a":":","b":"x\\":1,\\"b\\":2"}',
        b'{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}',
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        b'{"__proto__":1,"":2}',
        rb'"\ud83d\ude00 \u0000"',
    ],
    ids=lambda value: repr(value[:20]),
)
def test_what_is_exact_is_read(value: bytes) -> None:
    read = loads(value)
    assert read == json.loads(value)
    assert loads(dumps(read)) == read


def test_what_was_read_can_be_written_within_a_record() -> None:
    deepest = loads(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert dumps({"work": {"payload": deepest}})


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(values)
def test_every_json_value_survives(value: Any) -> None:
    assert loads(dumps(value)) == value


@given(values, st.sampled_from([None, 1]), st.booleans())
def test_the_quick_checks_agree_with_pythons_own_parser(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert loads(text.encode()) == json.loads(text)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    with suppress(BadRecord):
        assert dumps(loads(value))


@pytest.mark.parametrize("value", [float("nan"), [1, {"a": (float("inf"),)}]])
def test_what_a_user_hands_in_does_not_become_null_quietly(value: object) -> None:
    with pytest.raises(NotEncodable, match="no number"):
        dumps_given(value)
    assert dumps_given([None, 1.5, {"a": None}]) == b'[null,1.5,{"a":null}]'


@pytest.mark.parametrize("value", [{1, 2}, {1: 2}, "\ud800", object(), 2**70])
def test_what_json_has_no_form_for_is_not_written(value: object) -> None:
    with pytest.raises(NotEncodable):
        dumps(value)


def test_a_bad_record_names_its_field() -> None:
    error = BadRecord("is missing", "retry.attempts")
    assert (str(error), error.field) == ("retry.attempts: is missing", "retry.attempts")
    assert str(BadRecord("not JSON")) == "not JSON"

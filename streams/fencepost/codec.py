"""JSON bytes to values and back: the only importer of orjson.

`loads` takes what anybody may have produced, so it refuses what parses but cannot be kept as it was:

- orjson itself refuses NaN and Infinity, numbers beyond a double (``1e309``, integers of 400 digits), lone surrogates,
  bytes that are not UTF-8 and nesting beyond 1,024;
- integers outside 64 bits would silently become floats: refused;
- an object that names a key twice would keep the last: refused, anywhere in the value;
- nesting beyond :data:`MAX_DEPTH` could be read but not written again (orjson writes 254 levels): refused.

Whether something was lost is first asked cheaply: a value that comes out the same when it is written again, blanks
apart, lost nothing. Where that is not so (escapes, other forms of numbers), Python's own parser with hooks decides.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, Final

import orjson

MAX_DEPTH: Final = 128
_WRITABLE_DEPTH: Final = 254  # what orjson.dumps takes
_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**64 - 1


class BadRecord(ValueError):
    """A record that cannot be taken. `reason` is for people; `field` names the part, as in ``retry.attempts``."""

    def __init__(self, reason: str, field: str | None = None) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.reason = reason
        self.field = field


class NotEncodable(ValueError):
    """A value that JSON has no form for (a set, a non-string key, text with a lone surrogate, a cycle, ...)."""


def dumps(value: Any) -> bytes:
    """The JSON form, UTF-8, without blanks. Raises NotEncodable."""
    try:
        return orjson.dumps(value)
    except TypeError as error:  # JSONEncodeError is a TypeError
        raise NotEncodable(f"not JSON: {error}") from error


def dumps_given(value: Any) -> bytes:
    """Like `dumps`, for what a user handed in: infinities and NaN, which orjson writes as null, are refused too."""
    raw = dumps(value)
    if b"null" in raw:
        _require_finite(value)
    return raw


def loads(value: bytes) -> Any:
    """The value of a JSON text. Raises BadRecord with the reason, for everything that is not exactly representable."""
    return loads_sized(value)[0]


def loads_sized(value: bytes) -> tuple[Any, int]:
    """Like `loads`, with the bytes that the value has when it is written again."""
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise BadRecord(f"not JSON: {_plain(error)}") from error
    if value.count(b"[") + value.count(b"{") > MAX_DEPTH:
        _check_depth(parsed)
    again = orjson.dumps(parsed)
    if again != value and again.replace(b" ", b"") != value.replace(b" ", b""):
        _check_exactly(value)
    return parsed, len(again)


def loads_own(value: bytes) -> Any:
    """Like `loads` for records that only Fencepost's own `dumps` writes: no second look. Raises BadRecord."""
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise BadRecord(f"not JSON: {_plain(error)}") from error


def _require_finite(value: Any) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise NotEncodable(f"not JSON: {value} is no number there")
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for item in value:
        _require_finite(item)


def _check_depth(parsed: Any) -> None:
    wrapped = parsed
    for _ in range(_WRITABLE_DEPTH - MAX_DEPTH):
        wrapped = [wrapped]
    try:
        orjson.dumps(wrapped)
    except TypeError as error:
        raise BadRecord(f"nested deeper than {MAX_DEPTH} levels") from error


def _check_exactly(value: bytes) -> None:
    try:
        json.loads(value, parse_int=_bounded_int, object_pairs_hook=_unique)
    except BadRecord:
        raise
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"not JSON: {error}") from error


def _bounded_int(text: str) -> int:
    # Length first: int() refuses more than 4,300 digits with an error of its own kind.
    if len(text) > 20 or not _INT_MIN <= int(text) <= _INT_MAX:
        raise BadRecord(f"the integer {text[:24]}{'…' if len(text) > 24 else ''} does not fit into 64 bits")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise BadRecord(f"the key {key[:64]!r} appears twice in one object", key[:64])
            seen.add(key)
    return found


def _plain(error: orjson.JSONDecodeError) -> str:
    return str(error)[:200]

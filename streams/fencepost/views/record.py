"""A record of somebody's topic, as rules see it, and how its parts are named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from fencepost.codec import BadRecord, loads

Headers = tuple[tuple[str, bytes | None], ...]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()  # a part that is not there, which is something else than null
PLAIN_PARTS: Final = ("topic", "partition", "offset", "timestamp", "key")
PARTS: Final = (*PLAIN_PARTS, "value", "headers")
_ALLOWED = "key, value, value.field.field, headers.name, topic, partition, offset or timestamp"
_INDEX = re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True)
class SourceRecord:
    """One record. `timestamp` in milliseconds since the epoch; `raw_key` and `raw_value` are the bytes.

    `key`, `value` and `headers` are read when first asked for, and raise BadRecord where they cannot be: a record that
    no rule looks into may hold anything.
    """

    topic: str
    partition: int
    offset: int
    raw_key: bytes | None
    raw_value: bytes | None
    raw_headers: Headers = ()
    timestamp: int = 0

    @cached_property
    def key(self) -> str | None:
        """The key as text; None without one."""
        return None if self.raw_key is None else _text(self.raw_key, "key")

    @cached_property
    def value(self) -> Any:
        """The value from its JSON; None for a tombstone."""
        if self.raw_value is None:
            return None
        try:
            return loads(self.raw_value)
        except BadRecord as error:
            raise BadRecord(error.reason, "value") from error

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The headers as texts; of several with one name, the last. Those without a value are left out."""
        return {name: _text(raw, f"headers.{name[:64]}") for name, raw in self.raw_headers if raw is not None}


@dataclass(frozen=True, slots=True)
class Path:
    """The name of a part: ``key``, ``value.order.id``, ``value.lines.0``, ``headers.trace-id``, ``offset``."""

    text: str
    part: str
    steps: tuple[str, ...] = ()

    def find(self, record: SourceRecord) -> Any:
        """What stands there, or MISSING. Raises BadRecord where the part cannot be read at all."""
        if self.part == "headers":
            return record.headers.get(self.steps[0], MISSING)
        found = getattr(record, self.part)
        if self.part == "key" and found is None:
            return MISSING
        for step in self.steps:
            found = _step(found, step)
            if found is MISSING:
                break
        return found


def parse_path(text: str) -> Path:
    """Raises ValueError. A header's name may hold dots, a field's may not."""
    part, dot, rest = text.partition(".")
    if part not in PARTS or (dot and not rest):
        raise ValueError(f"{text[:100]!r} names no part of a record; allowed: {_ALLOWED}")
    if part == "headers":
        if not rest:
            raise ValueError(f"{text!r} names no header; allowed: headers.name")
        return Path(text, part, (rest,))
    steps = tuple(rest.split(".")) if rest else ()
    if steps and part != "value":
        raise ValueError(f"{text[:100]!r}: {part} has no fields; allowed: {_ALLOWED}")
    if not all(steps):
        raise ValueError(f"{text[:100]!r} has an empty field name; allowed: {_ALLOWED}")
    return Path(text, part, steps)


def _step(value: Any, step: str) -> Any:
    """Objects by name, lists by number; attributes of values are never looked at."""
    if isinstance(value, dict):
        return value.get(step, MISSING)
    if isinstance(value, list) and _INDEX.fullmatch(step) and int(step) < len(value):
        return value[int(step)]
    return MISSING


def _text(raw: bytes, field: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"not UTF-8: {error.reason} at byte {error.start}", field) from error

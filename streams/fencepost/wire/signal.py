"""Signals as they lie in control records: one JSON object, `kind` and the fields of the record of that kind."""

from __future__ import annotations

from dataclasses import MISSING, fields
from enum import Enum
from functools import lru_cache
from typing import Any, get_origin, get_type_hints

from fencepost.codec import BadRecord
from fencepost.core.signals import KIND_OF, KINDS, Signal
from fencepost.core.task import Work
from fencepost.core.times import format_ms
from fencepost.wire.schema import check
from fencepost.wire.times import read_time
from fencepost.wire.work import read_work, work_fields

_SIZE = "size"


def read_signal(body: dict[str, Any], size: int) -> Signal:
    """`size`: bytes of it as JSON, for a record that has a field of this name. Raises BadRecord."""
    check("signal", body)
    kind = body["kind"]
    record: Any = KINDS[kind]
    given: dict[str, Any] = {}
    known = _fields(record)
    for name, item in body.items():
        if name == "kind":
            continue
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise BadRecord(f"is not for a signal {kind}; allowed: {allowed}", f"signal.{name}")
        attribute, hint = known[name]
        given[attribute] = _read(item, attribute, hint, f"signal.{name}")
    for name, (attribute, _) in known.items():
        if attribute not in given and attribute in _needed(record):
            raise BadRecord(f"is missing from a signal {kind}", f"signal.{name}")
    if _SIZE in record.__dataclass_fields__:
        given[_SIZE] = size
    signal: Signal = record(**given)
    return signal


def signal_to_json(signal: Signal) -> dict[str, Any]:
    """The JSON object; what is at its default is left out."""
    record: Any = type(signal)
    body: dict[str, Any] = {"kind": KIND_OF[record]}
    needed = _needed(record)
    for name, (attribute, _) in _fields(record).items():
        value = getattr(signal, attribute)
        if attribute in needed or value != record.__dataclass_fields__[attribute].default:
            body[name] = _written(value, attribute)
    return body


@lru_cache(maxsize=64)
def _fields(record: type[Any]) -> dict[str, tuple[str, Any]]:
    """Name in the record -> (name of the attribute, its type). Times are texts there, so their names have no unit."""
    hints = get_type_hints(record)
    return {
        item.name.removesuffix("_ms"): (item.name, hints[item.name]) for item in fields(record) if item.name != _SIZE
    }


@lru_cache(maxsize=64)
def _needed(record: type[Any]) -> frozenset[str]:
    return frozenset(item.name for item in fields(record) if item.default is MISSING)


def _read(item: Any, attribute: str, hint: Any, field: str) -> Any:
    if attribute.endswith("_ms"):
        return read_time(item, field)
    if hint is Work:
        return read_work(item, "own_record", f"{field}.")
    if isinstance(item, list) and get_origin(hint) is tuple:
        return tuple(item)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(item)
    return item


def _written(value: Any, attribute: str) -> Any:
    if attribute.endswith("_ms") and value is not None:
        return format_ms(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Work):
        return work_fields(value)
    return list(value) if isinstance(value, tuple) else value

"""Checks against the JSON Schema files, with messages that name the field and what is allowed there."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

from fencepost.codec import BadRecord, dumps, loads_own
from fencepost.resources import schemas_dir

_SHOWN_CHARS: Final = 80


@lru_cache(maxsize=64)
def load_schema(name: str) -> dict[str, Any]:
    """The schema of a record, as a dict. Raises FileNotFoundError."""
    schema: dict[str, Any] = loads_own((schemas_dir() / f"{name}.json").read_bytes())
    return schema


@lru_cache(maxsize=64)
def validator_of(name: str) -> jsonschema_rs.Draft202012Validator:
    """The compiled schema; `is_valid` costs a third of a microsecond for a small record."""
    return jsonschema_rs.Draft202012Validator(load_schema(name))


def check(name: str, body: Any) -> None:
    """Raises BadRecord with the first thing that is wrong with the body of a record."""
    validator = validator_of(name)
    if validator.is_valid(body):
        return
    for error in validator.iter_errors(body):
        raise _explain(error, load_schema(name))
    raise BadRecord(f"not a {name}")  # is_valid and iter_errors disagree: not seen, and no reason to accept


def read_own(name: str, value: bytes, version: int) -> dict[str, Any]:
    """The body of a record that owners write for each other: an object of this version, as its schema says.

    Raises BadRecord.
    """
    body = loads_own(value)
    if type(body) is not dict:
        raise BadRecord(f"a {name} record is a JSON object")
    if body.get("v") != version:
        raise BadRecord(f"unknown version {str(body.get('v'))[:40]}; this release knows version {version}", "v")
    check(name, body)
    return body


def _explain(error: jsonschema_rs.ValidationError, schema: dict[str, Any]) -> BadRecord:
    path = list(error.instance_path)
    details = error.kind.as_dict()
    name = error.kind.name
    here = _at(schema, error.schema_path[:-1])
    if name == "additionalProperties":
        field = _field([*path, details["unexpected"][0]])
        return BadRecord(f"unknown field; allowed: {', '.join(here['properties'])}", field)
    if name == "required":
        return BadRecord("is missing", _field([*path, details["property"]]))
    field = _field(path)
    shown = _shown(error.instance)
    if field == "v":
        return BadRecord(f"unknown version {shown}; this release knows version 1", "v")
    if name == "enum":
        return BadRecord(f"{shown} is not allowed; allowed: {', '.join(map(_shown, details['options']))}", field)
    if name == "const":
        return BadRecord(f"{shown} is not allowed; allowed: {_shown(details['expected_value'])}", field)
    if name == "type":
        return BadRecord(f"{shown} is not allowed; allowed: {_types(details['types'])}{_range(here)}", field)
    if name in ("minimum", "maximum", "exclusiveMinimum"):
        return BadRecord(f"{shown} is out of range; allowed:{_range(here).replace(',', '', 1)}", field)
    if name in ("minLength", "maxLength"):
        return BadRecord(f"has {len(str(error.instance))} characters; allowed: {_length(here)}", field)
    if name == "pattern" and "title" in here:
        return BadRecord(f"{shown} is not allowed; allowed: {here['title']}", field)
    return BadRecord(_cut(str(error.message)), field)


def _at(schema: Any, path: list[str | int]) -> dict[str, Any]:
    for step in path:
        schema = schema[step]
    found: dict[str, Any] = schema
    return found


def _types(types: list[str]) -> str:
    return " or ".join(f"{'an' if kind[0] in 'aio' else 'a'} {kind}" for kind in types)


def _range(here: dict[str, Any]) -> str:
    low, high = here.get("minimum", here.get("exclusiveMinimum")), here.get("maximum")
    if low is None and high is None:
        return ""
    if high is None:
        return f", {'more than' if 'minimum' not in here else 'at least'} {low}"
    return f", {low} to {high}"


def _length(here: dict[str, Any]) -> str:
    low, high = here.get("minLength", 0), here.get("maxLength")
    return f"at least {low}" if high is None else f"{low} to {high}"


def _field(path: list[str | int]) -> str | None:
    """`retry.attempts`, `argv[0]`; None for the body itself."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return _cut(text) or None


def _shown(value: Any) -> str:
    return _cut(dumps(value).decode())


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"

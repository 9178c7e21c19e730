"""Definitions of every form that the schema lets through: each is taken whole, or refused with a word."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.codec import BadRecord, dumps
from fencepost.wire.definition import definition_from_json, definition_to_json, encode_definition, read_definition
from fencepost.wire.schema import load_schema

SCHEMA = load_schema("definition")
HANDLERS: list[dict[str, Any]] = [
    {"kind": "python", "function": "f"},
    {"kind": "command", "argv": ["/bin/true"]},
    {"kind": "http", "url": "http://a.test/"},
]
times = st.sampled_from(["2030-01-01T00:00:00Z", "2031-02-03T04:05:06.789+02:00", "2030-13-01T00:00:00Z", "soon", ""])
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["", "1", "10s", "1h30m", "0", "-1s", "1e400", "\n", "200\n", "a\x1fb", "ü" * 200, "*", "[", "UTC"]
    ),
    st.lists(st.integers(0, 300) | st.floats(0, 300) | st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(-(2**63), 2**64 - 1) | st.text(max_size=3), max_size=2),
)


def values_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema lets through, or nearly; whole numbers in both forms that JSON has."""
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema or "oneOf" in schema:
        return st.one_of([values_of(one) for one in schema.get("anyOf", schema.get("oneOf"))])
    kinds = schema.get("type", [])
    found = [_VALUES[kind](schema) for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind in _VALUES]
    return st.one_of(found) if found else odd


def _whole(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    whole = st.integers(schema.get("minimum", 0), min(schema.get("maximum", 1000), 2**40))
    return whole | whole.map(float)


def _number(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    return st.floats(low, min(schema.get("maximum", 1e9), 1e12)) | _whole({**schema, "minimum": int(low)})


def _text(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "pattern" in schema:
        return st.from_regex(schema["pattern"]) | times
    some = st.sampled_from(["10s", "1h30m", "0 2 * * *", "H H * * *", "a/b", "http://a/b?c", "UTC", "250ms", "map"])
    return some | times | st.text(min_size=schema.get("minLength", 0), max_size=12)


def _list(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    return st.lists(values_of(schema.get("items", {})), max_size=3)


def _object(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    known = {name: values_of(one) for name, one in schema.get("properties", {}).items()}
    if not known:
        return st.dictionaries(
            st.sampled_from(["X", "x", "Host", "a b", ""]) | st.text(max_size=5), st.text(max_size=5)
        )
    needed = {name: known.pop(name) for name in schema.get("required", [])}
    return st.fixed_dictionaries(needed, optional=known)


_VALUES = {
    "integer": _whole,
    "number": _number,
    "string": _text,
    "array": _list,
    "object": _object,
    "boolean": lambda _schema: st.booleans(),
    "null": lambda _schema: st.none(),
}


def handlers() -> st.SearchStrategy[Any]:
    http = SCHEMA["properties"]["handler"]["else"]["then"]
    command = SCHEMA["properties"]["handler"]["else"]["else"]
    return st.one_of(
        st.sampled_from(HANDLERS),
        values_of(command),
        st.builds(lambda body: {**body, "url": "https://a.test:81/x?y"}, values_of(http)),
        values_of(http),
    )


schedules = st.builds(
    lambda main, around: {**main, **around},
    st.sampled_from(
        [
            {"every_s": 60},
            {"every_s": "5m", "anchor": "2030-01-01T00:00:00Z"},
            {"cron": "H 2 * * 1-5", "time_zone": "Europe/Berlin"},
            {"cron": "@daily"},
            {"at": "2030-01-01T00:00:00Z"},
        ]
    )
    | st.dictionaries(st.sampled_from(["every_s", "cron", "at", "time_zone", "anchor"]), odd | times, max_size=3),
    st.fixed_dictionaries(
        {},
        optional={
            "start": times | odd,
            "end": times | odd,
            "jitter_s": st.sampled_from([0, 5, 2.5, "1h", 1e9]) | odd,
            "calendar": st.fixed_dictionaries(
                {},
                optional={
                    "days": st.sampled_from([["mon", "tue"], "mon-fri"]) | odd,
                    "closed": st.sampled_from([["2030-01-01"], ["2030-13-01"]]) | odd,
                    "on_closed": st.sampled_from(["skip", "next", "previous"]) | odd,
                    "time_zone": st.sampled_from(["UTC", "Europe/Berlin", "Nowhere"]) | odd,
                },
            )
            | odd,
        },
    ),
)
FIELDS = {
    **{name: values_of(one) for name, one in SCHEMA["properties"].items() if name not in ("handler", "v")},
    "schedule": schedules | st.lists(schedules, max_size=3) | odd,
}
bodies = st.builds(
    lambda handler, some, wrong: {"handler": handler, **some, **wrong},
    handlers(),
    st.fixed_dictionaries({}, optional={name: one for name, one in FIELDS.items() if name != "task"}),
    st.dictionaries(st.sampled_from(sorted(FIELDS)), odd, max_size=1),
)


@given(bodies)
def test_any_body_is_a_definition_that_survives_its_record_or_is_refused(body: dict[str, Any]) -> None:
    try:
        _, definition = read_definition(b"report", dumps(body))
    except BadRecord:
        return
    assert definition is not None
    assert read_definition(b"report", encode_definition(definition)) == ("report", definition)
    assert definition_from_json("report", definition_to_json(definition)) == definition


@pytest.mark.parametrize("field", ["success", "retry_statuses"])
def test_a_status_may_be_written_as_a_float(field: str) -> None:
    """JSON Schema counts 404.0 as a whole number too."""
    handler = {**HANDLERS[2], field: [404.0, "500-599"]}
    again = definition_to_json(definition_from_json("report", {"handler": handler}))
    assert again["handler"][field] == [404, "500-599"]

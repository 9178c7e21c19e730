"""Definitions: what can be run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, Final

from fencepost.codec import BadRecord, dumps, dumps_given, loads, loads_own
from fencepost.core.evolve import builder
from fencepost.core.fans import is_shard_of, why_no_fan_out
from fencepost.core.ids import check_task_id
from fencepost.core.links import When
from fencepost.core.making import named
from fencepost.core.schedule import Schedule, ScheduleError, schedule_from_json
from fencepost.core.task import (
    CatchUp,
    CommandHandler,
    Definition,
    Handler,
    HttpHandler,
    Isolation,
    OnHandover,
    OnInterruption,
    Overlap,
    PythonHandler,
    Retry,
    default_overlap,
)
from fencepost.core.times import parse_duration
from fencepost.wire.arrival import arrival_to_json, read_arrival
from fencepost.wire.edge import PAYLOAD_BYTES, read_key, require_object, require_size, task_of
from fencepost.wire.http_handler import http_to_json, read_http
from fencepost.wire.limit import limit_to_json, read_limit
from fencepost.wire.schema import check

_new_definition = builder(Definition)
_KNOWN_BYTES: Final = 2048
_DEFAULTS: Final = {item.name: item.default for item in fields(Definition)}
_ENUMS: Final[dict[str, Any]] = {
    "overlap": Overlap,
    "catch_up": CatchUp,
    "on_interruption": OnInterruption,
    "on_handover": OnHandover,
    "isolation": Isolation,
    "when": When,
}
_DURATIONS: Final = (
    "timeout_s",
    "lease_ttl_s",
    "grace_s",
    "settle_s",
    "catch_up_s",
    "start_timeout_s",
    "heartbeat_s",
    "total_timeout_s",
)
_NOT_ZERO: Final = ("timeout_s", "start_timeout_s", "heartbeat_s", "total_timeout_s")
_PLAIN: Final = (
    "payload",
    "strict_stop",
    "paused",
    "description",
    "propagate_failure",
    "map",
    "shard_of",
    "pool",
    "broadcast",
)
_WHOLE: Final = ("buffer_limit", "batch_limit", "max_losses", "priority", "shards", "chunk")


def read_definition(key: bytes | None, value: bytes | None) -> tuple[str, Definition | None]:
    """(task ID, definition) of a record of the tasks topic; None: a tombstone deletes it. Raises BadRecord."""
    task = read_key(key)
    if task is None:
        # The topic is compacted, so a record without a key could not even be kept.
        raise BadRecord("a definition's key is the task ID; this record has none", "key")
    if value is None:
        return task, None
    body = loads(value)
    require_object(body)
    return task, definition_from_json(task, body)


def definition_from_json(task: str, body: dict[str, Any]) -> Definition:
    """The definition that a JSON object describes (in a file, say). Raises BadRecord, NotEncodable."""
    if "task" in body and body["task"] == task:
        body = {name: item for name, item in body.items() if name != "task"}
    if "task" not in body:
        form = dumps_given(body)
        if len(form) <= _KNOWN_BYTES:
            return _not_after_itself(_named(_known_definition(form), task))
        body = loads_own(form)  # a file's own kinds of values, such as TOML's times, are JSON now
    check("definition", body)
    task_of(task, body)
    return _not_after_itself(_named(_definition(task, body), task))


def _not_after_itself(definition: Definition) -> Definition:
    if definition.after and definition.task in definition.after:
        raise BadRecord(f"{definition.task!r} cannot run after itself", "after")
    if definition.shard_of and not is_shard_of(definition.task, definition.shard_of):
        raise BadRecord("is written by the owner of a task for its shards alone; leave it out", "shard_of")
    if definition.fans_out:
        why_not = why_no_fan_out(definition)
        if why_not is not None:
            raise BadRecord(why_not[1], why_not[0])
    return definition


@lru_cache(maxsize=4096)
def _known_definition(form: bytes) -> Definition:
    # A million tasks have few different definitions but for their names, and are all read again at a takeover.
    body = loads_own(form)
    check("definition", body)
    return _definition("", body)


def encode_definition(definition: Definition) -> bytes:
    """The value of a definition; its key is the task ID."""
    return dumps(definition_to_json(definition))


def definition_to_json(definition: Definition) -> dict[str, Any]:
    """The JSON object; what is at its default is left out."""
    body: dict[str, Any] = {"v": 1, "task": definition.task, "handler": _handler_to_json(definition.handler)}
    if definition.schedule is not None:
        body["schedule"] = definition.schedule.to_json()
    if definition.retry != Retry():
        body["retry"] = {
            item.name: _plain(getattr(definition.retry, item.name))
            for item in fields(Retry)
            if getattr(definition.retry, item.name) != item.default
        }
    if definition.overlap is not default_overlap(definition.schedule):
        body["overlap"] = definition.overlap.value
    for name, default in _DEFAULTS.items():
        value = getattr(definition, name)
        if name not in ("task", "handler", "schedule", "retry", "overlap", "arrival", "limit") and value != default:
            body[name] = list(value) if isinstance(value, tuple) else value
    if definition.limit is not None:
        body["limit"] = limit_to_json(definition.limit)
    if definition.arrival is not None:
        body["arrival"] = arrival_to_json(definition.arrival)
    return body


def _definition(task: str, body: dict[str, Any]) -> Definition:
    given: dict[str, Any] = {}
    schedule = None if "schedule" not in body else _schedule(body["schedule"])
    for name, item in body.items():
        if name in _PLAIN:
            given[name] = item
        elif name in _DURATIONS:
            given[name] = _duration(item, name)
        elif name in _WHOLE:
            given[name] = int(item)  # JSON Schema counts 5.0 as an integer too
        elif name in _ENUMS:
            given[name] = _ENUMS[name](item)
        elif name == "retry":
            given[name] = _retry(item)
        elif name == "after":
            given[name] = tuple(_parent(parent) for parent in item)
        elif name == "limit":
            given[name] = read_limit(item)
        elif name == "arrival":
            given[name] = read_arrival(item)
    if "overlap" not in given:
        given["overlap"] = default_overlap(schedule)
    if "payload" in given:
        require_size(given["payload"], PAYLOAD_BYTES, "payload")
    return _new_definition(task, _handler(body["handler"]), schedule, **given)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _parent(task: str) -> str:
    try:
        return check_task_id(task)
    except ValueError as error:
        raise BadRecord(str(error), "after") from error


def _schedule(body: dict[str, Any] | list[Any]) -> Schedule:
    return _known_schedule(dumps(body))


@lru_cache(maxsize=65_536)
def _known_schedule(form: bytes) -> Schedule:
    # One object for equal schedules: a million tasks have few different ones.
    try:
        return schedule_from_json(loads_own(form))
    except ScheduleError as error:
        raise _refused(error) from error


def _named(definition: Definition, task: str) -> Definition:
    try:
        return named(definition, task)
    except ScheduleError as error:
        raise _refused(error) from error


def _refused(error: ScheduleError) -> BadRecord:
    return BadRecord(error.message, error.field if error.field == "schedule" else f"schedule.{error.field}")


def _handler(body: dict[str, Any]) -> Handler:
    if body["kind"] == "python":
        return _python_handler(body["function"])
    if body["kind"] == "http":
        return read_http(body)
    env: Mapping[str, str] = body.get("env", {})
    return CommandHandler(tuple(body["argv"]), tuple(sorted(env.items())), body.get("cwd"))


@lru_cache(maxsize=4096)
def _python_handler(function: str) -> PythonHandler:
    return PythonHandler(function)


def _handler_to_json(handler: Handler) -> dict[str, Any]:
    if isinstance(handler, PythonHandler):
        return {"kind": "python", "function": handler.function}
    if isinstance(handler, HttpHandler):
        return http_to_json(handler)
    body: dict[str, Any] = {"kind": "command", "argv": list(handler.argv)}
    if handler.env:
        body["env"] = dict(handler.env)
    if handler.cwd is not None:
        body["cwd"] = handler.cwd
    return body


def _retry(body: dict[str, Any]) -> Retry:
    lists = {name: tuple(item) for name, item in body.items() if isinstance(item, list)}
    return _known_retry(tuple({**body, **lists}.items()))


@lru_cache(maxsize=4096)
def _known_retry(items: tuple[tuple[str, Any], ...]) -> Retry:
    given = dict(items)
    for name in ("delay_s", "max_delay_s"):
        if name in given:
            given[name] = _duration(given[name], f"retry.{name}")
    for name in ("factor", "jitter"):
        if name in given:
            given[name] = float(given[name])
    if "attempts" in given:
        given["attempts"] = int(given["attempts"])
    for name in ("on", "never"):
        if name in given:
            given[name] = tuple([item if isinstance(item, str) else int(item) for item in given[name]])
    return Retry(**given)


def _duration(value: str | float, field: str) -> float:
    try:
        duration_s = parse_duration(value)
    except ValueError as error:
        raise BadRecord(str(error), field) from error
    if field in _NOT_ZERO and duration_s == 0:
        raise BadRecord("0 leaves no time; leave the field out for no limit", field)
    if field == "lease_ttl_s" and duration_s < 1:
        raise BadRecord(f"{duration_s} s is too short; allowed: at least 1 s", field)
    return duration_s

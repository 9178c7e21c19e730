"""What the records that others produce have in common: a key, perhaps `task` in the body, a JSON object, a version."""

from __future__ import annotations

from typing import Any, Final

from fencepost.codec import BadRecord, dumps_given, loads_sized
from fencepost.core.ids import check_task_id
from fencepost.wire.schema import check

PAYLOAD_BYTES: Final = 256 * 1024
CHECKPOINT_BYTES: Final = 64 * 1024
RESULT_BYTES: Final = 64 * 1024


def read_key(key: bytes | None) -> str | None:
    """The task ID in a record's key; None where there is no key. Raises BadRecord."""
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"not UTF-8: {error.reason} at byte {error.start}", "key") from error
    return _checked(text, "key")


def read_body(name: str, value: bytes) -> dict[str, Any]:
    """The body of a record, checked against its schema. Raises BadRecord."""
    return read_body_sized(name, value)[0]


def read_body_sized(name: str, value: bytes) -> tuple[dict[str, Any], int]:
    """Like `read_body`, with the bytes that the body has when it is written again."""
    body, size = loads_sized(value)
    require_object(body)
    check(name, body)
    return body, size


def require_object(body: Any) -> None:
    """Raises BadRecord for JSON that is something else."""
    if type(body) is not dict:
        raise BadRecord(f"the value is a JSON object, not {_kind(body)}")


def task_of(key: str | None, body: dict[str, Any]) -> str:
    """The task that a record is for: its key, or `task` where there is no key. Raises BadRecord if they differ."""
    task = body.get("task")
    if key is None:
        if task is None:
            raise BadRecord("the record has no key and its body no `task`; one of them must be the task ID", "task")
        return _checked(task, "task")
    if task is not None and task != key:
        raise BadRecord(
            f"{_shown(task)} is not the record's key, {_shown(key)}; produce with the task ID as key, or without a key",
            "task",
        )
    return key


def require_size(data: Any, limit: int, field: str) -> int:
    """The size of the value as JSON, in bytes. Raises BadRecord over the limit, NotEncodable."""
    size = len(dumps_given(data))
    if size > limit:
        raise BadRecord(f"has {size:,} bytes as JSON; allowed: at most {limit:,}", field)
    return size


def _checked(task_id: str, field: str) -> str:
    try:
        return check_task_id(task_id)
    except ValueError as error:
        raise BadRecord(str(error), field) from error


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}[type(value)]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:79]}…")

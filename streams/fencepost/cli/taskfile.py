"""Task files: `[[task]]` tables in TOML, made into definitions.

The keys are those of a definition record, with `id` for the task and the schedule's keys beside the others:

    [[task]]
    id = "report"
    handler = {kind = "python", function = "report"}
    cron = "0 2 * * *"
    time_zone = "Europe/Berlin"
    retry = {attempts = 5}

`schedule = [{cron = "…"}, {every = "1h"}]` gives several.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from fencepost.cli.failures import BadInput
from fencepost.codec import BadRecord
from fencepost.core.ids import check_task_id
from fencepost.core.task import Definition
from fencepost.wire.definition import definition_from_json

_SCHEDULE_KEYS = {
    "cron": "cron",
    "time_zone": "time_zone",
    "every": "every_s",
    "every_s": "every_s",
    "anchor": "anchor",
    "at": "at",
    "start": "start",
    "end": "end",
    "jitter": "jitter_s",
    "jitter_s": "jitter_s",
    "calendar": "calendar",
}
_OTHER_NAMES = {
    "timeout": "timeout_s",
    "start_timeout": "start_timeout_s",
    "total_timeout": "total_timeout_s",
    "heartbeat": "heartbeat_s",
}


def read_task_files(paths: list[Path]) -> list[Definition]:
    """All definitions of the files, checked. Raises BadInput naming file, task and field."""
    found: dict[str, str] = {}
    definitions = []
    for path in paths:
        for definition in _read(path):
            if definition.task in found:
                raise BadInput(f"{path}: task {definition.task!r} is defined twice (also in {found[definition.task]})")
            found[definition.task] = str(path)
            definitions.append(definition)
    return definitions


def _read(path: Path) -> list[Definition]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not valid TOML: {error}") from error
    unknown = sorted(set(document) - {"task"})
    if unknown:
        raise BadInput(f"{path}: unknown key {unknown[0]!r}; allowed: [[task]] tables")
    tables = document.get("task", [])
    if not isinstance(tables, list):
        raise BadInput(f"{path}: task is not a list; write [[task]], with two brackets")
    return [_definition(path, number, table) for number, table in enumerate(tables, start=1)]


def _definition(path: Path, number: int, table: object) -> Definition:
    place = f"{path}: task {number}"
    if not isinstance(table, Mapping):
        raise BadInput(f"{place} is not a table; write [[task]]")
    task_id = table.get("id")
    try:
        check_task_id(task_id)
    except ValueError as error:
        raise BadInput(f"{place}: id: {error}") from error
    assert isinstance(task_id, str)
    try:
        return definition_from_json(task_id, _body(table))
    except BadRecord as error:
        raise BadInput(f"{place} ({task_id!r}): {_in_file(str(error))}") from error


def _body(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table as the JSON object of a definition record."""
    body: dict[str, Any] = {}
    schedule: dict[str, Any] = {}
    if "shard_of" in table:
        raise BadRecord("is written by the owner of a task for its shards alone; leave it out", "shard_of")
    for name, value in table.items():
        plain = _plain(value)
        if name in _SCHEDULE_KEYS:
            schedule[_SCHEDULE_KEYS[name]] = plain
        elif name != "id":
            body[_OTHER_NAMES.get(name, name)] = plain
    if schedule and "schedule" in body:
        raise BadRecord(f"given beside {next(iter(schedule))}; use one of them", "schedule")
    if "schedule" in body:
        body["schedule"] = _in_record(body["schedule"])
    return {**body, **({"schedule": schedule} if schedule else {})}


def _in_record(schedule: Any) -> Any:
    """A schedule, or a list of them, with the names that records have."""
    if isinstance(schedule, list):
        return [_in_record(item) for item in schedule]
    if not isinstance(schedule, Mapping):
        return schedule
    return {_SCHEDULE_KEYS.get(name, name): value for name, value in schedule.items()}


def _plain(value: Any) -> Any:
    """TOML knows times; JSON takes them as text."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _in_file(text: str) -> str:
    """Schedule fields by the names they have in the file."""
    return text.removeprefix("schedule.")

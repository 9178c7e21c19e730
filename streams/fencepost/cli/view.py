"""A task as the topics show it: its definition, its state and what waits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fencepost.app import load_app
from fencepost.cli.failures import Failure
from fencepost.codec import BadRecord
from fencepost.core.ids import check_task_id, partition_of, split_key
from fencepost.core.limits import PREFIX
from fencepost.core.schedule import Schedule
from fencepost.core.schedule import upcoming as slots_of
from fencepost.core.slots import fingerprint_of
from fencepost.core.task import Definition, Status, TaskState, Work
from fencepost.kafka.namespace import load_namespace
from fencepost.kafka.scan import Record, scan
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.wire.definition import read_definition
from fencepost.wire.state import decode_state
from fencepost.wire.work import WORK, decode_work


@dataclass(slots=True)
class TaskView:
    """What is known of one task. `defined_in`: "topic", "code" or None; `problem`: why something cannot be read."""

    task: str
    definition: Definition | None = None
    defined_in: str | None = None
    state: TaskState | None = None
    waiting: list[Work] = field(default_factory=list)
    problem: str | None = None

    @property
    def schedule(self) -> Schedule | None:
        return None if self.definition is None else self.definition.schedule

    @property
    def status(self) -> str:
        """For people: the run's status, or why nothing can run."""
        if self.problem is not None:
            return "unreadable"
        if self.state is None:
            return "paused" if self.definition is not None and self.definition.paused else "idle"
        status, place = self.state.status, self.state.place
        if place is not None and place.away:
            return f"in pool {place.pool}" if place.pool is not None else "given back"
        if self.state.deleted:
            return "deleted" if status is Status.IDLE else f"{status.value}, deleted"
        if self.state.paused:
            return "paused" if status is Status.IDLE else f"{status.value}, paused"
        return status.value

    def why_no_slot(self) -> str | None:
        """The reason for which no slot will fire as things stand; None if one may."""
        if self.problem is not None:
            return f"unreadable: {self.problem}"
        state, definition = self.state, self.definition
        if state is not None and state.deleted:
            return "deleted"
        # A task declared in code has a state and, where its app is not named, no definition to look at.
        if state is not None and definition is None and state.schedule_fingerprint is None:
            return "no schedule: runs when triggered"
        if definition is not None and definition.schedule is None:
            return "no schedule: runs when triggered"
        if state is not None and state.paused:
            return f"paused: {state.pause_reason}" if state.pause_reason else "paused"
        if state is None and definition is not None and definition.paused:
            return "paused: defined as paused"
        return None

    def slots(self, after_ms: int, count: int) -> list[int]:
        """The next slots: the stored one first, then by the schedule."""
        stored_ms = None if self.state is None else self.state.next_slot_ms
        if self.schedule is None:
            return [] if stored_ms is None else [stored_ms]
        armed = self.state is not None and self.state.schedule_fingerprint == fingerprint_of(self.schedule)
        if not armed:
            return slots_of(self.schedule, after_ms, count)  # its owner has not taken the schedule yet
        if stored_ms is None or stored_ms <= after_ms:
            return [] if stored_ms is None else slots_of(self.schedule, after_ms, count)
        return [stored_ms, *(slots_of(self.schedule, stored_ms, count - 1) if count > 1 else ())]

    def next_slot(self) -> int | None:
        if self.why_no_slot() is not None:
            return None
        return next(iter(self.slots(time.time_ns() // 1_000_000, 1)), None)


def find_task(settings: Settings, task_id: str) -> TaskView:
    """One task. Raises Failure for an ID nothing is known of, BadRecord for one that cannot be."""
    view = load_tasks(settings, task_id).get(task_id)
    if view is None:
        raise Failure(f"no task {task_id!r} in namespace {settings.namespace!r}")
    return view


def load_tasks(settings: Settings, only: str | None = None) -> dict[str, TaskView]:
    """All tasks that are defined or have a state, by ID; with `only` at most that one."""
    numbers = None
    if only is not None:
        try:
            check_task_id(only)
        except ValueError as error:
            raise BadRecord(str(error), "ID") from error
        numbers = [partition_of(only.encode(), load_namespace(settings).partitions)]
    else:
        load_namespace(settings)
    topics = Topics(settings.namespace)
    views: dict[str, TaskView] = {}
    for key, record in newest(scan(settings, topics.tasks, numbers)):
        _take_definition(views, key, record)
    for key, record in newest(scan(settings, topics.state, numbers)):
        _take_state(views, key, record)
    _take_declared(settings, views)
    _leave_out_keys(views)
    if only is not None:
        return {only: views[only]} if only in views else {}
    return views


def load_partition(settings: Settings, number: int) -> dict[str, TaskView]:
    """The tasks of one partition that are defined in the topic or have a state."""
    topics = Topics(settings.namespace)
    views: dict[str, TaskView] = {}
    for key, record in newest(scan(settings, topics.tasks, [number])):
        _take_definition(views, key, record)
    for key, record in newest(scan(settings, topics.state, [number])):
        _take_state(views, key, record)
    _leave_out_keys(views)
    return views


def declared(settings: Settings) -> dict[str, Definition]:
    """What the app declares for exact IDs, if it is named. Raises AppError."""
    if settings.app is None:
        return {}
    definitions = load_app(settings.app).definitions()
    return {item.task: item for item in definitions if not any(sign in item.task for sign in "*?[")}


def newest(records: Iterable[Record]) -> Iterator[tuple[str, Record]]:
    """The last record of each key that is not a tombstone."""
    last: dict[bytes, Record] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            last.pop(record.key, None)
        else:
            last[record.key] = record
    for record in last.values():
        yield record.key_text, record


def _take_definition(views: dict[str, TaskView], key: str, record: Record) -> None:
    view = views.setdefault(key, TaskView(key))
    try:
        view.definition = read_definition(record.key, record.value)[1]
        view.defined_in = "topic"
    except BadRecord as error:
        view.problem = f"definition: {error}"


def _take_state(views: dict[str, TaskView], key: str, record: Record) -> None:
    task_id, kind = _split(key)
    if not task_id:
        return  # the partition's own records: its fence and sentinels
    view = views.setdefault(task_id, TaskView(task_id))
    try:
        if kind is None:
            view.state = decode_state(record.value or b"")
        elif kind == WORK:
            view.waiting.append(decode_work(record.value or b""))
    except BadRecord as error:
        view.problem = f"{kind or 'state'}: {error}"


def _leave_out_keys(views: dict[str, TaskView]) -> None:
    """The ID of a limit's key has an owner and records like a task's, and is none; a task may have the same ID."""
    for task_id, view in list(views.items()):
        nothing = view.definition is None and view.problem is None and not view.waiting
        if task_id.startswith(PREFIX) and nothing and (view.state is None or view.state.never_defined):
            del views[task_id]


def _split(key: str) -> tuple[str, str | None]:
    try:
        task_id, kind, _ = split_key(key)
    except ValueError:
        return "", None
    return task_id, kind


def _take_declared(settings: Settings, views: dict[str, TaskView]) -> None:
    """What the app declares for exact IDs, where it is named; an ID's own record in the topic goes before it."""
    for task_id, definition in declared(settings).items():
        view = views.setdefault(task_id, TaskView(task_id))
        if view.definition is None and view.problem is None:
            view.definition, view.defined_in = definition, "code"


def describe_handler(definition: Definition) -> str:
    from fencepost.wire.definition import definition_to_json

    handler: dict[str, Any] = definition_to_json(definition)["handler"]
    if handler["kind"] == "http":
        return f"{handler.get('method', 'POST')} {handler['url']}"
    return str(handler["function"]) if handler["kind"] == "python" else " ".join(handler["argv"])


def describe_schedule(schedule: Schedule | None) -> str | None:
    if schedule is None:
        return None
    body = schedule.to_json()
    return "; ".join(_described(one) for one in (body if isinstance(body, list) else [body]))


def _described(body: dict[str, Any]) -> str:
    if "cron" in body:
        text = f"{body['cron']} ({body.get('time_zone', 'UTC')})"
    else:
        text = f"every {body['every_s']} s" if "every_s" in body else f"once at {body['at']}"
    around = {"start": "from", "end": "before", "jitter_s": "later by up to"}
    text += "".join(
        f", {word} {body[name]}{' s' if name == 'jitter_s' else ''}" for name, word in around.items() if name in body
    )
    return f"{text}, on open days" if "calendar" in body else text

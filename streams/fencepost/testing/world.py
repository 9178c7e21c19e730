"""A world: an app, a clock that stands still until it is told, and a log."""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from fencepost.app import App
from fencepost.client import RunFailed, RunStatus, after
from fencepost.codec import BadRecord
from fencepost.core.ids import check_task_id
from fencepost.core.task import Definition, Status, TaskState
from fencepost.core.times import parse_duration, parse_rfc3339
from fencepost.kafka.topics import Topics
from fencepost.testing import fiber
from fencepost.testing.log import Log
from fencepost.testing.owner import Owner
from fencepost.testing.run import Run, runs_of, when
from fencepost.testing.running import Function
from fencepost.wire.control import encode_control
from fencepost.wire.dead_letter import DeadLetter, decode_dead_letter
from fencepost.wire.definition import definition_from_json, definition_to_json, encode_definition
from fencepost.wire.history import HistoryRecord, decode_history
from fencepost.wire.trigger import encode_trigger

Duration = str | float | timedelta


class Asked:
    """A trigger that was sent into a world. `result` and `wait` let time pass as far as they need."""

    def __init__(self, world: World, task: str, trigger_id: str) -> None:
        self._world = world
        self.task, self.id = task, trigger_id

    def status(self) -> RunStatus:
        """Where it stands now."""
        status = RunStatus("sent")
        for event in self._world.history(self.task):
            status = after(status, event, self.id)
        return status

    def wait(self, timeout: Duration = "30d") -> RunStatus:
        """Let time pass until it has ended. Raises TimeoutError."""
        self._world.advance_until(lambda: self.status().done, timeout, f"trigger {self.id} of {self.task} has ended")
        return self.status()

    def result(self, timeout: Duration = "30d") -> Any:
        """What the run returned. Raises RunFailed, TimeoutError."""
        status = self.wait(timeout)
        if status.kind != "succeeded":
            raise RunFailed(self.task, status.kind, status.cause, status.epoch)
        return status.result


class World:
    """Made by `world`. All methods belong to the thread that made it; those that ask may be called by runs too."""

    def __init__(self, app: App, at: str | datetime, seed: int, slots: int, stand_ins: Mapping[str, Function]) -> None:
        self.app = app
        self.topics = Topics("world")
        self._now_ms = parse_rfc3339(at) if isinstance(at, str) else round(at.timestamp() * 1000)
        self._log = Log()
        self._chance = random.Random(seed)
        self._slots, self._stand_ins = slots, dict(stand_ins)
        self._thread = threading.get_ident()
        self._lines: dict[tuple[str, int], list[str]] = {}
        self._offsets: dict[str, int] = {}
        self._owner: Owner | None = None
        self._begin()

    # --- time --------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The world's time, in UTC."""
        return when(self._now_ms)

    def advance(self, by: Duration) -> None:
        """Let time pass: "2d", "90s", seconds, or a timedelta. All that is due happens, each thing at its time."""
        self._pass(self._now_ms + _ms(by), None)

    def advance_to(self, time: str | datetime) -> None:
        """Let time pass up to then. Raises ValueError for a time that is over."""
        until_ms = parse_rfc3339(time) if isinstance(time, str) else round(time.timestamp() * 1000)
        if until_ms < self._now_ms:
            raise ValueError(f"{time} is over: it is {self.now.isoformat()}")
        self._pass(until_ms, None)

    def advance_until(self, condition: Callable[[], Any], at_most: Duration = "30d", what: str = "it is so") -> Any:
        """Let time pass until the condition is true, and return what it says. Raises TimeoutError."""
        found = self._pass(self._now_ms + _ms(at_most), condition)
        if not found:
            raise TimeoutError(f"not within {at_most}: {what}")
        return found

    def _pass(self, until_ms: int, condition: Callable[[], Any] | None) -> Any:
        self._outside_runs()
        while True:
            if self._owner is not None:
                self._owner.settle()
            if condition is not None and (found := condition()):
                return found
            next_ms = None if self._owner is None else self._owner.next_ms()
            if next_ms is None or next_ms > until_ms:
                self._now_ms = max(self._now_ms, until_ms)
                if self._owner is not None:
                    self._owner.settle()
                return condition() if condition is not None else None
            self._now_ms = max(self._now_ms, next_ms)

    # --- workers -----------------------------------------------------------------------------------------------------

    def stop_workers(self, *, crash: bool = False) -> None:
        """Nobody runs anything from now on. crash: runs that are on are lost without a word."""
        self._outside_runs()
        if self._owner is not None:
            self._owner.stop(crash)
            self._owner = None

    def start_workers(self) -> None:
        """Somebody does again: tasks are restored from the log, what is due is decided on."""
        self._outside_runs()
        if self._owner is None:
            self._begin()
            self._owner_settle()

    def restart(self, down: Duration = 0, *, crash: bool = False) -> None:
        """Stop the workers, let time pass, start them again. What a lost run held is waited for, one lease long."""
        self.stop_workers(crash=crash)
        self.advance(down)
        self.start_workers()

    def _begin(self) -> None:
        self._owner = Owner(
            self._log, self.topics, lambda: self._now_ms, self.app.definitions(), self.app.handlers(), self._stand_ins,
            self._slots, self._chance, self._offsets, self._lines,
        )  # fmt: skip
        self._owner.begin()

    # --- asking ------------------------------------------------------------------------------------------------------

    def trigger(
        self,
        task: str,
        payload: Any = None,
        *,
        delay: Duration | None = None,
        run_at: str | datetime | None = None,
        id: str | None = None,
        priority: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Asked:
        """Ask for a run, as `App.trigger` does. Raises BadRecord."""
        trigger_id = uuid.UUID(int=self._chance.getrandbits(128)).hex if id is None else id
        value = encode_trigger(
            id=trigger_id,
            payload=payload,
            delay_s=None if delay is None else _ms(delay) / 1000,
            run_at_ms=None
            if run_at is None
            else parse_rfc3339(run_at if isinstance(run_at, str) else run_at.isoformat()),
            priority=priority,
            headers=None if headers is None else dict(headers),
        )
        self.produce("triggers", _task(task), value)
        return Asked(self, task, trigger_id)

    def define(self, *definitions: Definition) -> None:
        """Publish definitions, as `App.apply` and `fencepost apply` do. Raises BadRecord."""
        for definition in definitions:
            definition_from_json(definition.task, definition_to_json(definition))
            self.produce("tasks", definition.task, encode_definition(definition))

    apply = define

    def delete(self, task: str) -> None:
        """Take the task's own definition away."""
        self.produce("tasks", _task(task), None)

    def cancel(self, task: str, reason: str | None = None, *, waiting: bool = True) -> None:
        """End the run that is on, and what waits unless `waiting` is False."""
        self.produce(
            "control", _task(task), encode_control("cancel", reason=reason, waiting=None if waiting else False)
        )

    def pause(self, task: str, reason: str | None = None) -> None:
        """Hold back every start of the task."""
        self.produce("control", _task(task), encode_control("pause", reason=reason))

    def resume(self, task: str) -> None:
        """Let the task start again."""
        self.produce("control", _task(task), encode_control("resume"))

    def produce(self, topic: str, key: str | bytes | None, value: str | bytes | None) -> None:
        """A record just as it is, to "triggers", "control" or "tasks"."""
        name = {"triggers": self.topics.triggers, "control": self.topics.control, "tasks": self.topics.tasks}.get(topic)
        if name is None:
            raise ValueError(f"topic is {topic!r}; allowed: triggers, control, tasks")
        raw_key, raw_value = (item.encode() if isinstance(item, str) else item for item in (key, value))
        self._log.append(name, raw_key, raw_value, self._now_ms)
        if fiber.current() is None:
            self._owner_settle()

    # --- looking -----------------------------------------------------------------------------------------------------

    def runs(self, task: str | None = None) -> list[Run]:
        """All runs, or those of one task, in the order in which they began."""
        return runs_of(self.history(task), self._lines)

    def history(self, task: str | None = None) -> list[HistoryRecord]:
        """All events, or those of one task, in order: `kind`, `epoch`, `at_ms`, `fields`."""
        events = (decode_history(entry.raw_value or b"") for entry in self._log.read(self.topics.runs))
        return [event for event in events if task is None or event.task == task]

    def state(self, task: str) -> TaskState | None:
        """What the owner last recorded of the task."""
        from fencepost.wire.state import decode_state

        entries = [entry for entry in self._log.read(self.topics.state) if entry.raw_key == task.encode()]
        return decode_state(entries[-1].raw_value or b"") if entries else None

    def status(self, task: str) -> str:
        """idle, running or backoff."""
        state = self.state(task)
        return Status.IDLE.value if state is None else state.status.value

    def dead_letters(self) -> list[DeadLetter]:
        """What could not be handled, and work that was given up."""
        return [decode_dead_letter(entry.raw_value or b"") for entry in self._log.read(self.topics.dead_letter)]

    def records(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """(key, value) of all records of a topic, such as "runs" or "state"."""
        return [(entry.raw_key, entry.raw_value) for entry in self._log.read(f"{self.topics.namespace}.{topic}")]

    # --- inside ------------------------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """Called by a run: take so long in this world's time. Outside of a run time passes."""
        running = fiber.current()
        if running is None:
            self.advance(seconds)
        else:
            running.park(self._now_ms + max(0, round(seconds * 1000)))

    def close(self) -> None:
        """Ends what still runs."""
        self.stop_workers(crash=True)

    def _owner_settle(self) -> None:
        if self._owner is not None:
            self._owner.settle()

    def _outside_runs(self) -> None:
        if threading.get_ident() != self._thread:
            raise RuntimeError("time is moved by the test alone, not by a run or another thread")


@contextmanager
def world(
    app: App,
    *,
    at: str | datetime = "2026-01-01T00:00:00Z",
    seed: int = 0,
    slots: int = 1000,
    stand_ins: Mapping[str, Function] | None = None,
) -> Iterator[World]:
    """A world in which the app runs. Within it `app.trigger` and the like go to the world, and `time.sleep` in a run
    takes virtual time.

    at: where its clock begins (RFC 3339 with offset). seed: of the jitter of retries. slots: runs at once. stand_ins:
    for commands (by their executable) and URLs, which are never called: functions that get the context; that of a
    command returns the exit code. What has none waits.
    """
    made = World(app, at, seed, slots, stand_ins or {})
    client, sleep = app._client, time.sleep
    app._client = (os.getpid(), made)  # type: ignore[assignment]

    def slept(seconds: Any, /) -> None:
        if fiber.current() is None:
            sleep(seconds)
        else:
            made.sleep(float(seconds))

    time.sleep = slept
    try:
        yield made
    finally:
        made.close()
        time.sleep = sleep
        app._client = client


def _ms(duration: Duration) -> int:
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else parse_duration(duration)
    return round(seconds * 1000)


def _task(task: str) -> str:
    try:
        return check_task_id(task)
    except ValueError as error:
        raise BadRecord(str(error), "task") from error

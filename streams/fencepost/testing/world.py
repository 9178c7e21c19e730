"""A world: an app, a clock that stands still until it is told, and a log."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from fencepost.app import App
from fencepost.core.task import Definition, Status, TaskState
from fencepost.core.times import parse_duration, parse_rfc3339
from fencepost.kafka.producer import Outgoing, Sent
from fencepost.kafka.scan import Record
from fencepost.kafka.topics import Topics
from fencepost.testing import fiber
from fencepost.testing.client import Asked, WorldClient
from fencepost.testing.log import Log
from fencepost.testing.owner import Owner
from fencepost.testing.run import Run, runs_of, when
from fencepost.testing.running import Function
from fencepost.wire.dead_letter import DeadLetter, decode_dead_letter
from fencepost.wire.history import HistoryRecord, decode_history
from fencepost.wire.state import decode_state

Duration = str | float | timedelta


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
        self.client = WorldClient(self)
        self._begin()
        self._settle()

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
            self._settle()

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

    def trigger(self, task: str, payload: Any = None, **more: Any) -> Asked:
        """Ask for a run, with what `Client.trigger` takes: delay, run_at, id, priority, headers, … Raises BadRecord."""
        asked: Asked = self.client.trigger(task, payload, **more)
        return asked

    def define(self, *definitions: Definition) -> None:
        """Publish definitions, as `App.apply` and `fencepost apply` do. Raises BadRecord."""
        self.client.apply(definitions)

    def delete(self, task: str) -> None:
        """Take the task's own definition away."""
        self.client.delete(task)

    def cancel(self, task: str, reason: str | None = None, *, waiting: bool = True) -> None:
        """End the run that is on, and what waits unless `waiting` is False."""
        self.client.cancel(task, reason, waiting=waiting)

    def pause(self, task: str, reason: str | None = None, *, on_resume: str | None = None) -> None:
        """Hold back every start of the task. on_resume: miss, latest or all of the slots of the pause."""
        self.client.pause(task, reason, on_resume=on_resume)

    def resume(self, task: str) -> None:
        """Let the task start again."""
        self.client.resume(task)

    def rerun(self, task: str, epoch: int | None = None, **more: Any) -> Asked:
        """Run a past run again, or `slot`; with what `Client.rerun` takes. Raises NotKept, BadRecord."""
        asked: Asked = self.client.rerun(task, epoch, **more)
        return asked

    def backfill(self, task: str, since: str | datetime, until: str | datetime, **more: Any) -> None:
        """Have the slots of a past range run; with what `Client.backfill` takes. Raises BadRecord."""
        self.client.backfill(task, since, until, **more)

    def produce(self, topic: str, key: str | bytes | None, value: str | bytes | None) -> None:
        """A record just as it is, to "triggers", "control" or "tasks"."""
        name = {"triggers": self.topics.triggers, "control": self.topics.control, "tasks": self.topics.tasks}.get(topic)
        if name is None:
            raise ValueError(f"topic is {topic!r}; allowed: triggers, control, tasks")
        self.take([Outgoing(name, key, value.encode() if isinstance(value, str) else value)])

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

    def take(self, records: list[Outgoing]) -> list[Sent]:
        """Records into the log; what they call for is done, unless a run sent them: then when it sleeps or ends."""
        sent = []
        for record in records:
            headers = [(name, raw.encode() if isinstance(raw, str) else raw) for name, raw in record.headers.items()]
            key = record.key.encode() if isinstance(record.key, str) else record.key
            entry = self._log.append(record.topic, key, record.value, self._now_ms, headers)
            sent.append(Sent(record.topic, 0, entry.number, self._now_ms))
        if fiber.current() is None:
            self._settle()
        return sent

    def at_offset(self, topic: str, offset: int) -> Record | None:
        """One record as a reader of Kafka gets it."""
        entries = self._log.read(topic, offset)[:1]
        return next((Record(topic, 0, offset, e.raw_key, e.raw_value, e.raw_headers, e.at_ms) for e in entries), None)

    def new_id(self) -> str:
        """For a trigger without one: the same in every world of the same seed."""
        return f"{self._chance.getrandbits(128):032x}"

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
        fiber.dismiss()

    def _settle(self) -> None:
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
    app._client = (os.getpid(), made.client)

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

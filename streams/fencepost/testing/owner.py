"""The owner of all tasks of a world: what a lane does with its partitions, in one thread and one partition.

The core decides, the worker's own code makes records of it; they go into the log, and a restart reads them back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fencepost.codec import BadRecord
from fencepost.core.attendance import Attendance
from fencepost.core.broadcasts import is_for_a_worker, needs_attendance
from fencepost.core.commands import Launch
from fencepost.core.events import (
    Checkpointed,
    Defined,
    Deleted,
    Event,
    Interrupted,
    Signalled,
    Started,
    Triggered,
    Woken,
)
from fencepost.core.illegal import IllegalEvent
from fencepost.core.machine import new_task, startable, step, wake_at_ms
from fencepost.core.task import Cause, Definition, Task
from fencepost.kafka.topics import Topics
from fencepost.kafka.transaction import OutRecord
from fencepost.testing.log import Entry, Log
from fencepost.testing.running import Function, Running, function_of
from fencepost.wire.control import read_control
from fencepost.wire.dead_letter import encode_dead_letter, refused
from fencepost.wire.definition import read_definition
from fencepost.wire.trigger import read_trigger
from fencepost.wire.work import check_checkpoint
from fencepost.worker.batch import Encoder, Part
from fencepost.worker.declared import Declared
from fencepost.worker.line import Line
from fencepost.worker.orders import order_of
from fencepost.worker.restore import Restore
from fencepost.worker.timers import Timers

WORKER = "world"
LANE, NONCE = f"{WORKER}/0", "world"
LEASE_TTL_S = 30.0
STEPS_AT_ONCE = 100_000


class Endless(RuntimeError):
    """Things happen without end at one moment: a task that triggers itself without a delay, say."""


class Owner:
    """`settle` does all that is due now; `next_ms` says when something is due next."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        now_ms: Callable[[], int],
        declared: Iterable[Definition],
        functions: Mapping[str, Function],
        stand_ins: Mapping[str, Function],
        slots: int,
        chance: random.Random,
        taken: dict[str, int],
        lines: dict[tuple[str, int], list[str]],
    ) -> None:
        """taken: by topic, the next offset, as a group's offsets are; it outlives the owner. lines: what runs log."""
        self._log, self._topics, self._now_ms = log, topics, now_ms
        self._functions, self._stand_ins, self._slots, self._chance = functions, stand_ins, slots, chance
        self._declared = Declared(declared, functions)
        self._encoder = Encoder(topics, 1, LANE, f"/fencepost/{topics.namespace}/world")
        self._taken, self.lines = taken, lines
        self.tasks: dict[str, Task] = {}
        self.running: dict[str, Running] = {}
        self._definitions: dict[str, Definition] = {}
        self._timers = Timers()
        self._line = Line()
        self._waits: dict[str, int] = {}  # runs found on after a crash: until when their lease may live

    # --- beginning and ending ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Read the log as whoever takes over a partition does."""
        restore = Restore(NONCE, 0, (0, 1))
        for entry in self._log.read(self._topics.state):
            restore.state_record(entry)  # type: ignore[arg-type]
        for entry in self._log.read(self._topics.tasks):
            restore.task_record(entry)  # type: ignore[arg-type]
        found = restore.finish()
        self._taken[self._topics.tasks] = self._log.end(self._topics.tasks)
        self._definitions = found.definitions
        self.tasks = dict(found.tasks)
        for task_id in sorted({*self.tasks, *self._definitions, *self._declared.exact}):
            definition = self._definition(task_id)
            if definition is not None:
                self._apply(task_id, Defined(_here(definition), restored=True))
            elif task_id in self.tasks and not self.tasks[task_id].state.never_defined:
                self._apply(task_id, Deleted())
        for task_id, task in self.tasks.items():
            if task.state.run is not None:
                self._waits[task_id] = self._now_ms() + round(task.state.run.lease_ttl_s * 1000)

    def stop(self, crash: bool) -> None:
        """All runs end here. Orderly: they are recorded as interrupted; in a crash nobody says anything."""
        for task_id, running in list(self.running.items()):
            running.fiber.kill()
            del self.running[task_id]
            if not crash:
                self._apply(task_id, Interrupted(running.order.epoch, Cause.STOPPED, self._spread()))

    # --- time --------------------------------------------------------------------------------------------------------

    def next_ms(self) -> int | None:
        times = [self._timers.next_ms(), *self._waits.values(), *(run.next_ms() for run in self.running.values())]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def settle(self) -> None:
        """Until nothing more is to be done now. Raises Endless."""
        for running in list(self.running.values()):
            running.look_outside()
        for _ in range(STEPS_AT_ONCE):
            if not (self._read() or self._wake() or self._go_on() or self._end_waits() or self._start()):
                return
        raise Endless(
            f"more than {STEPS_AT_ONCE:,} steps at one moment; last of all: {next(iter(self.running), 'none')}"
        )

    # --- one step of each kind; True: something was done -------------------------------------------------------------

    def _read(self) -> bool:
        topics = self._topics
        takers = (
            (topics.tasks, self._definition_record),
            (topics.control, self._control),
            (topics.triggers, self._trigger),
        )
        for topic, take in takers:
            for entry in self._log.read(topic, self._taken.get(topic, 0))[:1]:
                self._taken[topic] = entry.number + 1
                try:
                    take(entry)
                except BadRecord as bad:
                    self._refuse(entry, bad)
                return True
        return False

    def _wake(self) -> bool:
        for task_id in self._timers.due(self._now_ms(), 1):
            self._apply(task_id, Woken())
            return True
        return False

    def _go_on(self) -> bool:
        for task_id, running in list(self.running.items()):
            if not running.fiber.over and running.go_on() and not running.fiber.over:
                return True
            if running.fiber.over:
                del self.running[task_id]
                self._apply(task_id, running.ended(self._spread()))
                return True
        return False

    def _end_waits(self) -> bool:
        for task_id, until_ms in list(self._waits.items()):
            if until_ms <= self._now_ms():
                del self._waits[task_id]
                run = self.tasks[task_id].state.run
                if run is not None:
                    self._apply(task_id, Interrupted(run.epoch, Cause.LOST, self._spread()))
                return True
        return False

    def _start(self) -> bool:
        if len(self.running) >= self._slots:
            return False
        now_ms = self._now_ms()
        while (task_id := self._line.take()) is not None:
            task = self.tasks[task_id]
            if not startable(task, now_ms):
                continue
            assert task.definition is not None
            there, able = None, self._has_function(task)
            if task.definition.broadcast and needs_attendance(task):
                there = Attendance(1, ((WORKER, 0),))
            elif not able and not is_for_a_worker(task):
                continue  # without its handler it waits, as on workers that lack that
            ttl_s = max(task.definition.lease_ttl_s or 0.0, LEASE_TTL_S)
            self._apply(task_id, Started(LANE, NONCE, ttl_s, WORKER, able, there))
            return True
        return False

    def _has_function(self, task: Task) -> bool:
        handler = None if task.definition is None else task.definition.handler
        return handler is not None and function_of(handler, self._functions, self._stand_ins) is not None

    # --- records -----------------------------------------------------------------------------------------------------

    def _definition_record(self, entry: Entry) -> None:
        task_id, definition = read_definition(entry.raw_key, entry.raw_value)
        if definition is None:
            self._definitions.pop(task_id, None)
            definition = self._declared.find(task_id)
        else:
            self._definitions[task_id] = definition
        if definition is not None:
            self._apply(task_id, Defined(_here(definition)))
        elif task_id in self.tasks:
            self._apply(task_id, Deleted())

    def _control(self, entry: Entry) -> None:
        task_id, event = read_control(entry.raw_key, entry.raw_value, entry.number)
        self._meet(task_id)
        known = self.tasks.get(task_id)
        if not isinstance(event, Signalled) and (
            known is None or (known.definition is None and known.state.never_defined)
        ):
            raise BadRecord("no task of this ID is known", "task")
        self._apply(task_id, event)

    def _trigger(self, entry: Entry) -> None:
        trigger = read_trigger(entry.raw_key, entry.raw_value, entry.raw_headers, entry.number, entry.at_ms)
        self._meet(trigger.task)
        if trigger.task not in self.tasks and trigger.shard is None:
            raise BadRecord("no task of this ID is defined", "task")
        self._apply(trigger.task, Triggered(trigger))

    def _refuse(self, entry: Entry, bad: BadRecord) -> None:
        letter = refused(
            bad, entry.topic, 0, entry.number, entry.raw_key, entry.raw_value, entry.raw_headers, self._now_ms()
        )
        self._log.append(
            self._topics.dead_letter, entry.raw_key, encode_dead_letter(letter, LANE, NONCE), self._now_ms()
        )

    def _definition(self, task_id: str) -> Definition | None:
        return self._definitions.get(task_id) or self._declared.find(task_id)

    def _meet(self, task_id: str) -> None:
        known = self.tasks.get(task_id)
        definition = self._definition(task_id)
        if definition is not None and (known is None or known.definition is None):
            self._apply(task_id, Defined(_here(definition), restored=True))

    # --- deciding ----------------------------------------------------------------------------------------------------

    def _apply(self, task_id: str, event: Event) -> None:
        """One step of the core, its records, then its acts. An event that is not legal now is left out."""
        now_ms = self._now_ms()
        before = self.tasks.get(task_id) or new_task(task_id)
        try:
            after, commands = step(before, event, now_ms)
        except IllegalEvent:
            self._line_up(task_id, before, now_ms)  # its time to start may have come
            return
        self.tasks[task_id] = after
        part = Part(0, NONCE, now_ms)
        part.touch(task_id, before)
        part.add(task_id, after, commands)
        self._write(part)
        self._timers.set(task_id, self._wake_ms(after, event, now_ms))
        self._line_up(task_id, after, now_ms)
        for _, launch in part.launches:
            self._launch(task_id, after, launch)
        for _, stop in part.stops:
            running = self.running.get(task_id)
            if running is not None and running.order.epoch == stop.epoch:
                running.stop(stop.reason, stop.grace_s)

    def _line_up(self, task_id: str, task: Task, now_ms: int) -> None:
        if startable(task, now_ms):
            self._line.add(task_id, task, now_ms)

    def _wake_ms(self, task: Task, event: Event, now_ms: int) -> int | None:
        """A time that has passed and that a Woken did nothing about needs another event, not the same again."""
        at_ms = wake_at_ms(task, now_ms)
        return None if at_ms is not None and at_ms <= now_ms and isinstance(event, Woken) else at_ms

    def _write(self, part: Part) -> None:
        states, others = self._encoder.records(part, {})
        for record in (*states, *others, *(letter.record for letter in self._encoder.letters(part))):
            self._put(record)

    def _put(self, record: OutRecord) -> None:
        headers = [(name, raw.encode() if isinstance(raw, str) else raw) for name, raw in record.headers or ()]
        self._log.append(record.topic, record.key, record.value, self._now_ms(), headers)

    def _launch(self, task_id: str, task: Task, launch: Launch) -> None:
        definition = task.definition
        assert definition is not None
        function = function_of(definition.handler, self._functions, self._stand_ins)
        assert function is not None
        order = order_of(task_id, task, launch, 0, NONCE)
        lines = self.lines.setdefault((task_id, order.epoch), [])
        self.running[task_id] = Running(order, function, self._now_ms, self._checkpoint, lines)

    def _checkpoint(self, task_id: str, epoch: int, data: Any) -> None:
        """Raises ValueError for what cannot be kept, as in a runner."""
        check_checkpoint(data)
        self._apply(task_id, Checkpointed(epoch, data))

    def _spread(self) -> float:
        return self._chance.uniform(-1.0, 1.0)


def _here(definition: Definition) -> Definition:
    """A world has no pools: what is for one runs here."""
    return definition if definition.pool is None else replace(definition, pool=None)

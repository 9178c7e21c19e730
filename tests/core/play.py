"""A task played through the machine by hand: the shortest way to say what happens in a test."""

from __future__ import annotations

from typing import Any

from fencepost.core.commands import Command, History, Launch, Stop
from fencepost.core.events import (
    Adopted,
    Cancelled,
    Checkpointed,
    Defined,
    Deleted,
    Ended,
    Event,
    Interrupted,
    Paused,
    Resumed,
    Signalled,
    Started,
    Trigger,
    Triggered,
    Woken,
)
from fencepost.core.machine import new_task, startable, step, wake_at_ms
from fencepost.core.signals import Signal
from fencepost.core.task import Cause, Definition, Outcome, PythonHandler, Status, Task

T0 = 1_700_000_000_000  # 2023-11-14T22:13:20Z
SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
TASK = "report"


def definition(**fields: Any) -> Definition:
    return Definition(TASK, PythonHandler("report"), **fields)


class Play:
    """Holds the task and the time; every call returns the commands of one step. `log` has all commands so far."""

    def __init__(self, given: Definition | None = None, now_ms: int = T0) -> None:
        self.task = new_task(TASK)
        self.now_ms = now_ms
        self.log: list[Command] = []
        self.offset = -1
        if given is not None:
            self.step(Defined(given))
            self.log.clear()

    def step(self, event: Event) -> tuple[Command, ...]:
        self.task, commands = step(self.task, event, self.now_ms)
        self.log.extend(commands)
        return commands

    # -- events --

    def define(self, restored: bool = False, **fields: Any) -> tuple[Command, ...]:
        return self.step(Defined(definition(**fields), restored))

    def delete(self) -> tuple[Command, ...]:
        return self.step(Deleted())

    def trigger(self, id: str | None = None, **fields: Any) -> tuple[Command, ...]:
        self.offset += 1
        return self.step(Triggered(Trigger(TASK, id, offset=self.offset, **fields)))

    def wake(self) -> tuple[Command, ...]:
        return self.step(Woken())

    def start(self, lane: str = "lane", nonce: str = "nonce") -> tuple[Command, ...]:
        return self.step(Started(lane, nonce, 15.0))

    def end(self, outcome: Outcome = Outcome.SUCCEEDED, **fields: Any) -> tuple[Command, ...]:
        return self.step(Ended(self.epoch, outcome, **fields))

    def fail(self, spread: float = 0.0) -> tuple[Command, ...]:
        return self.end(Outcome.FAILED, error="boom", spread=spread)

    def interrupt(self, cause: Cause, spread: float = 0.0) -> tuple[Command, ...]:
        return self.step(Interrupted(self.epoch, cause, spread))

    def adopt(self, nonce: str) -> tuple[Command, ...]:
        return self.step(Adopted(self.epoch, nonce))

    def checkpoint(self, data: Any) -> tuple[Command, ...]:
        return self.step(Checkpointed(self.epoch, data))

    def cancel(self, **fields: Any) -> tuple[Command, ...]:
        return self.step(Cancelled(**fields))

    def pause(self, **fields: Any) -> tuple[Command, ...]:
        return self.step(Paused(**fields))

    def resume(self, **fields: Any) -> tuple[Command, ...]:
        return self.step(Resumed(**fields))

    def signal(self, signal: Signal, sender: str = "other", offset: int = -1) -> tuple[Command, ...]:
        return self.step(Signalled(signal, offset, sender))

    # -- time --

    def sleep(self, ms: int) -> None:
        self.now_ms += ms

    def sleep_until_woken(self) -> tuple[Command, ...]:
        """To the time that the task waits for, and the event for it."""
        at_ms = wake_at_ms(self.task, self.now_ms)
        assert at_ms is not None
        self.now_ms = max(self.now_ms, at_ms)
        return self.wake()

    # -- looking --

    @property
    def epoch(self) -> int:
        return self.task.state.epoch

    @property
    def status(self) -> Status:
        return self.task.state.status

    @property
    def startable(self) -> bool:
        return startable(self.task, self.now_ms)

    def told(self, kind: str) -> list[dict[str, Any]]:
        """The fields of every history event of a kind so far."""
        return [command.fields for command in self.log if isinstance(command, History) and command.kind == kind]

    def kinds(self) -> list[str]:
        return [command.kind for command in self.log if isinstance(command, History)]

    def of(self, kind: type[Any]) -> list[Any]:
        return [command for command in self.log if isinstance(command, kind)]

    @property
    def launches(self) -> list[Launch]:
        return self.of(Launch)

    @property
    def stops(self) -> list[Stop]:
        return self.of(Stop)


def waiting_ids(task: Task) -> list[str | None]:
    return [work.trigger_id for work in task.waiting]

"""Two benches that the same scenarios run on: a world in memory, and a worker on a real Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fencepost.client import Client
from fencepost.core.task import Definition, PythonHandler
from fencepost.core.times import format_ms
from fencepost.testing import World
from fencepost.wire.dead_letter import DeadLetter, decode_dead_letter
from fencepost.wire.history import HistoryRecord
from tests.scenarios.stage import Stage

Told = tuple[str, int | None]


class Hands(Protocol):
    """What a `Client` and a `World` have in common."""

    def trigger(self, task: str, payload: Any = None, **more: Any) -> Any: ...

    def cancel(self, task: str, reason: str | None = None, *, waiting: bool = True) -> Any: ...

    def pause(self, task: str, reason: str | None = None, *, on_resume: str | None = None) -> Any: ...

    def resume(self, task: str) -> Any: ...

    def rerun(self, task: str, epoch: int | None = None, **more: Any) -> Any: ...

    def backfill(self, task: str, since: str, until: str, **more: Any) -> Any: ...

    def delete(self, task: str) -> Any: ...

    def history(self, task: str) -> list[HistoryRecord]: ...


class Bench:
    """One scenario's tasks begin with its name, so that scenarios can share a namespace."""

    def __init__(self, name: str, hands: Hands) -> None:
        self.name, self.hands = name, hands

    # -- what differs ----------------------------------------------------------------------------------------------

    def wait(self, what: str, condition: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def publish(self, definition: Definition) -> None:
        raise NotImplementedError

    def produce(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        raise NotImplementedError

    def letters(self) -> list[DeadLetter]:
        raise NotImplementedError

    def restart(self, crash: bool = False) -> None:
        raise NotImplementedError

    def now_ms(self) -> int:
        raise NotImplementedError

    # -- what is the same ------------------------------------------------------------------------------------------

    def id(self, task: str = "t") -> str:
        return f"{self.name}/{task}"

    def define(self, function: str, task: str = "t", **fields: Any) -> str:
        """Returns the ID once its owner knows it."""
        before = self.kinds(task).count("defined")
        self.publish(Definition(self.id(task), PythonHandler(function), **fields))
        self.wait(f"{task} is defined", lambda: self.kinds(task).count("defined") > before)
        return self.id(task)

    def trigger(self, payload: Any = None, task: str = "t", **more: Any) -> None:
        self.hands.trigger(self.id(task), payload, **more)

    def history(self, task: str = "t") -> list[HistoryRecord]:
        return self.hands.history(self.id(task))

    def kinds(self, task: str = "t") -> list[str]:
        return [event.kind for event in self.history(task)]

    def told(self, task: str = "t") -> list[Told]:
        """(kind, epoch) of all but the definitions."""
        return [(event.kind, event.epoch) for event in self.history(task) if event.kind != "defined"]

    def of(self, kind: str, task: str = "t") -> list[HistoryRecord]:
        return [event for event in self.history(task) if event.kind == kind]

    def until(self, kind: str, count: int = 1, task: str = "t") -> HistoryRecord:
        """The `count`-th such event, once it is there."""
        self.wait(f"{count} {kind} of {task}", lambda: len(self.of(kind, task)) >= count)
        return self.of(kind, task)[count - 1]

    def letters_of(self, task: str = "t") -> list[DeadLetter]:
        return [letter for letter in self.letters() if letter.key == self.id(task).encode()]

    def soon(self, ms: int) -> str:
        """A time that comes in so many milliseconds."""
        return format_ms(self.now_ms() + ms)


class InMemory(Bench):
    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, world)
        self._world = world

    def wait(self, what: str, condition: Callable[[], Any]) -> Any:
        return self._world.advance_until(condition, "1h", what)

    def publish(self, definition: Definition) -> None:
        self._world.define(definition)

    def produce(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        self._world.produce(topic, key, value)

    def letters(self) -> list[DeadLetter]:
        return self._world.dead_letters()

    def restart(self, crash: bool = False) -> None:
        self._world.restart("3s", crash=crash)

    def now_ms(self) -> int:
        return round(self._world.now.timestamp() * 1000)


class OnKafka(Bench):
    """A worker of a stage; `hands` is the Python client."""

    _workers = 0

    def __init__(self, name: str, stage: Stage) -> None:
        super().__init__(name, stage.client)
        self._stage = stage
        if not stage.workers:
            self._begin()

    def _begin(self) -> None:
        OnKafka._workers += 1
        name = f"w{OnKafka._workers}"
        # What still runs when it is told to stop is stopped at once.
        self._stage.start(name, "--app", "tests.conformance.app:app", stop_limit_s=0.0)
        self._stage.all_hold(name)

    def wait(self, what: str, condition: Callable[[], Any]) -> Any:
        return self._stage.wait(what, condition)

    def publish(self, definition: Definition) -> None:
        self._stage.define(definition)

    def produce(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        world = self._stage.world
        partition = world.partition((key or b"").decode())
        world.produce_to(f"{world.settings.namespace}.{topic}", partition, key, value)

    def letters(self) -> list[DeadLetter]:
        records = self._stage.world.records(self._stage.world.topics.dead_letter)
        return [decode_dead_letter(record.value or b"") for record in records]

    def restart(self, crash: bool = False) -> None:
        running = [worker for worker in self._stage.workers.values() if worker.exit_code is None]
        for worker in running:
            if crash:
                worker.kill()
            else:
                import signal

                worker.signal(signal.SIGTERM)
                self._stage.wait_ended(worker)
        self._begin()

    def now_ms(self) -> int:
        import time

        return time.time_ns() // 1_000_000


__all__ = ["Bench", "Client", "InMemory", "OnKafka"]

"""Several tasks at once: what one tells another arrives in its order, whenever the test says so, as it is recorded."""

from __future__ import annotations

from collections import deque
from typing import Any

from fencepost.core.commands import Ask, Command, Define, DropFan, DropJoin, History, Launch, PutFan, PutJoin, Send
from fencepost.core.events import Defined, Deleted, Ended, Event, Signalled, Started, Trigger, Triggered, Woken
from fencepost.core.links import Fan, Join
from fencepost.core.machine import new_task, restored_task, startable, step
from fencepost.core.task import Definition, Outcome, PythonHandler, Task
from fencepost.wire.control import encode_signal, read_control
from fencepost.wire.definition import encode_definition, read_definition
from fencepost.wire.fan import decode_fan, encode_fan
from fencepost.wire.links import decode_join, decode_links, encode_join, encode_links
from fencepost.wire.trigger import encode_asked, read_trigger
from tests.core.play import T0


class Net:
    """`waiting`: what is on its way, by (sender, target). Everything goes through its record.

    `records`: of joins and fans, by (task, kind, number).
    """

    def __init__(self, **after: Any) -> None:
        """Each task by its name, with the names it runs after, or all the fields of its definition."""
        self.tasks: dict[str, Task] = {}
        self.now_ms = T0
        self.log: list[tuple[str, Command]] = []
        self.waiting: dict[tuple[str, str], deque[tuple[str, bytes | None]]] = {}
        self.records: dict[tuple[str, str, int], bytes] = {}
        self._offsets: dict[str, int] = {}
        for name, fields in after.items():
            self.define(name, **(fields if isinstance(fields, dict) else {"after": tuple(fields)}))
        self.deliver_all()

    def step(self, name: str, event: Event) -> tuple[Command, ...]:
        task, commands = step(self.tasks.get(name) or new_task(name), event, self.now_ms)
        self.tasks[name] = task
        for command in commands:
            self.log.append((name, command))
            if isinstance(command, Send):
                self._on_its_way(name, command.to_task, "signal", encode_signal(name, command.signal, "lane", "nonce"))
            elif isinstance(command, Ask):
                self._on_its_way(name, command.trigger.task, "trigger", encode_asked(command.trigger))
            elif isinstance(command, Define):
                value = None if command.definition is None else encode_definition(command.definition)
                self._on_its_way(name, command.to_task, "definition", value)
            elif isinstance(command, PutJoin):
                self.records[name, "join", command.join.number] = encode_join(name, command.join, "lane", "nonce")
            elif isinstance(command, PutFan):
                self.records[name, "fan", command.fan.number] = encode_fan(name, command.fan, "lane", "nonce")
            elif isinstance(command, DropJoin):
                self.records.pop((name, "join", command.number))
            elif isinstance(command, DropFan):
                self.records.pop((name, "fan", command.number), None)
        return commands

    def _on_its_way(self, sender: str, target: str, kind: str, value: bytes | None) -> None:
        self.waiting.setdefault((sender, target), deque()).append((kind, value))

    def define(self, name: str, restored: bool = False, **fields: Any) -> None:
        self.step(name, Defined(Definition(name, PythonHandler(name), **fields), restored))

    def delete(self, name: str) -> None:
        self.step(name, Deleted())

    def offset(self, name: str) -> int:
        self._offsets[name] = self._offsets.get(name, -1) + 1
        return self._offsets[name]

    def trigger(self, name: str, id: str | None = None, **fields: Any) -> None:
        self.step(name, Triggered(Trigger(name, id, offset=self.offset(name), **fields)))

    def wake(self, name: str) -> None:
        self.step(name, Woken())

    def run(self, name: str, outcome: Outcome = Outcome.SUCCEEDED, result: Any = None) -> Launch:
        """Start what waits of the task, and end it."""
        launched = next(
            command for command in self.step(name, Started("lane", "nonce", 15.0)) if isinstance(command, Launch)
        )
        self.step(name, Ended(launched.run.epoch, outcome, result))
        return launched

    def startable(self, name: str) -> bool:
        return startable(self.tasks[name], self.now_ms)

    def run_all(self) -> list[str]:
        """Until nothing can start and nothing is on its way; what ran, in its order."""
        ran = []
        while True:
            self.deliver_all()
            ready = [name for name in self.tasks if self.startable(name)]
            if not ready:
                return ran
            ran.append(ready[0])
            self.run(ready[0], result={"of": ready[0]})

    # -- signals --

    def deliver(self, sender: str, target: str) -> tuple[Command, ...]:
        kind, value = self.waiting[sender, target].popleft()
        if not self.waiting[sender, target]:
            del self.waiting[sender, target]
        if kind == "trigger":
            return self.step(target, Triggered(read_trigger(target.encode(), value, None, self.offset(target), 0)))
        if kind == "definition":
            _, definition = read_definition(target.encode(), value)
            return self.step(target, Deleted() if definition is None else Defined(definition))
        _, event = read_control(target.encode(), value, self.offset(f"{target} control"))
        assert isinstance(event, Signalled)
        return self.step(target, event)

    def deliver_all(self) -> None:
        while self.waiting:
            self.deliver(*next(iter(self.waiting)))

    # -- takeover --

    def restore(self, name: str, definition: Definition | None = None) -> None:
        """The task as its next owner reads it, records and all."""
        task = self.tasks[name]
        works = [*task.waiting, *task.delayed]
        links, joins, fans = task.links, list[Join](), list[Fan]()
        if links is not None:
            joins = [
                decode_join(value) for (of, kind, _), value in self.records.items() if (of, kind) == (name, "join")
            ]
            fans = [decode_fan(value) for (of, kind, _), value in self.records.items() if (of, kind) == (name, "fan")]
            assert sorted(joins, key=lambda join: join.number) == list(links.joins)
            assert sorted(fans, key=lambda fan: fan.number) == list(links.fans)
            links = None if links.empty else decode_links(encode_links(name, links, "lane", "nonce"))
        known = task.definition if definition is None else definition
        self.tasks[name] = restored_task(task.state, works, task.checkpoint, links, joins, fans)
        if known is not None:
            self.step(name, Defined(known, restored=True))

    # -- looking --

    def told(self, name: str, kind: str | None = None) -> list[dict[str, Any]]:
        return [
            {"kind": command.kind, **command.fields}
            for task, command in self.log
            if task == name and isinstance(command, History) and kind in (None, command.kind)
        ]

    def kinds(self, name: str) -> list[str]:
        return [item["kind"] for item in self.told(name) if item["kind"] != "defined"]

    def children(self, name: str) -> tuple[str, ...]:
        links = self.tasks[name].links
        return () if links is None else links.children

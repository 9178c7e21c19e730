"""A batch: what became of some events, on its way through one transaction.

One batch is open at a time. It is offered until it was read back, or until its partitions are no longer held; so its
parts are kept per partition, each under the nonce it was built under.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fencepost.core.commands import (
    Ask,
    Command,
    Define,
    DropCheckpoint,
    DropClaim,
    DropFan,
    DropJoin,
    DropLeftOut,
    DropLinks,
    DropWork,
    Forget,
    GiveUp,
    Hand,
    History,
    Launch,
    PutCheckpoint,
    PutClaim,
    PutFan,
    PutGroup,
    PutJoin,
    PutLeftOut,
    PutLinks,
    PutWork,
    Send,
    Stop,
)
from fencepost.core.evolve import builder
from fencepost.core.ids import partition_of, side_key
from fencepost.core.limits import Claim
from fencepost.core.links import Fan, Join, Links
from fencepost.core.place import MAIN
from fencepost.core.task import Task, TaskState, Work
from fencepost.kafka.topics import Topics
from fencepost.kafka.transaction import Headers, OutRecord
from fencepost.wire.control import encode_signal
from fencepost.wire.dead_letter import encode_dead_letter, given_up
from fencepost.wire.definition import encode_definition
from fencepost.wire.fan import FAN, encode_fan
from fencepost.wire.floor import encode_floor
from fencepost.wire.history import encode_history
from fencepost.wire.left_out import LEFT_OUT, encode_left_out
from fencepost.wire.limit import CLAIM, GROUP, encode_claim, encode_group
from fencepost.wire.links import JOIN, LINKS, encode_join, encode_links
from fencepost.wire.state import encode_state
from fencepost.wire.trigger import encode_asked
from fencepost.wire.work import CHECKPOINT, WORK, encode_checkpoint, encode_work
from fencepost.worker.letters import Letter
from fencepost.worker.orders import RunEnded
from fencepost.worker.restore import FLOOR_KEY


@dataclass(slots=True)
class Part:
    """What one partition contributes."""

    partition: int
    nonce: str
    at_ms: int  # when it was decided
    before: dict[str, TaskState] = field(default_factory=dict)  # confirmed states of the tasks touched
    after: dict[str, Task] = field(default_factory=dict)
    side: dict[tuple[str, str, int], Work | Any] = field(default_factory=dict)  # (task, kind, number); None: tombstone
    history: list[tuple[str, History]] = field(default_factory=list)
    given_up: list[tuple[str, GiveUp]] = field(default_factory=list)
    sends: list[tuple[str, Send | Define | Ask]] = field(default_factory=list)  # (sender, what it tells another task)
    handed: list[tuple[str, Hand]] = field(default_factory=list)  # definitions for pools
    extra: list[OutRecord] = field(default_factory=list)  # forwarded records
    letters: list[Letter] = field(default_factory=list)  # of records that could not be handled
    launches: list[tuple[str, Launch]] = field(default_factory=list)
    stops: list[tuple[str, Stop]] = field(default_factory=list)
    reports: list[RunEnded] = field(default_factory=list)  # inputs that exist nowhere else
    triggers_next: int = -1  # the offset up to which triggers were taken; -1: none
    control_next: int = -1
    forgotten: dict[str, int] = field(default_factory=dict)  # task -> its last epoch; its state goes
    floor: int = -1  # the partition's epoch floor, where it was raised
    offered: bool = False  # in the last attempt; one that is not held any more is left out of it

    def touch(self, task_id: str, before: Task) -> None:
        if task_id not in self.before:
            self.before[task_id] = before.state

    def add(self, task_id: str, after: Task, commands: Iterable[Command]) -> None:
        """What a step said. Work that is put and dropped within one batch leaves no record."""
        self.after[task_id] = after
        for command in commands:
            kind = type(command)
            if kind is History:
                self.history.append((task_id, command))  # type: ignore[arg-type]
            elif kind is Launch:
                self.launches.append((task_id, command))  # type: ignore[arg-type]
            elif kind is PutWork:
                work = command.work  # type: ignore[union-attr]
                self.side[task_id, WORK, work.seq] = work
            elif kind is DropWork:
                seq = command.seq  # type: ignore[union-attr]
                key = (task_id, WORK, seq)
                if seq >= self.before[task_id].next_seq:
                    self.side.pop(key, None)
                else:
                    self.side[key] = None
            elif kind is Stop:
                self.stops.append((task_id, command))  # type: ignore[arg-type]
            elif kind is PutCheckpoint:
                self.side[task_id, CHECKPOINT, 0] = _Checkpoint(command.data)  # type: ignore[union-attr]
            elif kind is DropCheckpoint:
                self.side[task_id, CHECKPOINT, 0] = None
            elif kind is Send or kind is Define or kind is Ask:
                self.sends.append((task_id, command))  # type: ignore[arg-type]
            elif kind is Hand:
                self.handed.append((task_id, command))  # type: ignore[arg-type]
            elif kind is PutLinks:
                self.side[task_id, LINKS, 0] = command.links  # type: ignore[union-attr]
            elif kind is DropLinks:
                self.side[task_id, LINKS, 0] = None
            elif kind is PutJoin:
                self.side[task_id, JOIN, command.join.number] = command.join  # type: ignore[union-attr]
            elif kind is DropJoin:
                self.side[task_id, JOIN, command.number] = None  # type: ignore[union-attr]
            elif kind is PutFan:
                self.side[task_id, FAN, command.fan.number] = command.fan  # type: ignore[union-attr]
            elif kind is DropFan:
                self.side[task_id, FAN, command.number] = None  # type: ignore[union-attr]
            elif kind is PutClaim:
                self.side[task_id, CLAIM, command.claim.number] = command.claim  # type: ignore[union-attr]
            elif kind is DropClaim:
                self.side[task_id, CLAIM, command.number] = None  # type: ignore[union-attr]
            elif kind is PutGroup:
                self.side[task_id, GROUP, 0] = command.next_ms  # type: ignore[union-attr]
            elif kind is PutLeftOut:
                self.side[task_id, LEFT_OUT, 0] = _LeftOut(command.slots_ms)  # type: ignore[union-attr]
            elif kind is DropLeftOut:
                self.side[task_id, LEFT_OUT, 0] = None
            elif kind is GiveUp:
                self.given_up.append((task_id, command))  # type: ignore[arg-type]
            elif kind is not Forget:  # Forget needs no record: the state keeps the epoch
                raise TypeError(f"the machine gave a command that the lane does not know: {kind.__name__}")

    def forget(self, task_id: str, epoch: int, floor: int) -> None:
        """Nothing else of this task is in this part: its state goes, and the floor keeps its epoch."""
        self.forgotten[task_id] = epoch
        self.floor = max(self.floor, floor)
        self.history.append((task_id, History("forgotten", epoch, self.at_ms, {})))

    @property
    def empty(self) -> bool:
        changed = self.after or self.forgotten or self.extra or self.letters
        return not (changed or self.triggers_next >= 0 or self.control_next >= 0)


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    data: Any


@dataclass(frozen=True, slots=True)
class _LeftOut:
    slots_ms: tuple[int, ...]


_Side = Work | Links | Join | Fan | Claim | float | _Checkpoint | _LeftOut | None
_new_record = builder(OutRecord)

Expected = dict[tuple[str, int, bytes], bytes | None]


@dataclass(slots=True)
class Batch:
    """Parts by partition."""

    at_ms: int
    parts: dict[int, Part] = field(default_factory=dict)
    written: bool = False  # found in the log after an unclear outcome: its records must not be written a second time

    def part(self, partition: int, nonce: str) -> Part:
        known = self.parts.get(partition)
        if known is None:
            known = self.parts[partition] = Part(partition, nonce, self.at_ms)
        return known


class Encoder:
    """Turns parts into records. One per lane; knows its names."""

    def __init__(self, topics: Topics, partition_count: int, lane: str, source: str) -> None:
        self._topics = topics
        self._home = topics.of(MAIN)
        self._partition_count = partition_count
        self._lane = lane
        self._source = source
        self._headers: dict[str, Headers] = {}

    def records(self, part: Part, expected: Expected) -> tuple[list[OutRecord], list[OutRecord]]:
        """(records of the state topic, the rest); fills in what must be read back."""
        return self._state_records(part, expected), self._other_records(part)

    def _state_records(self, part: Part, expected: Expected) -> list[OutRecord]:
        topic, number, lane, nonce = self._topics.state, part.partition, self._lane, part.nonce
        out: list[OutRecord] = []
        before = part.before
        for task_id, task in part.after.items():
            if task.state is before[task_id]:
                continue
            key, value = task_id.encode(), encode_state(task.state, lane, nonce)
            expected[topic, number, key] = value
            out.append(_new_record(topic, number, key, value))
        for place, content in part.side.items():
            key = side_key(*place).encode()
            side = self._side(place[0], content, nonce)
            expected[topic, number, key] = side
            out.append(_new_record(topic, number, key, side))
        if part.forgotten:
            self._forget(part, out, expected)
        return out

    def _forget(self, part: Part, out: list[OutRecord], expected: Expected) -> None:
        """The floor, and a tombstone for each state whose epoch it keeps from now on."""
        topic, number = self._topics.state, part.partition
        records: list[tuple[bytes, bytes | None]] = [(FLOOR_KEY, encode_floor(part.floor, self._lane, part.nonce))]
        records += [(task_id.encode(), None) for task_id in part.forgotten]
        for key, value in records:
            expected[topic, number, key] = value
            out.append(_new_record(topic, number, key, value))

    def _other_records(self, part: Part) -> list[OutRecord]:
        number, lane, nonce = part.partition, self._lane, part.nonce
        out: list[OutRecord] = []
        runs = self._topics.runs
        for task_id, event in part.history:
            value = encode_history(task_id, event, lane, nonce)
            out.append(_new_record(runs, number, task_id.encode(), value, self._ce(event.kind)))
        out.extend([self._told(sender, send, nonce) for sender, send in part.sends])
        for task_id, handed in part.handed:
            definition = None if handed.definition is None else encode_definition(handed.definition)
            # A pool has as many partitions as its namespace.
            out.append(_new_record(self._topics.of(handed.pool).tasks, number, task_id.encode(), definition))
        out.extend(part.extra)
        return out

    def _told(self, sender: str, send: Send | Define | Ask, nonce: str) -> OutRecord:
        """What one task's owner writes for another's, on the partition of the ID it is for."""
        topics, value = self._topics, None
        if isinstance(send, Send):
            # Those of a pool know other tasks by way of the namespace, whose owners hand on what is for a pool.
            topic = (self._home if send.pool is None else topics.of(send.pool)).control
            to_task, value = send.to_task, encode_signal(send.sender or sender, send.signal, self._lane, nonce)
        elif isinstance(send, Ask):
            topic, to_task, value = topics.triggers, send.trigger.task, encode_asked(send.trigger)
        else:
            topic, to_task = topics.tasks, send.to_task
            if send.definition is not None:
                value = encode_definition(send.definition)
        key = to_task.encode()
        return _new_record(topic, partition_of(key, self._partition_count), key, value)

    def letters(self, part: Part) -> list[Letter]:
        """Of records that could not be handled, and of work that was given up."""
        number = part.partition
        out: list[Letter] = []
        for task_id, command in part.given_up:
            letter = given_up(
                task_id, command, part.after[task_id].state.epoch, self._topics.triggers, number, part.at_ms,
            )  # fmt: skip
            value = encode_dead_letter(letter, self._lane, part.nonce)
            key, headers = task_id.encode(), self._ce("given_up")
            out.append(Letter(_new_record(self._topics.dead_letter, number, key, value, headers)))
        return [*out, *part.letters]

    def _side(self, task_id: str, content: _Side, nonce: str) -> bytes | None:
        if content is None:
            return None
        if isinstance(content, _LeftOut):
            return encode_left_out(task_id, content.slots_ms, self._lane, nonce)
        if isinstance(content, Links):
            return encode_links(task_id, content, self._lane, nonce)
        if isinstance(content, Claim):
            return encode_claim(task_id, content, self._lane, nonce)
        if isinstance(content, float):
            return encode_group(task_id, content, self._lane, nonce)
        if isinstance(content, Join):
            return encode_join(task_id, content, self._lane, nonce)
        if isinstance(content, Fan):
            return encode_fan(task_id, content, self._lane, nonce)
        if isinstance(content, _Checkpoint):
            return encode_checkpoint(task_id, content.data, self._lane, nonce)
        return encode_work(task_id, content, self._lane, nonce)

    def _ce(self, kind: str) -> Headers:
        known = self._headers.get(kind)
        if known is None:
            # No ce_id of its own: key, epoch and kind name the event, and a header made for each record is not free.
            known = self._headers[kind] = [
                ("content-type", b"application/json"),
                ("ce_type", f"fencepost.{kind}".encode()),
                ("ce_source", self._source.encode()),
            ]
        return known

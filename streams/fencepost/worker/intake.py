"""From what was read (triggers, control, definitions) to events of tasks, dead letters and forwarded records."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from fencepost.codec import BadRecord, loads
from fencepost.core.broadcasts import is_for_a_worker, needs_attendance
from fencepost.core.events import Defined, Deleted, Event, Paused, Resumed, Signalled, Started, Triggered
from fencepost.core.evolve import changer
from fencepost.core.fans import SHARD_MARKS
from fencepost.core.ids import check_task_id, partition_of
from fencepost.core.limits import PREFIX
from fencepost.core.machine import IllegalEvent, startable, step
from fencepost.core.making import new_triggered
from fencepost.core.place import MAIN
from fencepost.core.signals import (
    Ask,
    Carry,
    GaveBack,
    GiveBack,
    ShardDone,
    Subscribe,
    TellChildren,
    Unsubscribe,
    UpstreamDone,
    UpstreamMissed,
)
from fencepost.core.task import Definition, Task
from fencepost.kafka.bounds import Bounds
from fencepost.kafka.reader import Reader
from fencepost.kafka.topics import POOL_MARK
from fencepost.kafka.transaction import Headers, OutRecord
from fencepost.wire.control import read_control
from fencepost.wire.dead_letter import encode_dead_letter, refused
from fencepost.wire.definition import read_definition
from fencepost.wire.trigger import read_trigger
from fencepost.worker.batch import Part
from fencepost.worker.context import LaneContext
from fencepost.worker.letters import Letter
from fencepost.worker.look_up import LookUp
from fencepost.worker.partition import Partition
from fencepost.worker.pools import Pools

if TYPE_CHECKING:
    from fencepost.kafka.reader import Message

_met = changer(Task, "definition")

FORWARDED = "fencepost-forwarded"
# In IDs that are defined in the transaction that first asks for them.
_SHARD_MARKS = tuple([mark.encode() for mark in SHARD_MARKS])


class Taken(Enum):
    """What became of a trigger."""

    NOT_YET = "not_yet"  # its ID is not known, and the definitions still have to be read to their end as of now
    ASIDE = "aside"  # forwarded, or a dead letter
    TAKEN = "taken"
    STARTED = "started"


NOT_YET, TAKEN, STARTED = Taken.NOT_YET, Taken.TAKEN, Taken.STARTED


class Intake:
    """Applies records to the tasks of one partition, into one part of a batch."""

    def __init__(self, context: LaneContext, reader: Reader, bounds: Bounds) -> None:
        self._context = context
        self._bounds = bounds
        self._reader = reader
        self._pools = Pools(context.topics, bounds, context.log)

    def apply(self, partition: Partition, part: Part, task_id: str, event: Event, now_ms: int) -> bool:
        """Step one task. False: the event is not legal now (a stale report); nothing changed."""
        before = partition.task(task_id)
        try:
            after, commands = step(before, event, now_ms)
        except IllegalEvent as illegal:
            self._context.log.info("event left out", task=task_id, why=str(illegal))
            return False
        if commands or after.state is not before.state or task_id in part.after:
            part.touch(task_id, before)
            part.add(task_id, after, commands)
        if after is not before or task_id in partition.tasks:
            partition.put(task_id, after, now_ms)
        return True

    def definitions(self, partition: Partition, part: Part, limit: int, now_ms: int) -> int:
        """Changed definitions, in their order, `limit` at most; returns how many were taken."""
        taken = 0
        for key, value in partition.misplaced:
            self._send_home(partition, part, key, value)
        partition.misplaced = []
        while partition.changes and taken < limit:
            message = partition.changes[0]
            try:
                task_id, definition = read_definition(message.key(), message.value())
                if definition is not None and not self._has_a_place(definition, by_now=True):
                    break  # Kafka does not say now whether there is such a pool
                bad = None
            except BadRecord as problem:
                bad = problem
            taken += 1
            partition.changes.popleft()
            if self._definition_elsewhere(partition, part, message):
                continue
            if bad is not None:
                self._dead_letter(partition, part, message, bad)
                continue
            if definition is None:
                partition.definitions.pop(task_id, None)
                definition = self._context.declared.find(task_id)
            else:
                partition.definitions[task_id] = definition
            self.define(partition, part, task_id, definition, now_ms)
        return taken

    def _has_a_place(self, definition: Definition, *, by_now: bool = False) -> bool:
        """False: that cannot be told now. Raises BadRecord where the definition belongs elsewhere, or to no pool."""
        own = self._context.topics.pool
        if own is not None:
            if definition.arrival is None or definition.pool != own:
                main = self._context.topics.main
                raise BadRecord(
                    f"the tasks of a pool are defined in its namespace, {main}, with pool = {own!r}", "pool"
                )
            return True
        if definition.arrival is not None:
            raise BadRecord("is for pools, and written by Fencepost alone; leave it out", "arrival")
        if definition.pool is None:
            return True
        there = self._pools.has(definition.pool, by_now=by_now)
        if there is False:
            raise BadRecord(
                f"{definition.pool!r} is not initialised; run `fencepost init --pool {definition.pool}`", "pool"
            )
        return there is not None

    def _pool_is_there(self, definition: Definition) -> bool:
        return (
            definition.pool is None or self._context.topics.pool is not None or bool(self._pools.has(definition.pool))
        )

    def _definition_elsewhere(self, partition: Partition, part: Part, message: Message) -> bool:
        """Whether a definition is on the wrong partition; then it goes home, and a tombstone takes its place.

        Taken here, its ID would have two owners. The tombstone carries a mark, so that it is not taken for a deletion.
        """
        key, task_id = message.key(), _plain_id(message)
        if key is None or task_id is None or task_id in partition.tasks or task_id in partition.definitions:
            return False
        if partition_of(key, self._context.partition_count) == partition.number:
            return False
        if not any(name == FORWARDED for name, _value in _headers(message) or ()):
            self._send_home(partition, part, key, message.value())
        return True

    def _send_home(self, partition: Partition, part: Part, key: bytes, value: bytes | None) -> None:
        topic, right = self._context.topics.tasks, partition_of(key, self._context.partition_count)
        mark: Headers = [(FORWARDED, f"{topic}-{partition.number}".encode())]
        part.extra.append(OutRecord(topic, right, key, value, mark))
        if value is not None:
            part.extra.append(OutRecord(topic, partition.number, key, None, mark))
        self._context.log.warning("definition forwarded", task=key.decode("utf-8", "replace"), partition=right)

    def define(
        self, partition: Partition, part: Part, task_id: str, definition: Definition | None, now_ms: int, *,
        restored: bool = False,
    ) -> None:  # fmt: skip
        if task_id in partition.unreadable:
            return
        partition.without_handler.discard(task_id)
        if definition is not None and not self._pool_is_there(definition):
            return  # it waits for its pool, or for the next owner; nothing of it starts here
        if definition is not None:
            self.apply(partition, part, task_id, Defined(definition, restored), now_ms)
        elif task_id in partition.tasks:
            self.apply(partition, part, task_id, Deleted(), now_ms)

    def control(self, partition: Partition, part: Part, now_ms: int) -> None:
        """Operators' records, and what other tasks' owners tell; taken even when triggers are held back."""
        while partition.control:
            message = partition.control[0]
            named = _plain_id(message) or _body_id(message)
            known = self._defined(partition, named) or self._is_a_limit(named)
            if not known and not self._looked_up(partition, partition.control):
                return
            if named is not None and not self._can_be_met(partition, named):
                return
            partition.control.popleft()
            part.control_next = _offset(message) + 1
            if self._forwarded(partition, part, message, named):
                continue
            try:
                task_id, event = read_control(message.key(), message.value(), _offset(message))
                if isinstance(event, Paused | Resumed) and self._is_back(message):
                    event = replace(event, late=True)
            except BadRecord as bad:
                self._dead_letter(partition, part, message, bad)
                continue
            if task_id in partition.unreadable:
                self._dead_letter(partition, part, message, self._unreadable(task_id))
            elif isinstance(event, Signalled) and isinstance(event.signal, Unsubscribe) and self._is_back(message):
                continue  # the sender may have asked again since; if it did not, it says so once it is told something
            elif self._is_away(partition, part, message, task_id, now_ms, event):
                continue
            elif isinstance(event, Signalled):
                # Also where no task of this ID is known: what that means is for the kind of signal to say.
                self._meet(partition, part, task_id, now_ms)
                self.apply(partition, part, task_id, event, now_ms)
            elif not self._defined(partition, task_id) and partition.task(task_id).state.never_defined:
                self._dead_letter(partition, part, message, BadRecord("no task of this ID is known", "task"))
            else:
                self._meet(partition, part, task_id, now_ms)
                self.apply(partition, part, task_id, event, now_ms)

    def _can_be_met(self, partition: Partition, named: str) -> bool:
        """False: its definition names a pool, and Kafka does not say now whether that is there.

        Taken now, what is told to the task would be told to one that is not defined.
        """
        known = partition.tasks.get(named)
        if known is None or known.definition is not None or self._context.topics.pool is not None:
            return True
        definition = self._definition(partition, named)
        return definition is None or definition.pool is None or self._pools.has(definition.pool) is not None

    def _is_a_limit(self, named: str | None) -> bool:
        """No definition has to be looked up for what is asked and given back under a limit's key."""
        return named is not None and named.startswith(PREFIX)

    def _defined(self, partition: Partition, task_id: str | None) -> bool:
        if task_id is None:
            return False
        known = partition.tasks.get(task_id)
        return (known is not None and known.definition is not None) or self._definition(partition, task_id) is not None

    def trigger(self, partition: Partition, part: Part, start: Started | None, now_ms: int) -> Taken:
        """Take the next trigger; and start its task in the same breath if `start` says so and it can.

        The caller makes sure that there is a trigger. This is the hot path: one look at each thing.
        """
        message = partition.triggers[0]
        task_id = _plain_id(message) or _body_id(message)
        known = partition.tasks.get(task_id) if task_id is not None else None
        definition = known.definition if known is not None else None
        nowhere: BadRecord | None = None
        if definition is None and task_id is not None:
            definition = self._definition(partition, task_id)
            if definition is None and not self._looked_up(partition, partition.triggers):
                return NOT_YET
            if definition is not None and definition.pool is not None:
                try:
                    if not self._has_a_place(definition):
                        return NOT_YET
                except BadRecord as bad:
                    nowhere = bad
        partition.triggers.popleft()
        offset = _offset(message)
        part.triggers_next = offset + 1
        if known is None and self._forwarded(partition, part, message, task_id):
            return Taken.ASIDE
        try:
            trigger = read_trigger(message.key(), message.value(), _headers(message), offset, message.timestamp()[1])
            if trigger.task in partition.unreadable:
                raise self._unreadable(trigger.task)
            if nowhere is not None:
                raise nowhere
            if known is None and definition is None and trigger.shard is None:
                raise BadRecord("no task of this ID is defined", "task")
        except BadRecord as bad:
            self._dead_letter(partition, part, message, bad)
            return Taken.ASIDE
        if known is None or known.definition is None:
            if definition is not None:
                self._introduce(partition, part, trigger.task, definition, now_ms)
            else:  # of a shard that is gone: the task it was part of waits for a word on it
                partition.tasks.setdefault(trigger.task, partition.task(trigger.task))
            known = partition.tasks[trigger.task]
        if known.state.place is not None and self._handed_on(partition, part, message, known):
            return Taken.ASIDE
        return self._triggered(partition, part, new_triggered(trigger), start, now_ms)

    def _triggered(
        self, partition: Partition, part: Part, event: Triggered, start: Started | None, now_ms: int
    ) -> Taken:
        task_id = event.trigger.task
        before = partition.tasks[task_id]
        after, commands = step(before, event, now_ms)
        part.touch(task_id, before)
        started = start is not None and startable(after, now_ms) and self.can_run(partition, task_id, after)
        if started and start is not None:
            after, more = step(after, start, now_ms)
            commands += more
        part.add(task_id, after, commands)
        partition.put(task_id, after, now_ms)
        return STARTED if started else TAKEN

    def can_run(self, partition: Partition, task_id: str, task: Task) -> bool:
        """Whether this worker has the task's handler. If not, its runs wait here, and that is said once.

        What a broadcast asks of this worker does not wait. A broadcast itself is begun elsewhere, see `Decisions`.
        """
        definition = task.definition
        assert definition is not None
        if definition.broadcast and needs_attendance(task):
            return False
        settings = self._context.settings
        if self._context.declared.can_run(definition.handler, settings.commands, settings.call_hosts):
            return True
        if definition.shard_of and is_for_a_worker(task):
            return False
        if task_id not in partition.without_handler:
            partition.without_handler.add(task_id)
            self._context.log.warning("no handler here for a task; its run waits", task=task_id)
        return False

    def _looked_up(self, partition: Partition, messages: deque[Message]) -> bool:
        """Whether the definitions count for the first of these: they were read to their end since it came."""
        topic, number = messages[0].topic() or "", partition.number
        key = messages[0].key() or b""
        # What a pool is handed is of one transaction with the requests that go along, too.
        of_shards = any(mark in key for mark in _SHARD_MARKS) or self._context.topics.pool is not None
        look_up = partition.look_ups.get((topic, of_shards))
        if look_up is None:
            look_up = LookUp(self._context.topics.tasks, number, of_shards=of_shards)
            partition.look_ups[topic, of_shards] = look_up
        offsets = _offset(messages[0]), _offset(messages[-1])
        return look_up.done(*offsets, self._reader, self._bounds, bool(partition.changes), self._context.log)

    def _definition(self, partition: Partition, task_id: str) -> Definition | None:
        return partition.definitions.get(task_id) or self._context.declared.find(task_id)

    def _meet(self, partition: Partition, part: Part, task_id: str, now_ms: int) -> None:
        """Give a task that was only defined so far its definition."""
        known = partition.tasks.get(task_id)
        if known is not None and known.definition is not None:
            return
        definition = self._definition(partition, task_id)
        if definition is not None:
            self._introduce(partition, part, task_id, definition, now_ms)

    def _introduce(self, partition: Partition, part: Part, task_id: str, definition: Definition, now_ms: int) -> None:
        if not self._pool_is_there(definition):
            return
        known = partition.tasks.get(task_id)
        plain = (
            definition.schedule is None and not definition.paused and not definition.after and definition.pool is None
        )
        if known is None and plain:
            partition.tasks[task_id] = _met(partition.task(task_id), definition)  # nothing of it to record yet
        else:
            self.apply(partition, part, task_id, Defined(definition, restored=True), now_ms)

    def _forwarded(self, partition: Partition, part: Part, message: Message, task_id: str | None) -> bool:
        """A record on the wrong partition goes to the right one, in the transaction that consumes it.

        Clients with another partitioner land the same key elsewhere; left there, one ID would have two owners.
        The origin goes along as a deduplication ID where the trigger has none of its own.
        """
        if task_id is None:
            return False
        key = task_id.encode()
        right = partition_of(key, self._context.partition_count)
        if right == partition.number:
            return False
        part.extra.append(self._as_forwarded(message, message.topic() or "", right, key))
        return True

    def _as_forwarded(self, message: Message, topic: str, partition: int, key: bytes) -> OutRecord:
        headers: Headers = [(name, value) for name, value in _headers(message) or () if value is not None]
        names = {name for name, _value in headers}
        origin = f"{message.topic()}-{message.partition()}-{_offset(message)}"
        # Also one that was forwarded before and replayed to the wrong place again: left here its ID had two owners.
        headers = [(name, value) for name, value in headers if name != FORWARDED]
        headers.append((FORWARDED, origin.encode()))
        if "ce_id" not in names and not _has_id(message):
            headers.append(("ce_id", origin.encode()))
        return OutRecord(topic, partition, key, message.value(), headers)

    def _is_away(
        self, partition: Partition, part: Part, message: Message, task_id: str, now_ms: int, event: Event
    ) -> bool:
        """Whether a control record is for a task that is in a pool, or has left this one: then it is handed on."""
        if isinstance(event, Signalled):
            moves = isinstance(event.signal, Subscribe) and event.signal.number
            if moves or isinstance(event.signal, Carry | GaveBack | TellChildren):
                return False  # between the two sides of a move
            if isinstance(event.signal, Ask | GiveBack):
                return False  # for the key of a limit, which shares nothing with a task of the same ID
            if isinstance(event.signal, UpstreamDone | UpstreamMissed | ShardDone) and not self._context.topics.pool:
                return False  # joined and gathered here, wherever the task runs
        self._meet(partition, part, task_id, now_ms)
        known = partition.tasks.get(task_id)
        if known is None or known.state.place is None:
            return False
        if isinstance(event, Paused | Resumed) and known.state.place.recalled:
            return False  # in the order in which it is said: what goes to the pool now may be back at any time
        return self._handed_on(partition, part, message, known)

    def _is_back(self, message: Message) -> bool:
        """Whether a pool of this namespace had the record, and sent it home after its task."""
        pool = f"{self._context.topics.main}{POOL_MARK}".encode()
        came = [value for name, value in _headers(message) or () if name == FORWARDED and value is not None]
        return self._context.topics.pool is None and any(origin.startswith(pool) for origin in came)

    def _handed_on(self, partition: Partition, part: Part, message: Message, task: Task) -> bool:
        """A record for a task that is elsewhere goes there, in the transaction that consumes it.

        Triggers for one that was called back from a pool stay here: they wait for it.
        """
        place, topics = task.state.place, self._context.topics
        assert place is not None
        if not place.away:
            return False
        is_trigger = message.topic() == topics.triggers
        if place.recalled and is_trigger:
            return False
        there = topics.of(place.pool or MAIN)
        topic = there.triggers if is_trigger else there.control
        part.extra.append(self._as_forwarded(message, topic, partition.number, task.state.task.encode()))
        return True

    def _unreadable(self, task_id: str) -> BadRecord:
        return BadRecord(f"the state of {task_id} was written by a newer version; this worker leaves it alone", "task")

    def _dead_letter(self, partition: Partition, part: Part, message: Message, bad: BadRecord) -> None:
        self._context.meters.dead_letter(bad.field or "record")
        self._context.log.warning(
            "dead letter",
            topic=message.topic(),
            partition=message.partition(),
            offset=_offset(message),
            field=bad.field,
            why=bad.reason,
        )
        letter = refused(
            bad,
            message.topic() or "",
            message.partition() or 0,
            _offset(message),
            message.key(),
            message.value(),
            _headers(message),
            self._context.clock.now_ms(),
        )
        value = encode_dead_letter(letter, self._context.lane, partition.nonce)
        record = OutRecord(self._context.topics.dead_letter, partition.number, message.key(), value)
        part.letters.append(Letter(record, (letter.topic, letter.partition, letter.offset)))


def _offset(message: Message) -> int:
    return message.offset()  # type: ignore[return-value] # a record that was read has one


def _headers(message: Message) -> list[tuple[str, bytes | None]] | None:
    return message.headers()  # type: ignore[return-value] # from a consumer they are always such pairs


def _plain_id(message: Message) -> str | None:
    """The task ID that the key says, if it is one at all."""
    key = message.key()
    if not key:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None


def _body_id(message: Message) -> str | None:
    """The task ID in the body of a record without key."""
    value = message.value()
    if message.key() is not None or not value:
        return None
    try:
        body = loads(value)
    except BadRecord:
        return None  # a dead letter, by whoever reads it in full
    task_id = body.get("task") if isinstance(body, dict) else None
    return task_id if isinstance(task_id, str) and _is_id(task_id) else None


def _is_id(text: str) -> bool:
    try:
        check_task_id(text)
    except ValueError:
        return False
    return True


def _has_id(message: Message) -> bool:
    try:
        return read_trigger(message.key(), message.value(), _headers(message), 0, 0).id is not None
    except BadRecord:
        return True

"""Triggering and steering tasks from outside a worker: each call is a record in Kafka, confirmed before it returns."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fencepost.claims import LimitStatus, read_limits
from fencepost.codec import BadRecord
from fencepost.core import ids
from fencepost.core.backfills import MOST_LEFT_OUT
from fencepost.core.ids import MAX_ID_BYTES, check_task_id
from fencepost.core.spread import has_room_for_slots
from fencepost.core.task import Definition, Outcome, TaskState
from fencepost.core.times import parse_duration, parse_rfc3339
from fencepost.kafka.namespace import NamespaceInfo, load_namespace
from fencepost.kafka.producer import Outgoing, Producer, Sent
from fencepost.kafka.scan import Record, scan, scan_key
from fencepost.kafka.tail import Tail
from fencepost.kafka.topics import Topics
from fencepost.repeat import NotKept, past_request, succeeded_slots
from fencepost.settings import Settings
from fencepost.wire.control import encode_backfill, encode_backfill_stop, encode_control, encode_rerun
from fencepost.wire.dead_letter import DeadLetter, decode_dead_letter
from fencepost.wire.definition import definition_from_json, definition_to_json, encode_definition
from fencepost.wire.headers import ce_headers
from fencepost.wire.history import HistoryRecord, decode_history
from fencepost.wire.state import decode_state
from fencepost.wire.trigger import encode_trigger

if TYPE_CHECKING:
    from fencepost.audit.verify import Verdict

__all__ = ["AS_IT_WAS", "Client", "Handle", "NotKept", "RunFailed", "RunStatus"]

AS_IT_WAS: Any = object()  # the payload of a rerun, unless another one is given
_ENDS = {outcome.value for outcome in Outcome}
# Brokers' clocks differ a little, and the first event of a run may lie on another broker than its trigger.
_LOOK_BACK_MS = 60_000
_DUPLICATES_MS = 24 * 3_600_000  # how long a trigger's ID is remembered


class RunFailed(Exception):
    """The run that a handle waited for did not succeed.

    `outcome` is failed, timed_out, cancelled, interrupted or skipped; `cause` says why where that is known.
    """

    def __init__(self, task: str, outcome: str, cause: str | None, epoch: int | None) -> None:
        where = task if epoch is None else f"{task}, epoch {epoch}"
        super().__init__(f"{where}: {outcome}" + (f": {cause}" if cause else ""))
        self.task = task
        self.outcome = outcome
        self.cause = cause
        self.epoch = epoch


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Where a trigger stands. `kind`: sent (nothing heard yet), waiting, running, retrying, or how it ended.

    `done`: nothing more will happen to it. `result` is what the run returned. A trigger that could not be taken is
    "refused": it lies among the dead letters.
    """

    kind: str
    done: bool = False
    epoch: int | None = None
    attempt: int | None = None
    result: Any = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class Handle:
    """A trigger that was sent: `id` names it, `at_ms` is when Kafka took it."""

    client: Client = field(repr=False, compare=False)
    task: str
    id: str
    partition: int
    offset: int
    at_ms: int
    topic: str | None = None  # that it was sent to; None: triggers

    def status(self) -> RunStatus:
        """Where it stands now, from the history."""
        status = RunStatus("sent")
        for event in self.client.history(self.task, since_ms=self._since_ms):
            status = after(status, event, self.id)
        if status.cause == "duplicate":
            return self._original() or status
        if status.kind == "sent" and (refused := self._refusal(self.client.refusals(self.partition, self._since_ms))):
            return refused
        return status

    def result(self, timeout: float | timedelta | None = None) -> Any:
        """What the run returned; waits for it, `timeout` seconds at most (None: for ever).

        Raises RunFailed when it ended otherwise, TimeoutError when it had not ended in time.
        """
        status = self.wait(timeout)
        if status.kind != Outcome.SUCCEEDED.value:
            raise RunFailed(self.task, status.kind, status.cause, status.epoch)
        return status.result

    def wait(self, timeout: float | timedelta | None = None) -> RunStatus:
        """Like `result`, but returns how it ended, whatever that is. Raises TimeoutError."""
        timeout_s = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        status = RunStatus("sent")
        with (
            self.client.follow(self.task, self._since_ms) as tail,
            self.client.follow_refusals(self.partition, self._since_ms) as refusals,
        ):
            while True:
                left_s = 1.0 if until_s is None else until_s - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError(f"{self.task}: trigger {self.id} is {status.kind} after {timeout_s:g} s")
                if status.kind == "sent" and (refused := self._refusal(refusals.poll(0.0))) is not None:
                    return refused
                for record in tail.poll(min(left_s, 0.5)):
                    event = _history(record, self.task)
                    status = status if event is None else after(status, event, self.id)
                    if status.cause == "duplicate" and (original := self._original()) is not None and original.done:
                        return original
                    if status.done and status.cause != "duplicate":
                        return status

    @property
    def _since_ms(self) -> int:
        return self.at_ms - _LOOK_BACK_MS

    def _refusal(self, records: Iterable[Record]) -> RunStatus | None:
        """The dead letter that this trigger became, if it is among the records."""
        place = (self.topic or self.client.topics.triggers, self.partition, self.offset)
        for record in records:
            letter = _letter(record)
            if letter is not None and (letter.topic, letter.partition, letter.offset) == place and letter.epoch is None:
                reason = f"{letter.field}: {letter.reason}" if letter.field else letter.reason
                return RunStatus("refused", True, None, None, None, reason)
        return None

    def _original(self) -> RunStatus | None:
        """Another trigger with this ID came first: how that one stands."""
        status = RunStatus("sent")
        for event in self.client.history(self.task, since_ms=self._since_ms - _DUPLICATES_MS):
            if event.fields.get("cause") != "duplicate":
                status = after(status, event, self.id)
        return status if status.kind != "sent" else None


class Client:
    """Sends triggers, controls and definitions. Nothing is connected before the first call. One thread at a time."""

    def __init__(self, settings: Settings, timeout_s: float = 30.0) -> None:
        self.settings = settings
        self.topics = Topics(settings.namespace)
        self._timeout_s = timeout_s
        self._producer: Producer | None = None
        self._info: NamespaceInfo | None = None

    @property
    def info(self) -> NamespaceInfo:
        """The namespace's record, read once. Raises NotInitialised, WrongNamespace, Unavailable."""
        if self._info is None:
            self._info = load_namespace(self.settings)
        return self._info

    def trigger(
        self,
        task: str,
        payload: Any = None,
        *,
        delay: str | float | timedelta | None = None,
        run_at: str | datetime | None = None,
        id: str | None = None,
        priority: int | None = None,
        headers: Mapping[str, str] | None = None,
        cycle: str | None = None,
    ) -> Handle:
        """Ask for a run of the task, now, after `delay` (seconds, or "10s"), or at `run_at` (RFC 3339, or a datetime).

        id: of the triggers of a task with the same one within a day, one is taken; made up if not given. cycle: what
        it belongs to, for tasks that run after this one and others; without it the run begins a cycle of its own.
        Raises BadRecord naming the field, DeliveryFailed, DeliveryUnknown (send again with the same `id`).
        """
        trigger_id = uuid.uuid4().hex if id is None else id
        value = encode_trigger(
            id=trigger_id,
            payload=payload,
            delay_s=None if delay is None else _delay_s(delay),
            run_at_ms=None if run_at is None else _time_ms(run_at, "run_at"),
            priority=priority,
            headers=None if headers is None else dict(headers),
            cycle=cycle,
        )
        sent = self._send(self.topics.triggers, "trigger", task, value, trigger_id)
        return Handle(self, task, trigger_id, sent.partition, sent.offset, sent.at_ms)

    def cancel(self, task: str, reason: str | None = None, *, waiting: bool = True) -> Sent:
        """End the run that is on, and what waits unless `waiting` is False."""
        return self._control(task, encode_control("cancel", reason=reason, waiting=None if waiting else False))

    def pause(self, task: str, reason: str | None = None, *, on_resume: str | None = None) -> Sent:
        """Hold back every start of the task.

        on_resume: what becomes of the slots of the pause: "miss" (unless said otherwise, they count as missed),
        "latest" (the newest one runs), or "all" (they run one after the other).
        """
        return self._control(task, encode_control("pause", reason=reason, on_resume=on_resume))

    def resume(self, task: str) -> Sent:
        """Let the task start again."""
        return self._control(task, encode_control("resume"))

    def rerun(
        self,
        task: str,
        epoch: int | None = None,
        *,
        slot: str | datetime | None = None,
        payload: Any = AS_IT_WAS,
        id: str | None = None,
        priority: int | None = None,
    ) -> Handle:
        """Run a past run again: `epoch`, or the last one; or a slot, whether it ever ran or not.

        It is a new request with what the past run was given, unless `payload` says otherwise. For a slot, and where a
        run got the definition's payload, that is the definition's of now. Raises NotKept (the run, or its payload, is
        no longer in Kafka), BadRecord, DeliveryFailed, DeliveryUnknown.
        """
        if epoch is not None and slot is not None:
            raise BadRecord("epoch and slot exclude each other; give one of them", "slot")
        given = payload is not AS_IT_WAS
        past = None
        slot_ms = None if slot is None else _time_ms(slot, "slot")
        if slot_ms is None:
            past = past_request(self, _task(task), epoch, with_payload=not given)
            slot_ms = past.slot_ms
        request_id = uuid.uuid4().hex if id is None else id
        value = encode_rerun(
            id=request_id,
            epoch=None if past is None else past.epoch,
            slot_ms=slot_ms,
            payload=payload if given else None if past is None else past.payload,
            headers=None if past is None else past.headers,
            priority=priority if priority is not None or past is None else past.priority,
        )
        sent = self._send(self.topics.control, "control", task, value, request_id)
        return Handle(self, task, request_id, sent.partition, sent.offset, sent.at_ms, self.topics.control)

    def backfill(
        self,
        task: str,
        since: str | datetime,
        until: str | datetime,
        *,
        again: bool = False,
        id: str | None = None,
        max_runs: int = 1,
    ) -> Sent:
        """Have the slots of a past range run, oldest first and one after the other, behind all other requests.

        max_runs above 1, up to 100: so many at once, on IDs of their own, `TASK/backfill/0` and so on, beside the task.
        Those that have succeeded, as far as history tells, are left out unless `again`. id: names it in history.
        Raises BadRecord, also where more slots would have to be left out than fit; then narrow the range.
        """
        since_ms, until_ms = _time_ms(since, "since"), _time_ms(until, "until")
        left_out = [] if again else succeeded_slots(self, _task(task), since_ms, until_ms)
        if len(left_out) > MOST_LEFT_OUT:
            reason = f"{len(left_out)} slots of the range ran already; at most {MOST_LEFT_OUT} can be left out"
            raise BadRecord(f"{reason}: narrow the range, or have them run again", "since")
        if max_runs > 1 and not has_room_for_slots(task):
            raise BadRecord(f"{task!r} leaves no room for the IDs of its backfill in {MAX_ID_BYTES} bytes", "task")
        backfill_id = uuid.uuid4().hex[:8] if id is None else id
        return self._control(task, encode_backfill(backfill_id, since_ms, until_ms, left_out, max_runs))

    def stop_backfill(self, task: str, reason: str | None = None) -> Sent:
        """No more slots of the task's backfill are to run; what is on goes on."""
        return self._control(task, encode_backfill_stop(reason))

    def apply(self, definitions: Iterable[Definition]) -> list[Sent]:
        """Publish definitions: all of them are checked before the first is sent.

        Raises BadRecord, NotInitialised (a pool that is not there).
        """
        values = []
        pools: set[str] = set()
        if self.topics.pool is not None:
            raise BadRecord(
                f"tasks of a pool are defined in its namespace, {self.topics.main}, with their pool", "pool"
            )
        for definition in definitions:
            if definition.arrival is not None:
                raise BadRecord("is for pools, and written by Fencepost alone; leave it out", "arrival")
            if definition.shard_of:
                raise BadRecord(
                    f"{definition.task!r} would be a shard: those are defined by the owner of their task; leave it out",
                    "shard_of",
                )
            if definition.pool is not None and definition.pool not in pools:
                self._check_pool(definition.pool)
                pools.add(definition.pool)
            definition_from_json(_task(definition.task), definition_to_json(definition))
            values.append((definition.task, encode_definition(definition)))
        headers = {name: raw.decode() for name, raw in ce_headers("definition", "", self._source)[:4]}
        return self.producer.send_all(
            Outgoing(self.topics.tasks, task, value, headers, self.partition_of(task)) for task, value in values
        )

    def delete(self, task: str) -> Sent:
        """Take the task's own definition away: no more slots, nothing waits; its history stays."""
        return self.producer.send(Outgoing(self.topics.tasks, _task(task), None, {}, self.partition_of(task)))

    def state(self, task: str) -> TaskState | None:
        """What the owner last recorded of the task; None if nothing. Raises BadRecord for a version not known here."""
        found = None
        for record in scan_key(self.settings, self.topics.state, _task(task), self.info.partitions):
            found = record.value
        return None if found is None else decode_state(found)

    def history(self, task: str, since_ms: int | None = None) -> list[HistoryRecord]:
        """The task's events in order, from `since_ms` (append time) on."""
        number = self.partition_of(_task(task))
        start = {} if since_ms is None else self._start(self.topics.runs, number, since_ms)
        events = (_history(record, task) for record in scan(self.settings, self.topics.runs, [number], start))
        return [event for event in events if event is not None]

    def limits(self, key: str | None = None) -> list[LimitStatus]:
        """Who holds and who waits under the keys of limits: of all keys in use, or of this one.

        Raises BadRecord for what cannot be a key, KafkaProblem.
        """
        return read_limits(self.settings, time.time_ns() // 1_000_000, key)

    def verify(
        self,
        task: str | None = None,
        *,
        since: datetime | timedelta | None = None,
        definitions: Iterable[Definition] = (),
    ) -> Verdict:
        """Whether the promise held, from the topics alone: the whole namespace, or one task.

        since: only history from then on, or so long ago. definitions: what an app declares in code
        (`App.definitions()`), so that its slots are counted too. `Verdict.holds` is the answer, `violations` name the
        records. Raises KafkaProblem, BadRecord for an ID that cannot be.
        """
        from fencepost.audit.verify import check

        since_ms = None
        if isinstance(since, timedelta):
            since_ms = time.time_ns() // 1_000_000 - round(since.total_seconds() * 1000)
        elif since is not None:
            since_ms = _at_ms(since, "since")
        return check(self.settings, task=task, since_ms=since_ms, definitions=definitions)

    def follow(self, task: str, since_ms: int | None = None) -> Tail:
        """The history topic's partition of the task, as it grows; other tasks' events are in it too."""
        return Tail(self.settings, self.topics.runs, [self.partition_of(task)], since_ms)

    def follow_refusals(self, partition: int, since_ms: int | None = None) -> Tail:
        """The dead letters of one partition, as they come."""
        return Tail(self.settings, self.topics.dead_letter, [partition], since_ms)

    def refusals(self, partition: int, since_ms: int) -> list[Record]:
        """The dead letters of one partition, up to now."""
        topic = self.topics.dead_letter
        return list(scan(self.settings, topic, [partition], self._start(topic, partition, since_ms)))

    def record_at(self, topic: str, partition: int, offset: int) -> Record | None:
        """One record; None where it is no longer kept, or was never committed."""
        first = next(scan(self.settings, topic, [partition], offset), None)
        return first if first is not None and first.offset == offset else None

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self.settings, self._timeout_s)
        return self._producer

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _source(self) -> str:
        return f"/fencepost/{self.settings.namespace}/client"

    def partition_of(self, task: str) -> int:
        """Where the task's owner looks, by the namespace's count: a topic that grew meanwhile changes nothing."""
        return ids.partition_of(task.encode(), self.info.partitions)

    def _check_pool(self, pool: str) -> None:
        load_namespace(replace(self.settings, namespace=self.topics.of(pool).namespace))

    def _control(self, task: str, value: bytes) -> Sent:
        return self._send(self.topics.control, "control", task, value, uuid.uuid4().hex)

    def _send(self, topic: str, kind: str, task: str, value: bytes, event_id: str) -> Sent:
        headers = {name: raw.decode() for name, raw in ce_headers(kind, _task(task), self._source, event_id)}
        return self.producer.send(Outgoing(topic, task, value, headers, self.partition_of(task)))

    def _start(self, topic: str, number: int, since_ms: int) -> dict[int, int]:
        with Tail(self.settings, topic, [number], since_ms) as tail:
            return tail.starts()


def _task(task: str) -> str:
    try:
        return check_task_id(task)
    except ValueError as error:
        raise BadRecord(str(error), "task") from error


def _delay_s(delay: str | float | timedelta) -> float:
    if isinstance(delay, timedelta):
        return delay.total_seconds()
    try:
        return parse_duration(delay)
    except ValueError as error:
        raise BadRecord(str(error), "delay") from error


def _time_ms(at: str | datetime, field: str) -> int:
    if isinstance(at, datetime):
        return _at_ms(at, field)
    try:
        return parse_rfc3339(at)
    except ValueError as error:
        raise BadRecord(str(error), field) from error


def _at_ms(at: datetime, field: str) -> int:
    if at.tzinfo is None:
        raise BadRecord("the datetime has no time zone", field)
    return round(at.timestamp() * 1000)


def _history(record: Record, task: str) -> HistoryRecord | None:
    """The event, if it is the task's and this version can read it."""
    if record.key != task.encode() or record.value is None:
        return None
    try:
        return decode_history(record.value)
    except BadRecord:
        return None  # of a newer version: to be shown by tools, not to be interpreted here


def _letter(record: Record) -> DeadLetter | None:
    try:
        return decode_dead_letter(record.value or b"")
    except BadRecord:
        return None  # not ours to judge: `fencepost dlq list` shows it


def after(status: RunStatus, event: HistoryRecord, trigger_id: str) -> RunStatus:
    """Where the trigger stands after an event of its task. Ends with `retry_at` are not the end of the trigger."""
    fields = event.fields
    requests = (fields, *fields.get("batch", ()))
    if status.done or all(request.get("trigger") != trigger_id for request in requests):
        return status
    attempt, cause = fields.get("attempt"), fields.get("error") or fields.get("given_up") or fields.get("cause")
    if event.kind == "triggered":
        return RunStatus("waiting")
    if event.kind == "started":
        return RunStatus("running", False, event.epoch, attempt)
    if event.kind == "skipped":
        return RunStatus("skipped", True, None, None, None, cause)
    if event.kind == "gathered":  # its shards have ended
        return RunStatus(fields["outcome"], True, None, None, fields.get("result"), cause)
    if event.kind not in _ENDS:
        return status
    if "retry_at" in fields:
        return RunStatus("retrying", False, event.epoch, attempt, None, cause)
    return RunStatus(event.kind, True, event.epoch, attempt, fields.get("result"), cause)

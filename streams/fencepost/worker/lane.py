"""A lane: one membership of the group, and everything that happens on the partitions it brings.

One thread, one loop. `turn` is one round of it: beat, poll the group, read, take the runners' reports, decide, offer
the batch until it was read back, act. One batch is open at a time; while a rebalance callback is on the stack the same
rounds go on without polling the member.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fencepost.codec import BadRecord
from fencepost.core.commands import Launch
from fencepost.core.events import Adopted, Checkpointed, Ended, Interrupted, Started, Woken
from fencepost.core.evolve import builder
from fencepost.core.ids import partition_of
from fencepost.core.lease import wait_s
from fencepost.core.ownership import Phase
from fencepost.core.task import Cause, Definition, OnHandover, Outcome, Task
from fencepost.kafka.bounds import Bounds
from fencepost.kafka.errors import Die, RetryLater, StepDown
from fencepost.kafka.member import Member
from fencepost.kafka.reader import BEGINNING, Reader
from fencepost.kafka.transaction import Ring
from fencepost.wire.owners import decode_fence, decode_renewal
from fencepost.worker.acquisition import Acquisitions
from fencepost.worker.batch import Batch, Encoder, Part
from fencepost.worker.commit import Committer, Pushed
from fencepost.worker.context import LaneContext
from fencepost.worker.intake import Intake, Taken
from fencepost.worker.orders import Refused, RunCheckpoint, RunEnded, RunOrder, RunOutput
from fencepost.worker.partition import Partition
from fencepost.worker.restore import FENCE_KEY, Restored, fence_nonce
from fencepost.worker.roster import Load

if TYPE_CHECKING:
    from fencepost.kafka.reader import Message

_new_ended = builder(Ended)
_new_order = builder(RunOrder)

IDLE_WAIT_S = 0.02
BUSY_WAIT_S = 0.001
TIDY_AFTER_S = 0.5
QUEUE_STEP = 500
CLOGGED_AFTER_S = 0.5
INBOX_LIMIT = 20_000
RELEASE_LIMIT_S = 3.0
READ_ON_S = 3.0
WRITE_LIMIT_S = 10.0
RING_LIMIT_S = 10.0


class Lane:
    """Made and run in its own thread. `on_output` takes what runs print; `newer_incarnation` says whether to exit."""

    def __init__(
        self,
        context: LaneContext,
        protocol: str,
        on_output: Callable[[RunOutput], None],
        newer_incarnation: Callable[[], bool],
    ) -> None:
        self._context = context
        self._on_output = on_output
        self._newer_incarnation = newer_incarnation
        settings = context.settings
        self._ring = Ring(settings, context.ring)
        self._reader = Reader(settings, context.ordinal)
        self._bounds = Bounds(settings, context.ordinal)
        instance = f"{context.identity.worker}.{context.ordinal}" if context.identity.static else None
        self._member = Member(
            settings,
            topic=context.topics.triggers,
            protocol=protocol,
            ordinal=context.ordinal,
            instance_id=instance,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
        )
        encoder = Encoder(context.topics, context.lane, f"/fencepost/{settings.namespace}")
        self._committer = Committer(context, self._ring, self._reader, self._bounds, self._member, encoder, self._route)
        self._acquisitions = Acquisitions(
            context, self._ring, self._reader, self._bounds, self._member, self._held, self._let_go
        )
        self._intake = Intake(context, self._reader, self._bounds)
        self._pending: Batch | None = None
        self._reports: list[RunEnded | RunCheckpoint | Refused] = []
        self._reported_s = 0.0
        self._tidy_at_s: float | None = None
        self._gauges_at_s = 0.0
        self._limit_s = context.handover_limit_s
        self._stop_cause = Cause.HANDOVER
        self._backlog_ends: dict[int, int] = {}
        self.stopping = False
        self.ready = False  # a member, and every partition it has is served
        self.load = Load()

    # -- life ---------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Initialise the ring and follow `owners`. Raises RetryLater when no broker answers."""
        self._ring.open(RING_LIMIT_S)
        topics = self._context.topics
        owners = topics.owners
        self._reader.meet((owners, topics.state, topics.tasks, topics.triggers, topics.control), RING_LIMIT_S)
        self._reader.assign([(owners, number, BEGINNING) for number in range(self._context.partition_count)])

    @property
    def idle(self) -> bool:
        """Nothing in flight and nothing to be written."""
        return self._pending is None and not self._reports and self._context.runners.in_flight() == 0

    def drain(self) -> None:
        """Start nothing more; what runs may end."""
        self.stopping = True

    def end_runs(self, grace_s: float) -> None:
        """Ask every run to stop, and end it after `grace_s`: interrupted, stopped."""
        for partition in self._context.partitions.values():
            for task_id, epoch in partition.live.items():
                self._context.runners.stop(task_id, epoch, "interrupted", Cause.STOPPED, grace_s)

    def close(self, limit_s: float) -> None:
        """Give everything back and leave the group; runs in flight have `limit_s` to end."""
        self._limit_s = limit_s
        self._stop_cause = Cause.STOPPED
        self._member.close()
        self._ring.throw_away()
        self._reader.close()
        self._acquisitions.close()

    # -- the loop -----------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """One round. Raises Die, WrongNamespace."""
        self._context.runners.beat()
        self._member.poll(0)
        self._guarded_round()

    def _guarded_round(self) -> None:
        try:
            self._acquisitions.advance()
            self._round()
            return
        except StepDown as problem:
            fenced_by = str(problem)
        except RetryLater as problem:
            self._context.log.warning("Kafka does not answer", why=str(problem))
            return
        self._fenced(fenced_by)

    def _round(self) -> None:
        self._route(self._reader.take(self._wait_s()))
        self._take_reports()
        if self._pending is None:
            self._pending = self._build()
        if self._pending is not None:
            self._offer(self._pending)
        self._watch_draining()
        self._gauges()

    def _wait_s(self) -> float:
        """How long to wait for the next record: not at all while there is something to do."""
        context = self._context
        if self._pending is not None or self._reports:
            return 0.0
        room = context.runners.room()
        due_ms: int | None = None
        for partition in context.partitions.values():
            if partition.control or partition.changes:
                return 0.0
            if partition.starts and room and not self.stopping and (partition.triggers or partition.ready):
                return 0.0
            next_ms = partition.next_due_ms()
            if next_ms is not None and (due_ms is None or next_ms < due_ms):
                due_ms = next_ms
        if context.runners.in_flight():
            return BUSY_WAIT_S
        if due_ms is None:
            return IDLE_WAIT_S
        return min(IDLE_WAIT_S, max(0.0, (due_ms - context.clock.now_ms()) / 1000))

    def _offer(self, batch: Batch) -> None:
        pushed = self._committer.push(batch)
        if pushed is Pushed.CONFIRMED:
            self._pending = None
            self._act(batch)
        elif pushed is Pushed.FENCED:
            self._fenced("while committing")
        else:
            self._drop_lost_parts(batch)

    def _drop_lost_parts(self, batch: Batch) -> None:
        """What is not held any more cannot be written; reports of runs are kept for when it is held again."""
        for number, part in list(batch.parts.items()):
            if not self._context.holds(number, part.nonce):
                del batch.parts[number]
                self._salvage(part)
        if not batch.parts:
            self._pending = None

    def _salvage(self, part: Part) -> None:
        partition = self._context.partitions.get(part.partition)
        if partition is not None:
            for report in part.reports:
                partition.found[report.task, report.epoch] = report

    def _fenced(self, why: str) -> None:
        """Start again at step 1 with a new ring, unless a newer process has this worker's ID."""
        self._context.log.warning("fenced: every partition is acquired again", why=why)
        self._acquisitions.fenced()
        if self._pending is not None:
            self._drop_lost_parts(self._pending)
        self._ring.throw_away()
        while not self._ring_renewed():
            self._context.runners.beat()

    def _ring_renewed(self) -> bool:
        try:
            if self._newer_incarnation():
                raise Die("another process with this worker ID has taken over; two workers need two IDs")
            self._ring.open(RING_LIMIT_S)
        except RetryLater as problem:
            self._context.log.warning("Kafka does not answer", why=str(problem))
            return False
        return True

    # -- reading ------------------------------------------------------------------------------------------------

    def _route(self, messages: list[Message]) -> None:
        if not messages:
            return
        topics, partitions = self._context.topics, self._context.partitions
        state, triggers, owners, tasks = topics.state, topics.triggers, topics.owners, topics.tasks
        for message in messages:
            topic, number = message.topic(), message.partition() or 0
            if topic == owners:
                self._owners_record(message)
                continue
            partition = partitions.get(number)
            if partition is None:
                continue
            if topic == state:
                self._state_record(partition, message)
            elif topic == triggers:
                partition.triggers.append(message)
            elif topic == tasks:
                if partition.restore is not None:
                    partition.restore.task_record(message)
                else:
                    partition.changes.append(message)
            else:
                partition.control.append(message)
        self._hold_back()

    def _state_record(self, partition: Partition, message: Message) -> None:
        if partition.restore is not None:
            nonce = partition.restore.state_record(message)
            if nonce is not None:
                self._acquisitions.state_nonce_read(partition, nonce)
            return
        key = message.key()
        if self._committer.came_back(
            message.topic() or "", partition.number, key, message.value(), message.timestamp()[1]
        ):
            return
        if key == FENCE_KEY:
            self._acquisitions.state_nonce_read(partition, fence_nonce(message.value()))

    def _owners_record(self, message: Message) -> None:
        key, value = message.key() or b"", message.value()
        number = message.partition() or 0
        if self._committer.came_back(message.topic() or "", number, key, value, message.timestamp()[1]):
            return
        if value is None or key.startswith(b"\x1f") or key == b"namespace":
            return
        try:
            if key.isdigit():
                self._acquisitions.fence_read(decode_fence(value))
            else:
                self._context.watch.note(decode_renewal(value), self._context.clock.boot_s())
        except BadRecord as bad:
            # Not ours to skip: without this record it cannot be said who holds the partition.
            raise Die(f"{message.topic()}-{number} offset {message.offset()}: {bad}") from bad

    def _hold_back(self) -> None:
        """Too much is read ahead: leave triggers in Kafka. Control is never held back."""
        triggers = self._context.topics.triggers
        for number, partition in self._context.partitions.items():
            waiting = len(partition.triggers)
            if waiting > INBOX_LIMIT:
                self._reader.pause([(triggers, number)])
            elif waiting < INBOX_LIMIT // 4:
                self._reader.resume([(triggers, number)])

    # -- deciding -----------------------------------------------------------------------------------------------

    def _take_reports(self) -> None:
        for report in self._context.runners.take():
            if isinstance(report, RunOutput):
                self._on_output(report)
            else:
                self._reports.append(report)

    def _build(self) -> Batch | None:
        """The next batch: ends first (they free runners), then what waits, then starts."""
        context = self._context
        now_ms = context.clock.now_ms()
        batch = Batch(now_ms)
        self._apply_reports(batch, now_ms)
        for partition in list(context.partitions.values()):
            if not partition.served:
                continue
            part = batch.part(partition.number, partition.nonce)
            self._apply_restored(partition, part, now_ms)
            self._end_waits(partition, part, now_ms)
            self._intake.definitions(partition, part, now_ms)
            self._intake.control(partition, part, now_ms)
        if not self.stopping:
            self._start(batch, now_ms)
        self._tidy(batch)
        return batch if batch.parts or self._renewal_due() else None

    def _renewal_due(self) -> bool:
        return self._context.lease.due(self._context.live(), self._context.clock.boot_s())

    def _tidy(self, batch: Batch) -> None:
        """Leave out what has nothing to say.

        Once all is quiet, the offsets that trailed what was read back are committed, so that no lag stays to be seen.
        """
        quiet = self._tidy_at_s is not None and time.monotonic() >= self._tidy_at_s
        if quiet:
            self._tidy_at_s = None
        for number, part in list(batch.parts.items()):
            if part.empty and not (quiet and self._context.partitions[number].offsets_trail):
                del batch.parts[number]

    def _apply_reports(self, batch: Batch, now_ms: int) -> None:
        reports, self._reports = self._reports, []
        if not reports:
            return
        for report in reports:
            partition = self._partition_of(report.task)
            if isinstance(report, RunCheckpoint):
                if partition is not None and partition.served:
                    part = batch.part(partition.number, partition.nonce)
                    self._intake.apply(partition, part, report.task, Checkpointed(report.epoch, report.data), now_ms)
                continue
            ended = _as_ended(report)
            if partition is None:
                continue  # lost: whoever has it now records the end
            if partition.live.get(report.task) == report.epoch:
                del partition.live[report.task]
            if not partition.served:
                partition.found[report.task, report.epoch] = ended
                continue
            self._apply_end(partition, batch.part(partition.number, partition.nonce), ended, now_ms)
        self._reported_s = time.monotonic()

    def _apply_end(self, partition: Partition, part: Part, ended: RunEnded, now_ms: int) -> None:
        event: Interrupted | Ended
        if ended.outcome is Outcome.SUCCEEDED:
            event = _new_ended(ended.epoch, ended.outcome, ended.result)
        elif ended.outcome is Outcome.INTERRUPTED:
            event = Interrupted(ended.epoch, ended.cause or Cause.STOPPED, random.uniform(-1.0, 1.0))
        else:
            event = Ended(ended.epoch, ended.outcome, ended.result, ended.error, random.uniform(-1.0, 1.0))
        if self._intake.apply(partition, part, ended.task, event, now_ms):
            part.reports.append(ended)
            cause = ended.cause.value if ended.cause is not None else None
            self._context.meters.run_ended(ended.task, ended.outcome.value, cause)

    def _partition_of(self, task_id: str) -> Partition | None:
        return self._context.partitions.get(partition_of(task_id.encode(), self._context.partition_count))

    def _apply_restored(self, partition: Partition, part: Part, now_ms: int) -> None:
        """Definitions that changed while nobody looked, and reports that came while the partition was not held."""
        for task_id, definition in partition.undefined:
            self._intake.define(partition, part, task_id, definition, now_ms, restored=True)
        partition.undefined = []
        for task_id, epoch in partition.adopted:
            self._intake.apply(partition, part, task_id, Adopted(epoch, partition.nonce), now_ms)
        partition.adopted = []
        for key, report in list(partition.found.items()):
            del partition.found[key]
            self._apply_end(partition, part, report, now_ms)

    def _end_waits(self, partition: Partition, part: Part, now_ms: int) -> None:
        """Runs of earlier holders whose lease is over for certain."""
        if not partition.waits:
            if not partition.holding.waited and partition.holding.phase in (Phase.HELD, Phase.DRAINING):
                self._acquisitions.waits_over(partition.number)
            return
        boot_s = self._context.clock.boot_s()
        for task_id, until_s in list(partition.waits.items()):
            if boot_s < until_s:
                continue
            del partition.waits[task_id]
            run = partition.task(task_id).state.run
            if run is not None:
                event = Interrupted(run.epoch, Cause.LOST, random.uniform(-1.0, 1.0))
                self._intake.apply(partition, part, task_id, event, now_ms)
                self._context.meters.run_ended(task_id, Outcome.INTERRUPTED.value, Cause.LOST.value)

    def _start(self, batch: Batch, now_ms: int) -> None:
        """Give out the free room, partition by partition: what is ready, what is due, what was triggered."""
        context = self._context
        room = context.runners.room()
        starting = [item for item in context.partitions.values() if item.starts]
        random.shuffle(starting)  # so that no partition is always first
        for partition in starting:
            part = batch.part(partition.number, partition.nonce)
            room -= self._start_ready(partition, part, room, now_ms)
        share = max(1, room // max(1, len(starting)))
        for partition in starting:
            part = batch.part(partition.number, partition.nonce)
            for task_id in list(partition.due(now_ms, min(room, share * 2) if room > 0 else 0)):
                self._intake.apply(partition, part, task_id, Woken(), now_ms)
            room -= self._start_ready(partition, part, room, now_ms)
        waiting = [item for item in starting if item.triggers]
        for left, partition in enumerate(waiting):
            part = batch.part(partition.number, partition.nonce)
            room -= self._take_triggers(partition, part, room, max(1, room // (len(waiting) - left)), now_ms)

    def _start_ready(self, partition: Partition, part: Part, room: int, now_ms: int) -> int:
        started = 0
        while started < room:
            task_id = partition.next_ready(now_ms)
            if task_id is None:
                break
            started += self._start_one(partition, part, task_id, now_ms)
        return started

    def _start_one(self, partition: Partition, part: Part, task_id: str, now_ms: int) -> bool:
        task = partition.tasks[task_id]
        if not self._intake.can_run(partition, task_id, task):
            return False
        assert task.definition is not None
        start = self._started(partition, task.definition.lease_ttl_s)
        return self._intake.apply(partition, part, task_id, start, now_ms)

    def _started(self, partition: Partition, lease_ttl_s: float | None = None) -> Started:
        ttl_s = max(lease_ttl_s or 0.0, self._context.settings.lease_ttl_s)
        return Started(self._context.lane, partition.nonce, ttl_s)

    def _take_triggers(self, partition: Partition, part: Part, room: int, share: int, now_ms: int) -> int:
        """Take triggers while they can start; and when runs are long, a few more into the queue, up to its limit."""
        started = queued = 0
        start = self._started(partition)
        while partition.triggers and started < share:
            if room <= 0:
                full = queued >= QUEUE_STEP or partition.ready >= self._context.settings.queue_limit
                if full or not self._clogged():
                    break
                queued += 1
            at_once = started < room and not partition.ready
            taken = self._intake.trigger(partition, part, start if at_once else None, now_ms)
            if taken is Taken.NOT_YET:
                break
            if taken is Taken.STARTED:
                started += 1
            elif started < room and partition.ready:
                started += self._start_ready(partition, part, 1, now_ms)
        return started

    def _clogged(self) -> bool:
        """Whether no run has ended for a while: what cannot start then goes into the state and frees its place."""
        return time.monotonic() - self._reported_s > CLOGGED_AFTER_S

    # -- acting -------------------------------------------------------------------------------------------------

    def _act(self, batch: Batch) -> None:
        """The batch was read back: what it says may be done now."""
        context = self._context
        orders: list[RunOrder] = []
        for part in batch.parts.values():
            partition = context.partitions.get(part.partition)
            if partition is None or not context.holds(part.partition, part.nonce):
                continue
            if part.triggers_next >= 0:
                partition.triggers_offset = part.triggers_next
                self._tidy_at_s = time.monotonic() + TIDY_AFTER_S
            if part.control_next >= 0:
                partition.control_offset = part.control_next
                self._tidy_at_s = time.monotonic() + TIDY_AFTER_S
            for task_id, launch in part.launches:
                orders.append(self._order(partition, task_id, part.after[task_id], launch))
                partition.live[task_id] = launch.run.epoch
            for task_id, stop in part.stops:
                context.runners.stop(task_id, stop.epoch, stop.reason, None, stop.grace_s)
        if orders:
            context.runners.launch(orders)

    def _order(self, partition: Partition, task_id: str, task: Task, launch: Launch) -> RunOrder:
        work, run, definition = launch.work, launch.run, task.definition
        assert definition is not None
        due_ms = work.slot_ms or work.due_ms or work.arrived_ms
        if due_ms:
            self._context.meters.run_started(task_id, max(0.0, (self._context.clock.now_ms() - due_ms) / 1000))
        slot_or_due = work.slot_ms if work.slot_ms is not None else (work.due_ms or None)
        return _new_order(
            task=task_id,
            epoch=run.epoch,
            attempt=run.attempt,
            partition=partition.number,
            nonce=partition.nonce,
            lease_ttl_s=run.lease_ttl_s,
            handler=definition.handler,
            payload=work.payload if work.payload is not None else definition.payload,
            headers=work.headers,
            scheduled_for_ms=slot_or_due,
            idempotency_key=f"{task_id}:{work.seq}",
            checkpoint=launch.checkpoint,
            timeout_s=definition.timeout_s,
            grace_s=definition.grace_s,
            isolation=definition.isolation,
            strict_stop=definition.strict_stop,
        )

    # -- the group and its partitions ---------------------------------------------------------------------------

    def _assigned(self, numbers: list[int]) -> None:
        self._context.log.info("assigned", partitions=numbers)
        self._acquisitions.assigned(numbers)

    def _lost(self, numbers: list[int]) -> None:
        self._context.log.warning("lost", partitions=numbers)
        self._acquisitions.lost(numbers)
        if self._pending is not None:
            self._drop_lost_parts(self._pending)

    def _revoked(self, numbers: list[int]) -> None:
        """Serve these until their runs have ended or the limit has passed; release them; only then return."""
        context = self._context
        context.log.info("revoked", partitions=numbers)
        self._finish_reading(numbers)
        self._acquisitions.revoked(numbers)
        for number in numbers:
            self._stop_those_that_must(number)
        while any(number in context.partitions for number in numbers):
            context.runners.beat()
            self._guarded_round()

    def _finish_reading(self, numbers: list[int]) -> None:
        """A partition whose fence was just committed is read to the end first: then it can be released.

        Otherwise the next owner would have to end this lane's producers, and so disturb all its other partitions.
        """
        partitions = self._context.partitions
        until_s = time.monotonic() + READ_ON_S
        while time.monotonic() < until_s and any(
            number in partitions and partitions[number].holding.phase is Phase.READING for number in numbers
        ):
            self._context.runners.beat()
            self._guarded_round()

    def _stop_those_that_must(self, number: int) -> None:
        partition = self._context.partitions.get(number)
        if partition is None:
            return
        for task_id, epoch in partition.live.items():
            definition = partition.task(task_id).definition
            if definition is not None and definition.on_handover is OnHandover.STOP:
                self._context.runners.stop(task_id, epoch, "interrupted", self._stop_cause, definition.grace_s)

    def _watch_draining(self) -> None:
        """Draining partitions: end what outlives the limit, then say that they are drained, then release them."""
        context = self._context
        boot_s = context.clock.boot_s()
        releasing: list[int] = []
        for number, partition in list(context.partitions.items()):
            phase = partition.holding.phase
            if phase is Phase.DRAINING:
                if not partition.live and (self._pending is None or number not in self._pending.parts):
                    self._acquisitions.drained(number)
                elif boot_s - partition.draining_since_s > self._limit_s and not partition.stopped_for_handover:
                    partition.stopped_for_handover = True
                    for task_id, epoch in partition.live.items():
                        context.runners.stop(task_id, epoch, "interrupted", self._stop_cause, 0.0)
                elif boot_s - partition.draining_since_s > self._limit_s + WRITE_LIMIT_S:
                    self._acquisitions.lost([number])  # Kafka takes nothing: the next owner waits
                    continue
                phase = partition.holding.phase
            if phase is Phase.RELEASING and partition.release_sent_s is None:
                partition.release_sent_s = boot_s
                releasing.append(number)
            elif phase is Phase.RELEASING and boot_s - (partition.release_sent_s or boot_s) > RELEASE_LIMIT_S:
                self._acquisitions.release_failed(number)
        if releasing:
            self._acquisitions.release(releasing)

    def _held(self, partition: Partition, restored: Restored) -> None:
        """Step 4: everything but what was found RUNNING may start; that is adopted, ended or waited out."""
        context = self._context
        now_ms = context.clock.now_ms()
        partition.definitions = restored.definitions
        partition.unreadable = set(restored.unreadable)
        for name, why in (*restored.unreadable.items(), *restored.bad_definitions.items()):
            context.log.error("a record this worker cannot read is left alone", task=name, why=why)
        for task_id, task in restored.tasks.items():
            partition.put(task_id, task, now_ms)
        self._find_changed_definitions(partition)
        counted_from_s = context.watch.waits_from(partition.holding.stamp, partition.holding.answered_boot_s)
        for task in list(partition.running()):
            self._found_running(partition, task, counted_from_s)
        if not partition.waits:
            self._acquisitions.waits_over(partition.number)

    def _found_running(self, partition: Partition, task: Task, counted_from_s: float) -> None:
        context, run, task_id = self._context, task.state.run, task.state.task
        assert run is not None
        if (task_id, run.epoch) in partition.found:
            return  # its report waits to be applied
        if run.lane != context.lane:
            partition.waits[task_id] = counted_from_s + wait_s(run.lease_ttl_s, context.settings.rate_error)
        elif context.runners.holds(task_id, run.epoch):
            context.runners.rebind(partition.number, run.nonce, partition.nonce)
            partition.live[task_id] = run.epoch
            partition.adopted.append((task_id, run.epoch))
        else:
            # This very process recorded it, and its guard says that nothing of it lives.
            partition.found[task_id, run.epoch] = RunEnded(task_id, run.epoch, Outcome.INTERRUPTED, Cause.FENCED)

    def _find_changed_definitions(self, partition: Partition) -> None:
        context = self._context
        definitions: dict[str, Definition] = dict(partition.definitions)
        for task_id, declared in context.declared.exact.items():
            if partition_of(task_id.encode(), context.partition_count) == partition.number:
                definitions.setdefault(task_id, declared)
        for task_id, definition in definitions.items():
            if task_id in partition.tasks or definition.schedule is not None:
                partition.undefined.append((task_id, definition))
        for task_id in partition.tasks:
            if task_id not in definitions:
                partition.undefined.append((task_id, context.declared.find(task_id)))

    def _let_go(self, partition: Partition) -> None:
        if self._pending is not None:
            part = self._pending.parts.get(partition.number)
            if part is not None:
                del self._pending.parts[partition.number]
                self._salvage(part)

    def _gauges(self) -> None:
        now_s = time.monotonic()
        if now_s < self._gauges_at_s:
            return
        self._gauges_at_s = now_s + 1.0
        context = self._context
        partitions = context.partitions
        self.load = Load(context.runners.in_flight(), tuple(sorted(partitions)), (context.lane,))
        self.ready = (
            self._member.metadata().joined
            and not self._reader.down
            and all(partition.served for partition in partitions.values())
        )
        now_ms = context.clock.now_ms()
        oldest_ms = now_ms
        ready = backlog = 0
        for partition in context.partitions.values():
            ready += partition.ready
            backlog += len(partition.triggers)
            if partition.triggers:
                oldest_ms = min(oldest_ms, partition.triggers[0].timestamp()[1])
        context.meters.gauges(
            lane=context.ordinal,
            in_flight=context.runners.in_flight(),
            ready=ready,
            backlog=backlog,
            oldest_waiting_s=max(0.0, (now_ms - oldest_ms) / 1000),
            partitions=len(context.partitions),
            rebalances=self._member.rebalances,
            clock_difference_s=context.clock.difference_ms / 1000,
        )


def _as_ended(report: RunEnded | Refused) -> RunEnded:
    """A refused order ran nothing: to the task it was interrupted, and uses up no attempt."""
    if isinstance(report, RunEnded):
        return report
    return RunEnded(report.task, report.epoch, Outcome.INTERRUPTED, Cause.FENCED)

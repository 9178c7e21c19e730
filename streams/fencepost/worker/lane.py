"""A lane: one membership of the group, and everything that happens on the partitions it brings.

One thread, one loop. `turn` is one round of it: beat, poll the group, read, take the runners' reports, decide, offer
the batch until it was read back, act. One batch is open at a time; while a rebalance callback is on the stack the same
rounds go on without polling the member.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fencepost.codec import BadRecord
from fencepost.core.commands import Launch
from fencepost.core.making import due_since_ms
from fencepost.core.ownership import Phase
from fencepost.core.task import Cause, Task
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
from fencepost.worker.decide import Decisions, Report
from fencepost.worker.handover import Handover
from fencepost.worker.intake import Intake
from fencepost.worker.letters import Letters
from fencepost.worker.look_around import LookAround
from fencepost.worker.orders import RunOrder, RunOutput, order_of
from fencepost.worker.partition import Partition
from fencepost.worker.restore import FENCE_KEY, fence_nonce
from fencepost.worker.roster import Load
from fencepost.worker.standstill import Standstill
from fencepost.worker.takeover import Takeover

if TYPE_CHECKING:
    from fencepost.kafka.reader import Message


IDLE_WAIT_S = 0.02
BUSY_WAIT_S = 0.001
INBOX_LIMIT = 20_000
READ_ON_S = 3.0
RING_LIMIT_S = 10.0
TOPICS_EVERY_S = 5.0
TOPICS_LIMIT_S = 1.0
LETTERS_LIMIT_S = 2.0


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
        self._standstill = Standstill(context, self._reader, self._bounds)
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
        encoder = Encoder(context.topics, context.partition_count, context.lane, f"/fencepost/{settings.namespace}")
        self._encoder = encoder
        self._letters = Letters(settings, context.log)
        self._letters_written = 0
        self._committer = Committer(context, self._ring, self._reader, self._bounds, self._member, encoder, self._route)
        self._acquisitions = Acquisitions(
            context, self._ring, self._reader, self._bounds, self._member, Takeover(context).take_over, self._let_go
        )
        intake = Intake(context, self._reader, self._bounds)
        look_around = LookAround(context, self._reader, self._bounds)
        self._decisions = Decisions(
            context, intake, self._acquisitions.waits_over, look_around, lambda: self._letters.full
        )
        self._handover = Handover(context, self._acquisitions)
        self._pending: Batch | None = None
        self._reports: list[Report] = []
        self._gauges_at_s = 0.0
        self._topics_at_s = 0.0
        self._active_s = 0.0
        self.stopping = False
        # Whether the group has said what is this lane's; it may be nothing. The newer protocol says it with the
        # answer that makes a member, and makes no call where it is nothing.
        self._told_on_joining = protocol == "consumer"
        self._told = self._told_on_joining
        self.ready = False  # a member that was told its partitions, and every one of them is served
        self.load = Load()

    # -- life ---------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Initialise the ring, follow `owners`, join the group. Raises RetryLater when no broker answers."""
        self._ring.open(RING_LIMIT_S)
        topics = self._context.topics
        owners = topics.owners
        self._reader.meet((owners, topics.state, topics.tasks, topics.triggers, topics.control), RING_LIMIT_S)
        self._reader.assign([(owners, number, BEGINNING) for number in range(self._context.partition_count)])
        self._member.join()

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
        self._handover.limit_s = limit_s
        self._handover.cause = Cause.STOPPED
        self._letters.close(LETTERS_LIMIT_S)
        self._catch_up()
        self._member.close()
        self._ring.throw_away()
        self._reader.close()
        self._acquisitions.close()
        self._context.node_fence.close()

    # -- the loop -----------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """One round. Raises Die, WrongNamespace."""
        self._context.runners.beat()
        self._member.poll(0)
        self._guarded_round()

    def _guarded_round(self) -> None:
        try:
            self._standstill.look()
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
        self._catch_up()
        if self._pending is None:
            reports, self._reports = self._reports, []
            self._pending = self._decisions.next_batch(reports, may_start=not self.stopping)
        if self._pending is not None:
            self._offer(self._pending)
        self._handover.watch(self._pending)
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
            # What is due while nothing may start is not waited for: it would keep the loop spinning.
            next_ms = partition.next_due_ms() if partition.starts and not self.stopping else None
            if next_ms is not None and (due_ms is None or next_ms < due_ms):
                due_ms = next_ms
        if context.runners.in_flight():
            # Runs that have gone on for long are looked at less often; a record wakes the reader in any case.
            quiet_s = time.monotonic() - self._active_s
            return min(IDLE_WAIT_S / 2, max(BUSY_WAIT_S, quiet_s / 8))
        if due_ms is None:
            return IDLE_WAIT_S
        return min(IDLE_WAIT_S, max(0.0, (due_ms - context.clock.now_ms()) / 1000))

    def _offer(self, batch: Batch) -> None:
        pushed = self._committer.push(batch)
        if pushed is Pushed.CONFIRMED:
            self._pending = None
            self._post_letters(batch)
            self._act(batch)
        elif pushed is Pushed.FENCED:
            self._fenced("while committing")
        else:
            self._drop_lost_parts(batch)

    def _post_letters(self, batch: Batch) -> None:
        """Dead letters go their own way once what they say was read back; their records count when they are written.

        Those of a part that was committed and is not held any more go too: nobody else writes them.
        """
        for part in batch.parts.values():
            if part.offered:
                self._letters.take(self._encoder.letters(part))

    def _catch_up(self) -> None:
        """Dead letters are written: the offsets behind them count now."""
        if self._letters_written == self._letters.written:
            return
        self._letters_written = self._letters.written
        for partition in self._context.partitions.values():
            self._count(partition)

    def _count(self, partition: Partition) -> None:
        """Offsets up to what was read back, or to the first record whose dead letter still waits."""
        topics, number = self._context.topics, partition.number
        held = self._letters.hold(topics.triggers, number)
        taken = partition.triggers_taken if held is None else min(partition.triggers_taken, held)
        partition.triggers_offset = max(partition.triggers_offset, taken)
        held = self._letters.hold(topics.control, number)
        taken = partition.control_taken if held is None else min(partition.control_taken, held)
        partition.control_offset = max(partition.control_offset, taken)
        self._decisions.tidy_soon()

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
                self._acquisitions.fence_read(decode_fence(value), message.timestamp()[1])
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

    def _take_reports(self) -> None:
        for report in self._context.runners.take():
            if isinstance(report, RunOutput):
                self._on_output(report)
            else:
                self._reports.append(report)
        if self._reports:
            self._active_s = time.monotonic()

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
                partition.triggers_taken = part.triggers_next
            if part.control_next >= 0:
                partition.control_taken = part.control_next
            if part.triggers_next >= 0 or part.control_next >= 0:
                self._count(partition)
            for task_id, launch in part.launches:
                orders.append(self._order(partition, task_id, part.after[task_id], launch))
                partition.live[task_id] = launch.run.epoch
            for task_id, stop in part.stops:
                context.runners.stop(task_id, stop.epoch, stop.reason, None, stop.grace_s)
        if orders:
            context.runners.launch(orders)
            self._active_s = time.monotonic()

    def _order(self, partition: Partition, task_id: str, task: Task, launch: Launch) -> RunOrder:
        work = launch.work
        due_ms = due_since_ms(work)
        if due_ms:
            self._context.meters.run_started(task_id, max(0.0, (self._context.clock.now_ms() - due_ms) / 1000))
        return order_of(task_id, task, launch, partition.number, partition.nonce)

    # -- the group and its partitions ---------------------------------------------------------------------------

    def _assigned(self, numbers: list[int]) -> None:
        self._context.log.info("assigned", partitions=numbers)
        self._told = True
        if numbers:
            self.ready = False  # at once, not with the next look at the gauges: these are not served yet
        self._acquisitions.assigned(numbers)

    def _lost(self, numbers: list[int]) -> None:
        self._context.log.warning("lost", partitions=numbers)
        self._told = self._told_on_joining
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
            self._handover.begin(number)
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
        if now_s >= self._topics_at_s:
            # A topic made again under a running lane gives no error where its new log is as long as the old one was.
            self._topics_at_s = now_s + TOPICS_EVERY_S
            self._acquisitions.refuse_topics_made_again(TOPICS_LIMIT_S)
        context = self._context
        partitions = context.partitions
        self.load = Load(context.runners.in_flight(), tuple(sorted(partitions)), (context.lane,))
        self.ready = (
            self._told  # a member of a classic group has an ID and a generation before it is told anything
            and self._member.metadata().joined
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

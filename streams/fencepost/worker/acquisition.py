"""Carries out what the ownership protocol says, for all partitions of a lane at once.

The protocol itself is `core.ownership`; here its commands become Kafka calls, and what was read becomes its events.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from fencepost.codec import BadRecord
from fencepost.core import ownership as own
from fencepost.core.ownership import FenceRecord, Holder, Phase, Picture
from fencepost.kafka.bounds import Bounds
from fencepost.kafka.errors import Die, KafkaProblem, RetryLater, StepDown, WrongNamespace
from fencepost.kafka.member import Member
from fencepost.kafka.reader import BEGINNING, Reader
from fencepost.kafka.transaction import Committed, OffsetMark, OutRecord, Refused, Ring, Unclear, end_producers
from fencepost.wire.owners import encode_fence, encode_stamp
from fencepost.wire.sentinel import encode_sentinel
from fencepost.worker.context import LaneContext, carried
from fencepost.worker.hanging import Hanging
from fencepost.worker.identity import new_nonce
from fencepost.worker.partition import Partition
from fencepost.worker.restore import FENCE_KEY, SENTINEL_KEY, Restore, Restored

END_LIMIT_S = 10.0
ASK_LIMIT_S = 0.5
SEND_LIMIT_S = 5.0
RETRY_S = 0.2
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 3.0


@dataclass(frozen=True, slots=True)
class _Ending:
    """Producers of earlier holders being ended, on the side: it takes half a second to a second."""

    lanes: frozenset[str]
    done: Future[None]


class Acquisitions:
    """Drives every assigned partition to HELD and back. `on_held` gets what was restored; `on_let_go` what goes."""

    def __init__(
        self,
        context: LaneContext,
        ring: Ring,
        reader: Reader,
        bounds: Bounds,
        member: Member,
        on_held: Callable[[Partition, Restored], None],
        on_let_go: Callable[[Partition], None],
    ) -> None:
        self._context = context
        self._ring = ring
        self._reader = reader
        self._bounds = bounds
        self._member = member
        self._on_held = on_held
        self._on_let_go = on_let_go
        self._side = ThreadPoolExecutor(1, thread_name_prefix="fencepost-end")
        self._ending: _Ending | None = None
        self._hanging = Hanging(context, bounds)
        self._closing: Future[list[str]] | None = None
        self._not_before_s = 0.0
        self._fenced_in_turn = 0  # since a partition was held last
        self._number = 0
        self._fenced_wall_ms = 0  # when the last fence transaction began to be sent, by the own clock
        self._newly_held: list[int] = []
        self._tasks_ends: dict[tuple[str, int], int] = {}

    # -- what the group says ------------------------------------------------------------------------------------

    def assigned(self, partitions: Iterable[int]) -> None:
        for number in partitions:
            holding, commands = own.acquire(number, self._context.lane, self._picture(number))
            partition = Partition(holding)
            self._context.partitions[number] = partition
            self._do(partition, commands)

    def revoked(self, partitions: Iterable[int]) -> None:
        for number in partitions:
            self._feed(number, own.Revoked())

    def lost(self, partitions: Iterable[int]) -> None:
        for number in partitions:
            self._feed(number, own.Lost())

    def fenced(self) -> None:
        """Somebody ended this lane's producers: every partition starts again at step 1.

        With what the owners topic says by now: a holder that an own fence record names as ended is not ended again.
        Else two lanes that have taken over from each other end each other for ever.
        """
        for number, partition in list(self._context.partitions.items()):
            partition.holding = replace(partition.holding, picture=self._picture(number))
            self._feed(number, own.ProducerFenced())
        # Two lanes that get partitions of each other's end each other's producers; in step they would do so for ever.
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._fenced_in_turn, 10))
        self._fenced_in_turn += 1
        if self._fenced_in_turn > 1:
            self._not_before_s = time.monotonic() + random.uniform(0.0, pause_s)

    def waits_over(self, number: int) -> None:
        self._feed(number, own.WaitsOver())

    def drained(self, number: int) -> None:
        self._feed(number, own.Drained())

    # -- what was read ------------------------------------------------------------------------------------------

    def fence_read(self, record: FenceRecord, appended_ms: int) -> None:
        """A fence record of the owners topic, in the order of the log."""
        number = record.partition
        picture = self._picture(number).fold(record)
        self._context.pictures[number] = picture
        if record.worker and not record.released:
            self._context.heard[record.worker] = self._context.heard.get(record.worker, 0) + 1
        partition = self._context.partitions.get(number)
        if partition is None:
            return
        if record.nonce == partition.nonce and partition.nonce:
            if not partition.own_nonce_on_owners:
                # Before anything is decided here: slots must not come due by a clock that is wrong.
                self._context.compare_clock(self._fenced_wall_ms, appended_ms)
            partition.own_nonce_on_owners = True
            if record.released and partition.holding.phase is Phase.RELEASING:
                self._feed(number, own.ReleaseRead())
        elif partition.own_nonce_on_owners:
            self._foreign(partition, record.nonce)

    def state_nonce_read(self, partition: Partition, nonce: str) -> None:
        """A fence record of the state topic. The own one counts once all that came with it was taken in (`advance`)."""
        if nonce != partition.nonce and (
            partition.served or (partition.restore is not None and partition.restore.nonce_read)
        ):
            self._foreign(partition, nonce)

    def _foreign(self, partition: Partition, nonce: str) -> None:
        if partition.holding.phase in (Phase.READING, Phase.HELD, Phase.DRAINING, Phase.RELEASING):
            self._context.log.warning("a later nonce than the own one", partition=partition.number, nonce=nonce)
            self._feed(partition.number, own.ForeignNonce(self._picture(partition.number)))

    def _check_read(self, partition: Partition) -> None:
        """Between rounds only: positions run ahead of what was taken in while a batch is being handed out.

        Looked at in the middle of one, they say that definitions were read which are still to come in it, and every
        task of theirs would be taken for deleted.
        """
        restore = partition.restore
        if partition.holding.phase is not Phase.READING or restore is None:
            return
        tasks_read = self._reader.position(self._context.topics.tasks, partition.number) >= restore.tasks_end
        if restore.nonce_read and partition.own_nonce_on_owners and tasks_read:
            self._feed(partition.number, own.OwnNonceRead(self._picture(partition.number)))

    # -- the loop -----------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return any(
            partition.holding.phase in (Phase.ENDING, Phase.ASKING, Phase.FENCING, Phase.READING)
            for partition in self._context.partitions.values()
        )

    def advance(self) -> None:
        """One round of whatever is under way. Raises Die, WrongNamespace; StepDown when the own ring was fenced."""
        for partition in list(self._context.partitions.values()):
            self._check_read(partition)
        if self._newly_held and not self._in(Phase.READING):
            held = [number for number in sorted(self._newly_held) if number in self._context.partitions]
            self._newly_held = []
            if held:
                self._context.log.info("holding", partitions=held)
        self._note_closed()
        if not self.busy or time.monotonic() < self._not_before_s:
            return
        try:
            # What this lane left in doubt (a batch that was dropped with its partition) would hold up its own question
            # until the broker's time-out: nobody else ends it, as the lane itself is the holder.
            self._ring.settle(SEND_LIMIT_S)
            self._end_holders()
            self._ask()
            self._fence()
            self._close_what_hangs()
        except RetryLater as problem:
            self._context.log.warning("acquisition goes on in a moment", why=str(problem))
            self._not_before_s = time.monotonic() + RETRY_S

    def _close_what_hangs(self) -> None:
        """A transaction that nobody ends keeps the own nonce, or a stable answer, from ever coming."""
        if self._closing is not None:
            return
        waiting = [item.number for item in (*self._in(Phase.ASKING), *self._in(Phase.READING))]
        found = self._hanging.look(waiting)
        if not found:
            return
        if self._counted_in(waiting[0]):
            self._closing = self._side.submit(self._hanging.close, found, self._member.metadata())

    def _counted_in(self, number: int) -> bool:
        """Whether the group counts this lane in, asked with an offset of `owners`, which nobody asks the group for.

        Left open by a lane that dies, the question would hold up the answer for its partition until the broker's
        time-out: it has no record that names the lane.
        """
        return self._ring.counted_in((self._context.topics.owners, number), self._member.metadata, SEND_LIMIT_S)

    def _note_closed(self) -> None:
        if self._closing is None or not self._closing.done():
            return
        closing, self._closing = self._closing, None
        try:
            self._context.log.warning("a transaction that nobody ended was closed", lanes=closing.result())
        except RetryLater as problem:  # it is looked for again
            self._context.log.warning("acquisition goes on in a moment", why=str(problem))

    def close(self) -> None:
        self._side.shutdown(wait=False, cancel_futures=True)

    def _in(self, phase: Phase) -> list[Partition]:
        return [item for item in self._context.partitions.values() if item.holding.phase is phase]

    def _end_holders(self) -> None:
        waiting = self._in(Phase.ENDING)
        if self._ending is None:
            # A member that was frozen and thrown out may not know it yet: it must not end the producers of the lane
            # that has the partition now.
            if not waiting:
                return
            if self._counted_in(waiting[0].number):
                self._begin_ending(waiting)
            else:
                self._not_before_s = time.monotonic() + RETRY_S
            return
        if not self._ending.done.done():
            return
        ending, self._ending = self._ending, None
        problem = ending.done.exception()
        if isinstance(problem, KafkaProblem):
            raise problem if not isinstance(problem, StepDown) else RetryLater(str(problem))
        if problem is not None:
            raise problem
        for partition in waiting:
            left = self._to_end(partition)
            if {holder.lane for holder in left} <= ending.lanes:
                self._feed(partition.number, own.HoldersEnded(ending.lanes))

    def _to_end(self, partition: Partition) -> tuple[Holder, ...]:
        return partition.holding.picture.to_end(self._context.lane, partition.holding.ended)

    def _begin_ending(self, waiting: list[Partition]) -> None:
        holders = {holder.lane: holder for partition in waiting for holder in self._to_end(partition)}
        # A process of the same worker that went before has the same transactional IDs: this lane's ring, initialised
        # since, has ended it; to end it again would be to end ourselves.
        ids = sorted({name for holder in holders.values() for name in holder.ring} - set(self._context.ring))
        self._context.log.info("ending earlier holders' producers", lanes=sorted(holders))
        if ids:
            done = self._side.submit(end_producers, self._context.settings, ids, END_LIMIT_S)
        else:
            done = Future()
            done.set_result(None)
        self._ending = _Ending(frozenset(holders), done)
        if not ids:
            self._end_holders()

    def _ask(self) -> None:
        asking = self._in(Phase.ASKING)
        if not asking:
            return
        topics = self._context.topics
        answers = self._member.committed([item.number for item in asking], topics.triggers, ASK_LIMIT_S)
        at_boot_s = self._context.clock.boot_s()
        control = self._member.committed(list(answers), topics.control, ASK_LIMIT_S) if answers else {}
        for partition in asking:
            number = partition.number
            if number not in answers or number not in control:
                self._end_who_holds_it_up(partition)
                continue
            answer = answers[number]
            partition.control_start = control[number].offset
            partition.renewed = None  # the answer names the last renewal: not this lane's own if another held it since
            self._feed(number, own.Answered(answer.offset, answer.stamp, at_boot_s))

    def _end_who_holds_it_up(self, partition: Partition) -> None:
        """No stable answer: a transaction is pending. By now the owners topic may name a holder to be ended.

        A lane that just started is assigned its partitions before it has read of anybody.
        """
        picture = self._picture(partition.number)
        if picture.to_end(self._context.lane, partition.holding.ended):
            partition.holding, commands = own.acquire(partition.number, self._context.lane, picture)
            self._do(partition, commands)

    def _fence(self) -> None:
        fencing = self._in(Phase.FENCING)
        if not fencing:
            return
        context = self._context
        nonces = {item.number: new_nonce() for item in fencing}
        starts = self._starts(fencing)
        records: list[OutRecord] = []
        offsets: dict[tuple[str, int], OffsetMark] = {}
        for partition in fencing:
            number = partition.number
            partition.trigger_start, partition.control_start = starts[number]
            value = encode_fence(self._fence_record(partition, nonces[number], released=False))
            records.append(OutRecord(context.topics.state, number, FENCE_KEY, value))
            records.append(OutRecord(context.topics.owners, number, str(number).encode(), value))
            stamp = carried(partition.holding.stamp, context.lane, nonces[number])
            offsets[context.topics.triggers, number] = OffsetMark(partition.trigger_start, encode_stamp(stamp))

        def check() -> None:
            for number in nonces:
                known = context.partitions.get(number)
                if known is None or known.holding.phase is not Phase.FENCING:
                    raise Refused(f"partition {number} is not being acquired any more")

        sentinel = self._sentinel(records[0])
        self._fenced_wall_ms = context.clock.wall_ms()
        outcome = self._ring.commit(records, offsets, self._member.metadata, check, sentinel, SEND_LIMIT_S)
        if isinstance(outcome, Committed):
            tasks = context.topics.tasks
            places = [(tasks, number) for number in nonces]
            self._tasks_ends = self._bounds.ends(places, SEND_LIMIT_S, committed_only=True)
            for number, nonce in nonces.items():
                self._feed(number, own.FenceSent(nonce))
            return
        context.log.info("fence transaction did not go through", why=outcome.reason)
        for number in nonces:
            self._feed(number, own.FenceFailed())
        if isinstance(outcome, Unclear):
            self._ring.settle(SEND_LIMIT_S)
        self._not_before_s = time.monotonic() + RETRY_S

    def release(self, numbers: Iterable[int]) -> None:
        """Write "released" for drained partitions; read back by `fence_read`."""
        context = self._context
        releasing = [context.partitions[number] for number in numbers]
        records: list[OutRecord] = []
        offsets: dict[tuple[str, int], OffsetMark] = {}
        for partition in releasing:
            value = encode_fence(self._fence_record(partition, partition.nonce, released=True))
            records.append(OutRecord(context.topics.owners, partition.number, str(partition.number).encode(), value))
            stamp = encode_stamp(context.stamp(partition, {}, 0))
            offsets[context.topics.triggers, partition.number] = OffsetMark(partition.triggers_offset, stamp)
        nonces = {partition.number: partition.nonce for partition in releasing}

        def check() -> None:
            if not all(context.holds(number, nonce) for number, nonce in nonces.items()):
                raise Refused("no longer held")

        sentinel = self._sentinel(records[0])
        outcome = self._ring.commit(records, offsets, self._member.metadata, check, sentinel, SEND_LIMIT_S)
        if not isinstance(outcome, Committed):
            context.log.info("could not write released; the next owner waits", why=outcome.reason)
            for number in nonces:
                self._feed(number, own.ReleaseFailed())

    def release_failed(self, number: int) -> None:
        self._feed(number, own.ReleaseFailed())

    def _sentinel(self, first: OutRecord) -> OutRecord:
        self._number += 1
        body = encode_sentinel(self._context.lane, -self._number)
        return OutRecord(first.topic, first.partition, SENTINEL_KEY, body)

    def _fence_record(self, partition: Partition, nonce: str, *, released: bool) -> FenceRecord:
        holding = partition.holding
        return FenceRecord(
            partition.number,
            self._context.lane,
            nonce,
            self._context.ring,
            open=() if released else holding.picture.to_end(self._context.lane, holding.ended),
            ended=tuple(sorted(holding.ended)),
            released=released,
            worker=self._context.identity.worker,
        )

    def refuse_topics_made_again(self, timeout_s: float) -> None:
        """Raises WrongNamespace where a topic is not the one that `init` made; RetryLater, Die."""
        again = self._bounds.made_again(self._context.topic_ids, timeout_s)
        if again:
            raise WrongNamespace(
                f"{', '.join(again)}: deleted or made again since `fencepost init`; what it held is lost, and epochs "
                "would start again at 1. Restore the topic, or accept the loss with `fencepost init "
                "--accept-new-topics`"
            )

    def _starts(self, partitions: list[Partition]) -> dict[int, tuple[int, int]]:
        """Where triggers and control begin. A log that begins later, or ends earlier, is a refusal, not a jump."""
        topics = self._context.topics
        offsets = {
            **{(topics.triggers, item.number): item.holding.offset for item in partitions},
            **{(topics.control, item.number): item.control_start for item in partitions},
        }
        self.refuse_topics_made_again(SEND_LIMIT_S)
        begins = self._bounds.begins(offsets, SEND_LIMIT_S)
        ends = self._bounds.ends(offsets, SEND_LIMIT_S)
        for place, offset in offsets.items():
            if offset >= 0 and not begins[place] <= offset <= ends[place]:
                raise WrongNamespace(
                    f"{place[0]}-{place[1]} holds offsets {begins[place]} to {ends[place]}, but {offset} was to be "
                    "read next: the topic was made again, or its retention is shorter than the backlog; "
                    "see docs/operations.md, 'A log that begins too late'"
                )
        for item in partitions:
            item.trigger_end = ends[topics.triggers, item.number]
            item.control_end = ends[topics.control, item.number]
        found = {place: offset if offset >= 0 else begins[place] for place, offset in offsets.items()}
        return {
            item.number: (found[topics.triggers, item.number], found[topics.control, item.number])
            for item in partitions
        }

    def _picture(self, number: int) -> Picture:
        return self._context.pictures.get(number, Picture())

    # -- commands -----------------------------------------------------------------------------------------------

    def _feed(self, number: int, event: own.Event) -> None:
        partition = self._context.partitions.get(number)
        if partition is None:
            return
        before = partition.holding.phase
        partition.holding, commands = own.step(partition.holding, event)
        if partition.holding.phase is not before:
            self._context.log.debug(
                "partition", partition=number, phase=partition.holding.phase.value, after=type(event).__name__
            )
        self._do(partition, commands)

    def _do(self, partition: Partition, commands: Iterable[own.Command]) -> None:
        for command in commands:
            if isinstance(command, own.ReadBack):
                self._read_back(partition, command.nonce)
            elif isinstance(command, own.Hold):
                self._hold(partition)
            elif isinstance(command, own.LetGo):
                self._let_go(partition)
            elif isinstance(command, own.KillRuns):
                self._kill_runs(partition)
            elif isinstance(command, own.Drain):
                partition.draining_since_s = self._context.clock.boot_s()
            elif isinstance(command, own.GiveUp):
                self._let_go(partition)
                self._context.lease.forget(partition.number)
                del self._context.partitions[partition.number]
            # EndProducers, Ask, SendFence and SendRelease are found by phase in the next round

    def _read_back(self, partition: Partition, nonce: str) -> None:
        topics, number = self._context.topics, partition.number
        partition.own_nonce_on_owners = False
        partition.restore_began_s = time.monotonic()
        place = (number, self._context.partition_count)
        partition.restore = Restore(nonce, self._tasks_ends[topics.tasks, number], place)
        self._reader.assign([(topics.state, number, BEGINNING), (topics.tasks, number, BEGINNING)])

    def _hold(self, partition: Partition) -> None:
        assert partition.restore is not None
        try:
            restored = partition.restore.finish()
        except BadRecord as bad:
            raise Die(f"the epoch floor of partition {partition.number}: {bad}") from bad
        partition.restore = None
        partition.triggers_offset, partition.control_offset = partition.trigger_start, partition.control_start
        partition.control_committed = -1
        topics, number = self._context.topics, partition.number
        self._reader.assign(
            [(topics.triggers, number, partition.triggers_offset), (topics.control, number, partition.control_offset)]
        )
        self._on_held(partition, restored)
        self._newly_held.append(number)
        self._fenced_in_turn = 0
        seconds = time.monotonic() - partition.restore_began_s
        self._context.meters.restored(seconds, len(partition.tasks))

    def _let_go(self, partition: Partition) -> None:
        topics, number = self._context.topics, partition.number
        self._reader.unassign(
            [(topic, number) for topic in (topics.state, topics.tasks, topics.triggers, topics.control)]
        )
        self._on_let_go(partition)
        partition.restore = None
        partition.own_nonce_on_owners = False
        partition.clear()
        partition.holding = replace(partition.holding, nonce="")

    def _kill_runs(self, partition: Partition) -> None:
        from fencepost.core.task import Cause

        for task_id, epoch in partition.live.items():
            self._context.runners.stop(task_id, epoch, "interrupted", Cause.FENCED, 0.0)

"""What a lane decides in one round: reports, waits, definitions, control, slots and triggers become the next batch."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace

from fencepost.codec import BadRecord
from fencepost.core.broadcasts import is_for_a_worker, needs_attendance
from fencepost.core.events import Adopted, Checkpointed, Ended, Interrupted, Started, Woken
from fencepost.core.forgetting import forgettable
from fencepost.core.ids import partition_of
from fencepost.core.making import new_ended
from fencepost.core.ownership import Phase
from fencepost.core.task import INTERRUPTED, SUCCEEDED, Cause, Outcome
from fencepost.wire.work import check_checkpoint
from fencepost.worker.batch import Batch, Part
from fencepost.worker.context import LaneContext
from fencepost.worker.intake import NOT_YET, STARTED, Intake
from fencepost.worker.look_around import LookAround
from fencepost.worker.orders import Refused, RunCheckpoint, RunEnded
from fencepost.worker.partition import Partition

TIDY_AFTER_S = 0.5
QUEUE_STEP = 500
WOKEN_STEP = 500
CLOGGED_AFTER_S = 0.5
FORGET_EVERY_S = 600.0  # between two looks at all tasks of a partition
FORGET_STEP = 500  # tasks looked at in one round
DEFINITIONS_STEP = 10_000  # tasks given their definition in one batch: a million would keep the loop from beating

Report = RunEnded | RunCheckpoint | Refused


class Decisions:
    """Applies what happened to the tasks, and gives out the free room.

    `waits_over` is told when step 4 is done; while `hold_triggers` says so they are left where they are.
    """

    def __init__(
        self,
        context: LaneContext,
        intake: Intake,
        waits_over: Callable[[int], None],
        look_around: LookAround,
        hold_triggers: Callable[[], bool] = lambda: False,
    ) -> None:
        self._context = context
        self._intake = intake
        self._waits_over = waits_over
        self._look_around = look_around
        self._hold_triggers = hold_triggers
        self._reported_s = 0.0
        self._tidy_at_s: float | None = None

    def tidy_soon(self) -> None:
        """Something was taken from a topic: its offset is committed once all is quiet."""
        self._tidy_at_s = time.monotonic() + TIDY_AFTER_S

    def next_batch(self, reports: list[Report], *, may_start: bool) -> Batch | None:
        """Ends first (they free runners), then what waits, then starts. None: there is nothing to write."""
        context = self._context
        now_ms = context.clock.now_ms()
        batch = Batch(now_ms)
        self._apply_reports(reports, batch, now_ms)
        left = DEFINITIONS_STEP
        for partition in list(context.partitions.values()):
            if not partition.served:
                continue
            part = batch.part(partition.number, partition.nonce)
            left -= self._apply_restored(partition, part, left, now_ms)
            self._end_waits(partition, part, now_ms)
            if not partition.undefined:  # what is read now is newer
                left -= self._intake.definitions(partition, part, left, now_ms)
            self._intake.control(partition, part, now_ms)
        if may_start:
            self._start(batch, now_ms)
        self._forget(batch, now_ms)
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

    def _forget(self, batch: Batch, now_ms: int) -> None:
        """Let go of states that are idle for long, a few at a time.

        Last in a batch, and only what it did not touch: one record for each key. What the states say of offsets has to
        be committed with them or before: a trigger that was taken must not be read again.
        """
        after_ms = round(self._context.settings.forget_after_s * 1000)
        if not after_ms:
            return
        now_s = time.monotonic()
        for partition in self._context.partitions.values():
            if not partition.starts or partition.undefined or partition.waits:
                continue
            if not partition.to_look_at and now_s >= partition.look_at_s:
                partition.to_look_at.extend(partition.tasks)
                partition.look_at_s = now_s + FORGET_EVERY_S
            part = batch.parts.get(partition.number)
            for _ in range(min(FORGET_STEP, len(partition.to_look_at))):
                task_id = partition.to_look_at.popleft()
                task = partition.tasks.get(task_id)
                if task is None or (part is not None and task_id in part.before):
                    continue
                state = task.state
                taken = state.trigger_offset < partition.triggers_offset and (
                    state.control_offset < max(partition.control_offset, 0)
                )
                if taken and forgettable(task, now_ms, after_ms):
                    part = batch.part(partition.number, partition.nonce)
                    partition.forget(task_id)
                    part.forget(task_id, state.epoch, partition.floor)

    def _apply_reports(self, reports: list[Report], batch: Batch, now_ms: int) -> None:
        for report in reports:
            partition = self._partition_of(report.task)
            if isinstance(report, RunCheckpoint):
                if partition is not None and partition.served:
                    self._checkpoint(partition, batch.part(partition.number, partition.nonce), report, now_ms)
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
        if reports or not self._context.runners.in_flight():
            self._reported_s = time.monotonic()

    def _checkpoint(self, partition: Partition, part: Part, report: RunCheckpoint, now_ms: int) -> None:
        try:
            check_checkpoint(report.data)
        except BadRecord as bad:
            self._context.log.warning("checkpoint left out", task=report.task, epoch=report.epoch, why=str(bad))
            return
        self._intake.apply(partition, part, report.task, Checkpointed(report.epoch, report.data), now_ms)

    def _apply_end(self, partition: Partition, part: Part, ended: RunEnded, now_ms: int) -> None:
        event: Interrupted | Ended
        if ended.outcome is SUCCEEDED:
            event = new_ended(ended.epoch, ended.outcome, ended.result)
        elif ended.outcome is INTERRUPTED:
            event = Interrupted(ended.epoch, ended.cause or Cause.STOPPED, random.uniform(-1.0, 1.0))
        else:
            event = Ended(
                ended.epoch,
                ended.outcome,
                ended.result,
                ended.error,
                random.uniform(-1.0, 1.0),
                ended.names,
                ended.exit_code,
                ended.limit,
                ended.final,
            )
        if self._intake.apply(partition, part, ended.task, event, now_ms):
            part.reports.append(ended)
            cause = ended.cause.value if ended.cause is not None else None
            self._context.meters.run_ended(ended.task, ended.outcome.value, cause)

    def _partition_of(self, task_id: str) -> Partition | None:
        return self._context.partitions.get(partition_of(task_id.encode(), self._context.partition_count))

    def _apply_restored(self, partition: Partition, part: Part, limit: int, now_ms: int) -> int:
        """Definitions of restored tasks, `limit` of them, and reports that came while the partition was not held.

        Tasks found RUNNING come first and whatever the limit: how their runs' ends count is for the definition to say.
        Returns how many were taken.
        """
        taken = 0
        while partition.undefined and (taken < limit or partition.undefined[0][0] in partition.found_running):
            task_id, definition = partition.undefined.popleft()
            self._intake.define(partition, part, task_id, definition, now_ms, restored=True)
            taken += 1
        for task_id, epoch in partition.adopted:
            self._intake.apply(partition, part, task_id, Adopted(epoch, partition.nonce), now_ms)
        partition.adopted = []
        for key, report in list(partition.found.items()):
            del partition.found[key]
            self._apply_end(partition, part, report, now_ms)
        return taken

    def _end_waits(self, partition: Partition, part: Part, now_ms: int) -> None:
        """Runs of earlier holders whose lease is over for certain."""
        if not partition.waits:
            if not partition.holding.waited and partition.holding.phase in (Phase.HELD, Phase.DRAINING):
                self._waits_over(partition.number)
            return
        boot_s, node_fence = self._context.clock.boot_s(), self._context.node_fence
        node_fence.take()
        for task_id, until_s in list(partition.waits.items()):
            run = partition.task(task_id).state.run
            if boot_s < until_s and not (run is not None and node_fence.confirmed(run.lane)):
                continue
            del partition.waits[task_id]
            if run is not None:
                fenced = node_fence.outcome(run.lane)
                event = Interrupted(run.epoch, Cause.LOST, random.uniform(-1.0, 1.0), fenced)
                self._intake.apply(partition, part, task_id, event, now_ms)
                self._context.meters.run_ended(task_id, Outcome.INTERRUPTED.value, Cause.LOST.value)
                self._context.meters.takeover(boot_s - partition.holding.answered_boot_s)

    def _start(self, batch: Batch, now_ms: int) -> None:
        """Give out the free room, partition by partition: what is due, what is ready, what was triggered."""
        context = self._context
        room = context.runners.room()
        starting = [item for item in context.partitions.values() if item.starts]
        random.shuffle(starting)  # so that no partition is always first
        for partition in starting:
            partition.look_again(now_ms)
        share = max(1, room // max(1, len(starting)))
        for partition in starting:
            part = batch.part(partition.number, partition.nonce)
            # Woken before anything starts, they stand in line behind what is ready now. Given only the room left over,
            # they would never start where a task is ready again as soon as its run has ended.
            running = partition.due(now_ms, WOKEN_STEP, running=True)
            for task_id in (*running, *partition.due(now_ms, min(room, share), running=False)):
                self._intake.apply(partition, part, task_id, Woken(), now_ms)
        for partition in starting:
            room -= self._start_ready(partition, batch.part(partition.number, partition.nonce), room, now_ms)
        waiting = [] if self._hold_triggers() else [item for item in starting if item.triggers]
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
        assert task.definition is not None
        start = self._started(partition, task.definition.lease_ttl_s)
        if task.definition.broadcast and needs_attendance(task):
            attendance = self._look_around.attendance(partition, task_id)
            if attendance is None:
                return False
            start = replace(start, attendance=attendance)
        elif not self._intake.can_run(partition, task_id, task):
            if not is_for_a_worker(task):
                return False
            start = replace(start, able=False)
        return self._intake.apply(partition, part, task_id, start, now_ms)

    def _started(self, partition: Partition, lease_ttl_s: float | None = None) -> Started:
        ttl_s = max(lease_ttl_s or 0.0, self._context.settings.lease_ttl_s)
        return Started(self._context.lane, partition.nonce, ttl_s, self._context.identity.worker)

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
            if taken is NOT_YET:
                break
            if taken is STARTED:
                started += 1
            elif started < room and partition.ready:
                started += self._start_ready(partition, part, 1, now_ms)
        return started

    def _clogged(self) -> bool:
        """Whether no run has ended for a while: what cannot start then goes into the state and frees its place."""
        return time.monotonic() - self._reported_s > CLOGGED_AFTER_S


def _as_ended(report: RunEnded | Refused) -> RunEnded:
    """A refused order ran nothing: to the task it was interrupted, and uses up no attempt."""
    if isinstance(report, RunEnded):
        return report
    return RunEnded(report.task, report.epoch, INTERRUPTED, Cause.FENCED)

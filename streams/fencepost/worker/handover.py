"""Giving a partition away: runs in flight may end, what outlives the limit is stopped, then it is released."""

from __future__ import annotations

from fencepost.core.ownership import Phase
from fencepost.core.task import Cause, OnHandover
from fencepost.worker.acquisition import Acquisitions
from fencepost.worker.batch import Batch
from fencepost.worker.context import LaneContext

RELEASE_LIMIT_S = 3.0
WRITE_LIMIT_S = 10.0


class Handover:
    """`limit_s` and `cause` are those of a handover, until the worker stops: then the lane sets them."""

    def __init__(self, context: LaneContext, acquisitions: Acquisitions) -> None:
        self._context = context
        self._acquisitions = acquisitions
        self.limit_s = context.handover_limit_s
        self.cause = Cause.HANDOVER

    def begin(self, number: int) -> None:
        """Runs whose task says so stop at once when their partition is given away."""
        partition = self._context.partitions.get(number)
        if partition is None:
            return
        for task_id, epoch in partition.live.items():
            definition = partition.task(task_id).definition
            if definition is not None and definition.on_handover is OnHandover.STOP:
                self._context.runners.stop(task_id, epoch, "interrupted", self.cause, definition.grace_s)

    def watch(self, pending: Batch | None) -> None:
        """Draining partitions: end what outlives the limit, then say that they are drained, then release them."""
        context = self._context
        boot_s = context.clock.boot_s()
        releasing: list[int] = []
        for number, partition in list(context.partitions.items()):
            phase = partition.holding.phase
            if phase is Phase.DRAINING:
                unwritten = partition.live or partition.found or (pending is not None and number in pending.parts)
                if not unwritten:
                    self._acquisitions.drained(number)
                elif boot_s - partition.draining_since_s > self.limit_s and not partition.stopped_for_handover:
                    partition.stopped_for_handover = True
                    for task_id, epoch in partition.live.items():
                        context.runners.stop(task_id, epoch, "interrupted", self.cause, 0.0)
                elif boot_s - partition.draining_since_s > self.limit_s + WRITE_LIMIT_S:
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

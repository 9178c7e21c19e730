"""Who is there, as the topic of owners says: asked when a broadcast is to begin, or has to ask a worker again."""

from __future__ import annotations

from typing import Final

from fencepost.core.attendance import Attendance, attendance_of
from fencepost.kafka.bounds import Bounds
from fencepost.kafka.errors import RetryLater
from fencepost.kafka.reader import Reader
from fencepost.worker.context import LaneContext
from fencepost.worker.partition import Look, Partition

ASK_LIMIT_S: Final = 3.0


class LookAround:
    """Of one lane, which follows all of `owners` anyway."""

    def __init__(self, context: LaneContext, reader: Reader, bounds: Bounds) -> None:
        self._context = context
        self._reader = reader
        self._bounds = bounds

    def attendance(self, partition: Partition, task_id: str) -> Attendance | None:
        """Who holds partitions, as of a moment after this was first asked for the task; None: ask in the next round.

        The partitions of the topic are not read to one and the same moment. A worker whose only partition goes while
        it gets another could be seen to have lost the one, and not yet to have got the other. So whoever was seen with
        any since the look began is seen with one at its end, or it begins anew: a worker that holds something all the
        time is never missing.
        """
        look = partition.looked.get(task_id)
        if look is None:
            look = self._begin()
        if look is not None and any(self._reader.position(*place) < end for place, end in look.ends.items()):
            partition.looking[task_id] = look
            return None
        if look is not None:
            there = attendance_of(self._context.pictures, self._context.partition_count)
            heard = self._context.heard
            seen = look.held | {worker for worker, count in heard.items() if count != look.heard.get(worker, 0)}
            if seen <= {worker for worker, _ in there.homes}:
                return there
        partition.looking[task_id] = None
        return None

    def _begin(self) -> Look | None:
        count, owners = self._context.partition_count, self._context.topics.owners
        held = {worker for worker, _ in attendance_of(self._context.pictures, count).homes}
        try:
            ends = self._bounds.ends([(owners, each) for each in range(count)], ASK_LIMIT_S, committed_only=True)
        except RetryLater as problem:  # not to be raised from here: the batch being built must not be lost
            self._context.log.warning("Kafka does not answer", why=str(problem))
            return None
        return Look(ends, frozenset(held), dict(self._context.heard))

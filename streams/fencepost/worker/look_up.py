"""Whether the definitions were read far enough to say that a task does not exist."""

from __future__ import annotations

from typing import Any, Final

from fencepost.kafka.bounds import Bounds
from fencepost.kafka.errors import RetryLater
from fencepost.kafka.reader import Reader

LOOK_UP_LIMIT_S: Final = 3.0


class LookUp:
    """Of one partition, and of one topic whose records name tasks. Offsets are those of that topic.

    A definition that was produced just before the first record for its task must not be missed: the definitions count
    for a record once they were read to their end as of a moment after the record came.

    of_shards: the definition may be of the very transaction that the record is of, and the mark that commits it comes
    to each partition in its own time. So what is not decided yet counts as well, and is waited for.
    """

    def __init__(self, topic: str, partition: int, *, of_shards: bool = False) -> None:
        self._place = (topic, partition)  # of the definitions
        self._committed_only = not of_shards
        self._checked_offset = -1  # records up to here were looked up
        self._until: tuple[int, int] | None = None  # (end of the definitions, last record it speaks for)

    def done(self, offset: int, last_offset: int, reader: Reader, bounds: Bounds, unread: bool, log: Any) -> bool:
        """Whether this holds for the record at `offset`; `last_offset` is that of the last one that has come.

        `unread`: definitions were read that are still to be taken.
        """
        if offset <= self._checked_offset:
            return True
        if self._until is None:
            try:
                end = bounds.ends([self._place], LOOK_UP_LIMIT_S, committed_only=self._committed_only)[self._place]
            except RetryLater as problem:  # not to be raised from here: the batch being built must not be lost
                log.warning("Kafka does not answer", why=str(problem))
                return False
            self._until = (end, last_offset)
        end, last = self._until
        if reader.position(*self._place) < end or unread:
            return False
        self._checked_offset, self._until = last, None
        return offset <= last

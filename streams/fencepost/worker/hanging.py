"""An acquisition that does not move on because somebody's transaction is open on the partition, and nobody ends it.

Every record names its lane: the first one behind the committed end tells whose transaction it is, though `owners` may
not know that lane. Its producers are ended like those of any earlier holder, and what the broker lost the end of is
closed. The partition is this lane's by then; the group is asked once more right before (`Ring.counted_in`), as always
when producers are ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from fencepost.codec import BadRecord, loads_own
from fencepost.kafka.bounds import Bounds
from fencepost.kafka.hanging import close_transactions, open_records
from fencepost.kafka.member import GroupMetadata
from fencepost.kafka.reader import Place
from fencepost.kafka.scan import Record
from fencepost.kafka.transaction import OutRecord, transactional_ids
from fencepost.settings import Settings
from fencepost.wire.sentinel import encode_sentinel
from fencepost.worker.context import LaneContext
from fencepost.worker.restore import SENTINEL_KEY

LOOK_EVERY_S = 2.0  # an open transaction that is seen twice so far apart is not one that is just going on
ASK_LIMIT_S = 3.0
CLOSE_LIMIT_S = 10.0


class Hanging:
    """`look` says which partitions an open transaction holds up; `close` ends those transactions."""

    def __init__(self, context: LaneContext, bounds: Bounds) -> None:
        self._context = context
        self._bounds = bounds
        self._seen: dict[Place, int] = {}
        self._not_before_s = 0.0

    def look(self, waiting: Iterable[int]) -> dict[Place, int]:
        """Of these partitions: where the committed end stands still before an open transaction. Raises RetryLater, Die.

        Every LOOK_EVERY_S only; in between nothing is found.
        """
        numbers = list(waiting)
        if not numbers:
            self._seen = {}
            return {}
        if time.monotonic() < self._not_before_s:
            return {}
        self._not_before_s = time.monotonic() + LOOK_EVERY_S
        topics = self._context.topics
        places = [(topic, number) for number in numbers for topic in (topics.state, topics.owners)]
        committed = self._bounds.ends(places, ASK_LIMIT_S, committed_only=True)
        ends = self._bounds.ends(places, ASK_LIMIT_S)
        before, self._seen = self._seen, {place: end for place, end in committed.items() if end < ends[place]}
        return {place: end for place, end in self._seen.items() if before.get(place) == end}

    def close(self, found: dict[Place, int], group: GroupMetadata) -> list[str]:
        """Ends the lanes whose transactions are open there; returns them. Blocks: not for the lane's own thread.

        Raises KafkaProblem.
        """
        settings, topics = self._context.settings, self._context.topics
        by_lane: dict[str, set[int]] = {}
        for place, end in found.items():
            lane = first_lane(open_records(settings, place, end, ASK_LIMIT_S))
            if lane is not None:
                by_lane.setdefault(lane, set()).add(place[1])
        for lane, numbers in by_lane.items():
            value = encode_sentinel(self._context.lane, 0)
            records = [
                OutRecord(topic, number, SENTINEL_KEY, value)
                for number in sorted(numbers)
                for topic in (topics.state, topics.owners, topics.runs, topics.dead_letter)
            ]
            offset = (topics.triggers, min(numbers))
            close_transactions(settings, ring_of(settings, lane), records, offset, group, CLOSE_LIMIT_S)
        return sorted(by_lane)


def first_lane(records: Iterable[Record]) -> str | None:
    """The lane that the first of these records names."""
    for record in records:
        if record.value is None:
            continue
        try:
            body = loads_own(record.value)
        except BadRecord:
            continue
        if isinstance(body, dict) and isinstance(body.get("lane"), str):
            return str(body["lane"])
    return None


def ring_of(settings: Settings, lane: str) -> tuple[str, ...]:
    """The transactional IDs of a lane, by its own ID: worker/ordinal/incarnation."""
    worker, ordinal, _incarnation = lane.rsplit("/", 2)
    return transactional_ids(settings.namespace, worker, int(ordinal))

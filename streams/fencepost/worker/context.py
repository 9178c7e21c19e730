"""What the parts of one lane share. One thread, so plain mutable state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost.core.lease import Lease, OffsetStamp, Watch
from fencepost.core.ownership import Picture
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.worker.clock import Clock
from fencepost.worker.declared import Declared
from fencepost.worker.identity import Identity
from fencepost.worker.meters import Meters
from fencepost.worker.node_fence import NodeFence
from fencepost.worker.orders import Runners
from fencepost.worker.partition import Partition


@dataclass(slots=True)
class LaneContext:
    """One lane's names, settings and what it knows. `partitions` holds those assigned to it, whatever their phase."""

    settings: Settings
    topics: Topics
    partition_count: int
    handover_limit_s: float
    identity: Identity
    ordinal: int
    lane: str
    ring: tuple[str, ...]
    runners: Runners
    declared: Declared
    clock: Clock
    lease: Lease
    meters: Meters
    log: Any
    node_fence: NodeFence = field(default_factory=NodeFence)
    topic_ids: Mapping[str, str] = field(default_factory=dict)  # as `init` recorded them
    watch: Watch = field(default_factory=Watch)
    pictures: dict[int, Picture] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)  # by worker, how many fences of its were read
    partitions: dict[int, Partition] = field(default_factory=dict)

    def holds(self, partition: int, nonce: str) -> bool:
        """Whether records under this nonce may be written for the partition."""
        known = self.partitions.get(partition)
        return known is not None and known.served and known.nonce == nonce

    def live(self) -> dict[int, str]:
        """Partitions with runs in flight, with their nonces: what a renewal has to name."""
        return {number: part.nonce for number, part in self.partitions.items() if part.live and part.served}

    def home(self) -> int | None:
        """The partition that takes the lane's lease record: one it owns and is not giving away, if there is any.

        Never one shared by workers: an open transaction hides all that follows it from committed readers.
        """
        served = sorted(number for number, part in self.partitions.items() if part.served)
        staying = [number for number in served if self.partitions[number].starts]
        candidates = staying or served
        return candidates[0] if candidates else None

    def compare_clock(self, sent_wall_ms: int, appended_ms: int) -> None:
        """A record of ours came back: the broker put its time on it somewhere between sending and reading."""
        if self.clock.observe(sent_wall_ms, appended_ms, self.clock.wall_ms()):
            self.log.warning(
                "this machine's clock differs from the brokers'", difference_s=self.clock.difference_ms / 1000
            )

    def stamp(self, partition: Partition, renewing: dict[int, str], renewal: int) -> OffsetStamp:
        """What goes with an offset: the last renewal that can have extended a lease of the partition."""
        number = partition.number
        if number in renewing:
            partition.renewed = (self.lane, renewal)
        if partition.renewed is not None:
            return OffsetStamp(self.lane, partition.nonce, *partition.renewed)
        return carried(partition.holding.stamp, self.lane, partition.nonce)


def carried(earlier: OffsetStamp | None, lane: str, nonce: str) -> OffsetStamp:
    """The stamp of a lane that has not renewed the partition yet: it carries the earlier holder's renewal forward."""
    if earlier is None:
        return OffsetStamp(lane, nonce)
    return OffsetStamp(lane, nonce, earlier.renewed_by, earlier.renewal)

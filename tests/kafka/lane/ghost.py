"""An owner that is gone: what it leaves behind in the topics, written as a lane writes it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from fencepost.core.lease import OffsetStamp, SentRenewal
from fencepost.core.ownership import FenceRecord
from fencepost.core.task import Run, Status, TaskState, Work
from fencepost.kafka.transaction import Committed, OffsetMark, OutRecord, Ring, make_producer
from fencepost.wire.owners import encode_fence, encode_renewal, encode_stamp
from fencepost.wire.state import encode_state
from fencepost.worker.restore import FENCE_KEY, SENTINEL_KEY
from tests.kafka.lane.harness import World
from tests.kafka.lane.members import LIMIT_S, Joined, make_member, make_ring

LANE = "ghost/0/aa"
NONCE = "ghost-nonce"


@dataclass(slots=True)
class Ghost:
    """A member with a ring and no lane. `stamps` are what its offsets say of each partition."""

    world: World
    joined: Joined
    ring: Ring
    stamps: dict[int, OffsetStamp] = field(default_factory=dict)

    def fence(self, partition: int) -> None:
        """Take the partition as step 2 of an acquisition does."""
        record = FenceRecord(partition, LANE, NONCE, self.ring.ids, worker="ghost")
        value = encode_fence(record)
        self._write(
            partition,
            OutRecord(self.world.topics.state, partition, FENCE_KEY, value),
            OutRecord(self.world.topics.owners, partition, str(partition).encode(), value),
        )

    def running(self, task: str, ttl_s: float, epoch: int = 1) -> None:
        """Leave the task RUNNING."""
        now_ms = int(time.time() * 1000)
        run = Run(epoch, 1, LANE, NONCE, ttl_s, now_ms)
        work = Work(seq=1, arrived_ms=now_ms, attempt=1, offset=-1)
        state = TaskState(task, epoch, Status.RUNNING, run, work, next_seq=2)
        partition = self.world.partition(task)
        record = OutRecord(self.world.topics.state, partition, task.encode(), encode_state(state, LANE, NONCE))
        self._write(partition, record)

    def renew(self, number: int, partition: int, ttl_s: float) -> None:
        """A renewal that names the partition, and the offset that names the renewal."""
        sent = SentRenewal(number, 0.0, ((partition, NONCE),))
        value = encode_renewal(LANE, "ghost", ttl_s, sent)
        self.stamps[partition] = OffsetStamp(LANE, NONCE, LANE, number)
        self._write(partition, OutRecord(self.world.topics.owners, partition, LANE.encode(), value))

    def leave_open(self, partition: int) -> None:
        """Begin a transaction with an offset and a state record of the partition, and never end it."""
        patient = replace(self.world.settings, transaction_timeout_s=60.0)
        producer = make_producer(patient, self.ring.ids[-1], lambda _error: None)
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        producer.produce(self.world.topics.state, b"{}", b"never-committed", partition)
        assert producer.flush(LIMIT_S) == 0
        (mark,) = self._marks(partition).items()
        from confluent_kafka import TopicPartition

        position = TopicPartition(*mark[0], mark[1].offset, metadata=mark[1].metadata)
        producer.send_offsets_to_transaction([position], self.joined.member.metadata().raw, LIMIT_S)
        self._open = producer

    def die(self) -> None:
        """Gone from the group, with nothing released and nothing ended."""
        self.joined.member.close()

    _open: object = None

    def _marks(self, partition: int) -> dict[tuple[str, int], OffsetMark]:
        stamp = self.stamps.get(partition, OffsetStamp(LANE, NONCE))
        return {(self.world.topics.triggers, partition): OffsetMark(0, encode_stamp(stamp))}

    def _write(self, partition: int, *records: OutRecord) -> None:
        first = records[0]
        sentinel = OutRecord(first.topic, first.partition, SENTINEL_KEY, b'{"v":1}')
        metadata = self.joined.member.metadata
        outcome = self.ring.commit(records, self._marks(partition), metadata, lambda: None, sentinel, LIMIT_S)
        assert outcome == Committed(), outcome


def make_ghost(world: World) -> Ghost:
    """Joined, and with every partition if nobody else is in the group."""
    return Ghost(world, make_member(world, 9), make_ring(world, "ghost"))

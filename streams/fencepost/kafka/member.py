"""The member of the consumer group: it decides which partitions a lane owns, and never fetches a record.

It subscribes to the triggers topic alone (one group over two topics does not give them the same owner) and is paused
on everything. Its callbacks run inside `poll`; all calls come from the lane's thread.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from fencepost.core.lease import OffsetStamp
from fencepost.kafka.config import client_config
from fencepost.kafka.errors import Die, RetryLater, classify, error_of, problem_of
from fencepost.settings import Settings
from fencepost.wire.owners import decode_stamp

_MAGIC = b"CGMDv2:"
# A fatal error comes without the code of its cause, but with the library's own words for it.
_PLACE_TAKEN = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str()
_PLACE_RETRY_S = 1.0
_PLACE_LIMIT_S = 30.0

Partitions = list[int]


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """What goes with offsets into a transaction. `generation` is the member epoch under KIP-848."""

    raw: object
    generation: int
    member_id: str

    @property
    def joined(self) -> bool:
        """The broker accepts metadata of a member that never joined or was thrown out unchecked; never send it."""
        return self.generation >= 1 and self.member_id != ""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int  # -1: none
    stamp: OffsetStamp | None


class Member:
    """One membership of the namespace's group."""

    def __init__(
        self,
        settings: Settings,
        *,
        topic: str,
        protocol: str,
        ordinal: int,
        instance_id: str | None,
        on_assigned: Callable[[Partitions], None],
        on_revoked: Callable[[Partitions], None],
        on_lost: Callable[[Partitions], None],
    ) -> None:
        self._on = (on_assigned, on_revoked, on_lost)
        self.rebalances = 0
        self._config = _config(settings, protocol, ordinal, instance_id)
        self._consumer = Consumer(self._config)
        self._topic = topic
        self._failure: BaseException | None = None
        # A predecessor that was killed keeps a static member's place until its session is over.
        self._patience_s = 2 * settings.session_timeout_s + _PLACE_LIMIT_S
        self._refused_since_s: float | None = None
        self._join_again_s: float | None = None

    def join(self) -> None:
        """Ask to be a member. From here on `poll` has to be called: a silent member holds up the whole group."""
        topics = [self._topic]
        self._consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def poll(self, timeout_s: float = 0.0) -> None:
        """Serve membership: callbacks run in here. Raises Die where the client cannot go on, and what they raised."""
        if self._join_again_s is not None:
            if time.monotonic() < self._join_again_s:
                return
            self._join_again_s = None
            self._consumer = Consumer(self._config)
            self.join()
        message = self._consumer.poll(timeout_s)
        self._raise_failure()
        if message is None:
            return
        error = message.error()
        if error is None or classify(error) is not Die:
            return
        if _PLACE_TAKEN not in error.str() or not self._waits_for_its_place():
            raise Die(f"the group member: {error.str()}")

    def _waits_for_its_place(self) -> bool:
        """Whether to ask again for the place of a process of this worker that was killed, or ends just now.

        The newer protocol refuses a static member while the group still counts an earlier one in, and to the client
        library that is fatal. Not for ever, and not once this member was in: then it is this one that is the earlier.
        """
        now_s = time.monotonic()
        since_s = self._refused_since_s = self._refused_since_s or now_s
        if self.rebalances or now_s - since_s > self._patience_s:
            return False
        self._consumer.close()
        self._join_again_s = now_s + _PLACE_RETRY_S
        return True

    def metadata(self) -> GroupMetadata:
        """Read afresh: metadata taken before a rebalance is refused afterwards."""
        if self._join_again_s is not None:
            return GroupMetadata(None, -1, "")
        try:
            raw = self._consumer.consumer_group_metadata()
        except RuntimeError:  # the client library has none any more: it leaves the group, or was thrown out meanwhile
            return GroupMetadata(None, -1, "")
        return _parse(raw)

    def committed(self, partitions: Collection[int], topic: str, timeout_s: float) -> dict[int, CommittedOffset]:
        """Stable answers only: under read_committed the broker withholds an offset with a transaction pending on it.

        Partitions without a stable answer yet are missing from the result. Raises RetryLater when nothing came at all.
        """
        asked = [TopicPartition(topic, partition) for partition in partitions]
        try:
            answers = self._consumer.committed(asked, timeout=timeout_s)
        except KafkaException as exception:
            if classify(error_of(exception)) is RetryLater:
                return {}
            raise problem_of(exception, "asking for committed offsets") from exception
        return {
            answer.partition: CommittedOffset(max(answer.offset, -1), decode_stamp(answer.metadata))
            for answer in answers
            if answer.error is None
        }

    def close(self) -> None:
        """Leave the group (a static member stays in it until its session ends). on_revoked runs in here."""
        if self._join_again_s is None:
            self._consumer.close()
        self._raise_failure()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        # Nothing is ever fetched here, so the position does not matter; without one the client would ask for it.
        consumer.incremental_assign([TopicPartition(item.topic, item.partition, 0) for item in partitions])
        consumer.pause(partitions)
        self._run(self._on[0], partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        self._run(self._on[1], partitions)
        consumer.incremental_unassign(partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        self._run(self._on[2], partitions)
        consumer.incremental_unassign(partitions)

    def _run(self, callback: Callable[[Partitions], None], partitions: list[TopicPartition]) -> None:
        # An exception must not unwind through the client library's C frames half way through a rebalance.
        try:
            callback(sorted(item.partition for item in partitions))
        except Exception as failure:  # noqa: BLE001 - raised by `poll` as soon as it is out of those frames
            self._failure = failure

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def _config(settings: Settings, protocol: str, ordinal: int, instance_id: str | None) -> dict[str, object]:
    session_ms = int(settings.session_timeout_s * 1000)
    config: dict[str, object] = {
        "group.id": settings.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        # The guard ends a worker whose loop does not beat; this only has to lie above the longest handover.
        "max.poll.interval.ms": int(settings.handover_limit_s * 1000) + 300_000,
    }
    if instance_id is not None:
        config["group.instance.id"] = instance_id
    if protocol == "consumer":
        config["group.protocol"] = "consumer"
    else:
        config["partition.assignment.strategy"] = "cooperative-sticky"
        config["session.timeout.ms"] = session_ms
        config["heartbeat.interval.ms"] = int(settings.heartbeat_s * 1000)
    return client_config(settings, "member", ordinal, **config)


def _parse(raw: object) -> GroupMetadata:
    """The client library's own serialisation: magic, generation, group, member, instance, separated by NUL."""
    if not isinstance(raw, bytes) or not raw.startswith(_MAGIC):
        raise Die(f"the client library's group metadata has a form this version does not know: {raw!r:.60}")
    (generation,) = struct.unpack_from("<i", raw, len(_MAGIC))
    fields = raw[len(_MAGIC) + 4 :].split(b"\0")
    return GroupMetadata(raw, generation, fields[1].decode() if len(fields) > 1 else "")

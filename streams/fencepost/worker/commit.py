"""Offering a batch to Kafka until it was read back.

Rules that this file stands for:

- nothing is acted on before its record came back, byte for byte, at the committed end of the log, and only if the
  offsets of its transaction were accepted;
- a renewal counts from when it began to be sent, and only for the partitions and nonces it names;
- the committed offset trails what was read back;
- after an outcome that is not clear: producers are made anew, the log is read to its end as of then, and what did not
  come back is offered again under the same nonce, if that is still held.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from fencepost.kafka.bounds import Bounds
from fencepost.kafka.errors import RetryLater, StepDown
from fencepost.kafka.member import Member
from fencepost.kafka.reader import Reader
from fencepost.kafka.scan import EARLIEST, scan
from fencepost.kafka.transaction import Aborted, Committed, OffsetMark, OutRecord, Refused, Ring
from fencepost.wire.owners import encode_renewal, encode_stamp
from fencepost.wire.sentinel import encode_sentinel
from fencepost.worker.batch import Batch, Encoder, Expected
from fencepost.worker.context import LaneContext
from fencepost.worker.restore import MARK_KEY, SENTINEL_KEY

if TYPE_CHECKING:
    from fencepost.kafka.reader import Message

SEND_LIMIT_S = 5.0
READ_BACK_LIMIT_S = 1.5


class Pushed(Enum):
    """What one attempt came to."""

    CONFIRMED = "confirmed"  # read back: act
    AGAIN = "again"  # poll the member, then offer it again
    FENCED = "fenced"  # this lane's producers were ended by somebody


@dataclass(slots=True)
class _Sent:
    """What the transaction under way has to bring back."""

    expected: Expected
    wall_ms: int
    since: int  # where the sentinel's log was read to before


@dataclass(slots=True)
class _Doubt:
    """A transaction whose outcome is not known. If its sentinel is read, all of it was committed.

    `since`: from which offset on the sentinel can lie; `end`: before which, known once the transaction is decided.
    """

    batch: Batch
    place: tuple[str, int]
    since: int
    sentinel: bytes | None
    read: bool
    end: int = -1


class Committer:
    """The only user of the ring for batches. `route` handles whatever else the reader brings meanwhile."""

    def __init__(
        self,
        context: LaneContext,
        ring: Ring,
        reader: Reader,
        bounds: Bounds,
        member: Member,
        encoder: Encoder,
        route: Callable[[list[Message]], None],
    ) -> None:
        self._context = context
        self._ring = ring
        self._reader = reader
        self._bounds = bounds
        self._member = member
        self._encoder = encoder
        self._route = route
        self._number = 0
        self._sent: _Sent | None = None
        self._unclear: _Doubt | None = None

    def push(self, batch: Batch) -> Pushed:
        """One attempt at the parts that are still held."""
        began = time.monotonic()
        try:
            if self._unclear is not None:
                self._settle(batch, self._unclear)
            outcome = self._attempt(batch)
        except StepDown as problem:
            self._context.log.warning("producer fenced", why=str(problem))
            self._forget_sent()
            return Pushed.FENCED
        except RetryLater as problem:
            self._context.log.warning("Kafka does not answer", why=str(problem))
            self._forget_sent()
            return Pushed.AGAIN
        self._context.meters.transaction(outcome.value, time.monotonic() - began, len(batch.parts))
        return outcome

    def came_back(self, topic: str, partition: int, key: bytes | None, value: bytes | None, appended_ms: int) -> bool:
        """Whether this record is one the transaction under way waits for; then it is crossed off."""
        doubt = self._unclear
        if doubt is not None and key == SENTINEL_KEY and (topic, partition) == doubt.place and value == doubt.sentinel:
            doubt.read = True
        sent = self._sent
        if sent is None or key is None:
            return False
        place = (topic, partition, key)
        if place not in sent.expected or sent.expected[place] != value:
            return False
        del sent.expected[place]
        if not sent.expected:
            self._context.compare_clock(sent.wall_ms, appended_ms)
        return True

    def _attempt(self, batch: Batch) -> Pushed:
        context = self._context
        for part in batch.parts.values():
            part.offered = context.holds(part.partition, part.nonce)
        parts = [part for part in batch.parts.values() if part.offered]
        live = context.live()
        for part in parts:
            if part.launches:
                live[part.partition] = part.nonce
        renew = context.lease.due(live, context.clock.boot_s())
        expected: Expected = {}
        records: list[OutRecord] = []
        others: list[OutRecord] = []
        for part in parts:  # state records first: their partition takes the sentinel
            if batch.written:
                continue
            of_state, rest = self._encoder.records(part, expected)
            records += of_state
            others += rest
        records += others
        offsets = self._offsets(batch, live if renew else {}, records, expected)
        if not offsets:
            return Pushed.CONFIRMED  # nothing of it is held any more
        sentinel = self._frame(records, expected, min(offsets)[1])
        since = self._reader.position(sentinel.topic, sentinel.partition)
        self._sent = _Sent(expected, context.clock.wall_ms(), since)
        nonces = {partition: context.partitions[partition].nonce for _topic, partition in offsets}
        outcome = self._ring.commit(
            records, offsets, self._member.metadata, lambda: self._check(nonces), sentinel, SEND_LIMIT_S
        )
        if isinstance(outcome, Committed):
            if self._read_back(READ_BACK_LIMIT_S):
                self._confirm()
                return Pushed.CONFIRMED
            self._context.log.warning("a committed batch has not come back yet", missing=len(expected))
            self._doubt(batch, sentinel, self._sent)
        elif isinstance(outcome, Aborted):
            self._context.log.info("transaction aborted", why=outcome.reason)
        else:
            self._context.log.warning("outcome of a transaction unknown", why=outcome.reason)
            self._doubt(batch, sentinel, self._sent)
        self._forget_sent()
        return Pushed.AGAIN

    def _offsets(
        self, batch: Batch, renewing: dict[int, str], records: list[OutRecord], expected: Expected
    ) -> dict[tuple[str, int], OffsetMark]:
        """Offsets of every partition the transaction writes for or renews; adds the renewal's record."""
        context = self._context
        number = 0
        home = context.home() if renewing else None
        if home is not None:
            sent = context.lease.send(renewing, context.clock.boot_s())
            number = sent.number
            key = context.lane.encode()
            value = encode_renewal(context.lane, context.identity.worker, context.settings.lease_ttl_s, sent)
            expected[context.topics.owners, home, key] = value
            records.append(OutRecord(context.topics.owners, home, key, value))
        named = {part.partition for part in batch.parts.values() if context.holds(part.partition, part.nonce)}
        named.update(renewing)
        if home is not None:
            named.add(home)
        offsets: dict[tuple[str, int], OffsetMark] = {}
        for partition in sorted(named):
            known = context.partitions[partition]
            stamp = encode_stamp(context.stamp(known, renewing, number))
            offsets[context.topics.triggers, partition] = OffsetMark(known.triggers_offset, stamp)
            known.triggers_committed = known.triggers_offset
            forgets = partition in batch.parts and bool(batch.parts[partition].forgotten)
            if known.control_offset > known.control_committed or (forgets and known.control_offset >= 0):
                known.control_committed = known.control_offset  # lost with an abort: the states carry it as well
                offsets[context.topics.control, partition] = OffsetMark(known.control_offset, "")
        return offsets

    def _frame(self, records: list[OutRecord], expected: Expected, partition: int) -> OutRecord:
        """The sentinel; and a first record of our own where the batch has none that the reader follows."""
        context = self._context
        self._number += 1
        body = encode_sentinel(context.lane, self._number)
        followed = (context.topics.state, context.topics.owners)
        if not records or records[0].topic not in followed:
            records.insert(0, OutRecord(context.topics.state, partition, MARK_KEY, body))
        first = records[0]
        expected[first.topic, first.partition, SENTINEL_KEY] = body
        return OutRecord(first.topic, first.partition, SENTINEL_KEY, body)

    def _check(self, nonces: dict[int, str]) -> None:
        for partition, nonce in nonces.items():
            if not self._context.holds(partition, nonce):
                raise Refused(f"partition {partition} is not held under {nonce} any more")

    def _read_back(self, limit_s: float) -> bool:
        """Read until everything expected has come. Other records are routed as they come."""
        sent = self._sent
        assert sent is not None
        until = time.monotonic() + limit_s
        while sent.expected:
            self._route(self._reader.take(0.02))
            self._context.runners.beat()
            if time.monotonic() > until:
                return not sent.expected
        return True

    def _confirm(self) -> None:
        """The renewal that rode along counts now."""
        self._sent = None
        lease = self._context.lease
        if lease.sent is not None:
            proven = lease.prove()
            for partition, nonce in proven.held:
                self._context.runners.lease(partition, nonce, proven.began_boot_s)

    def _forget_sent(self) -> None:
        self._sent = None
        self._context.lease.drop()

    def _doubt(self, batch: Batch, sentinel: OutRecord, sent: _Sent) -> None:
        place = (sentinel.topic, sentinel.partition)
        read = (*place, SENTINEL_KEY) not in sent.expected
        self._unclear = _Doubt(batch, place, sent.since, sentinel.value, read)

    def _settle(self, batch: Batch, doubt: _Doubt) -> None:
        """Before anything is offered again: all earlier transactions decided, and read to the end as of after that."""
        context = self._context
        self._ring.settle(SEND_LIMIT_S)
        places = {
            (context.topics.state, part.partition)
            for part in batch.parts.values()
            if context.holds(part.partition, part.nonce)
        }
        ends = self._bounds.ends({*places, doubt.place}, SEND_LIMIT_S)
        until = time.monotonic() + SEND_LIMIT_S
        while behind := [(*place, end) for place, end in ends.items() if 0 <= self._reader.position(*place) < end]:
            self._route(self._reader.take(0.02))
            context.runners.beat()
            if time.monotonic() > until:
                topic, number, end = behind[0]
                where = f"{topic}-{number} was read to {self._reader.position(topic, number)} of {end}"
                raise RetryLater(f"the log could not be read to its end: {where}")
        if not doubt.read:
            self._look_for_sentinel(doubt, ends[doubt.place])
        self._unclear = None
        if doubt.read and doubt.batch is batch:
            context.log.info("a transaction in doubt was committed", partitions=sorted(batch.parts))
            batch.written = True

    def _look_for_sentinel(self, doubt: _Doubt, end: int) -> None:
        """Read its log once more, by a reader made for it: the partition may have been given up or restored meanwhile.

        The lane's own reader has passed the sentinel by then, or never comes to it; to offer the batch again would
        write it a second time. Raises RetryLater: nothing may be offered before this is known.
        """
        if doubt.end < 0:
            doubt.end = end
        committed = self._bounds.ends([doubt.place], SEND_LIMIT_S, committed_only=True)[doubt.place]
        if committed < doubt.end:
            raise RetryLater("an open transaction hides whether a transaction in doubt was committed")
        topic, number = doubt.place
        from_ = doubt.since if doubt.since >= 0 else EARLIEST
        for record in scan(self._context.settings, topic, [number], from_, stall_s=SEND_LIMIT_S):
            if record.key == SENTINEL_KEY and record.value == doubt.sentinel:
                doubt.read = True

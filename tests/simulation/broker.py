"""The simulated Kafka: partition logs and two coordinators, each of which may be away for a while."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.group import Group
from tests.simulation.kernel import Kernel
from tests.simulation.log import Headers, Log, Place
from tests.simulation.transactions import OFFSETS, Coordinator

EPOCH_MS = 1_800_000_000_000  # where the brokers' wall clock begins
MARKER_US = (200, 3_000)


def namespace_of(topic: str) -> str:
    """The namespace, or pool, whose topic this is."""
    return topic.rpartition(".")[0]


class Broker:
    """One cluster. Its clock is true time."""

    def __init__(
        self, kernel: Kernel, random: Random, partitions: int, newer: bool, say: Callable[[str], None]
    ) -> None:
        self.kernel = kernel
        self.random = random
        self.say = say
        self.partitions = partitions
        self.slow_markers_until_us = 0
        self.coordinator_down_until_us = 0  # of transactions
        self.group_down_until_us = 0
        self.logs: dict[Place, Log] = {}
        self.transactions = Coordinator(self, self._marker_delay_us)
        self._newer = newer
        self.groups: dict[str, Group] = {}

    def now_ms(self) -> int:
        return EPOCH_MS + self.kernel.now_us // 1000

    def group_of(self, namespace: str) -> Group:
        """That of a namespace, or of a pool of it."""
        known = self.groups.get(namespace)
        if known is None:
            known = self.groups[namespace] = Group(self, self.partitions, self._newer)
        return known

    def log(self, place: Place) -> Log:
        known = self.logs.get(place)
        if known is None:
            known = self.logs[place] = Log(place)
        return known

    def _marker_delay_us(self) -> int:
        if self.kernel.now_us < self.slow_markers_until_us:
            return self.random.randint(1_000, 1_500_000)
        return self.random.randint(*MARKER_US)

    # -- requests; the answer is the name of an error, or None --

    def produce(
        self, place: Place, producer: int, epoch: int, sequence: int,
        records: list[tuple[bytes | None, bytes | None, Headers | None]],
    ) -> str | None:  # fmt: skip
        """A transactional batch."""
        log = self.log(place)
        if producer not in log.open:
            refusal = self.transactions.verify(producer, epoch, place)
            if refusal is not None:
                return refusal
        refusal = log.admit(producer, epoch, sequence)
        if refusal == "duplicate":
            return None
        if refusal is not None:
            return refusal
        for key, value, headers in records:
            log.append(key, value, headers, self.now_ms(), producer)
        log.advance_sequence(producer, len(records))
        return None

    def write(self, place: Place, key: bytes | None, value: bytes | None, headers: Headers | None = None) -> int:
        """A record of somebody else's, outside of transactions. Returns its offset."""
        return self.log(place).append(key, value, headers, self.now_ms()).offset

    def commit_offsets(
        self, producer: int, epoch: int, generation: int, member: str, marks: dict[Place, tuple[int, str]]
    ) -> str | None:
        if self.kernel.now_us < self.group_down_until_us:
            return "NOT_COORDINATOR"
        group = self.group_of(namespace_of(next(iter(marks))[0]))
        if producer not in group.pending:
            refusal = self.transactions.verify(producer, epoch, OFFSETS)
            if refusal is not None:
                return refusal
        elif self.transactions.producer(producer).epoch != epoch:
            return "INVALID_PRODUCER_EPOCH"
        return group.commit(producer, generation, member, marks)

"""Brokers that die, freeze, stop, fill up, and move the group's coordinator."""

from __future__ import annotations

import time
from contextlib import suppress

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from fencepost.broker.errors import BrokerError
from tests.faults.arena import Arena
from tests.faults.fault import PREPARE_LIMIT_S, Fault, Target, Unsuitable


class _OfABroker(Fault):
    target = Target.BROKER

    def choose(self) -> int:
        return self.dice.choice(self.arena.cluster.node_ids)

    def prepare(self) -> None:
        self.node = self.choose()
        self.detail = f"broker {self.node}"
        # One broker alone is everything there is: how long it is away is how long nothing can be recorded.
        self.brief_s = self.dice.uniform(0.0, 2.0 if self.arena.setting.nodes == 1 else 8.0)

    def heal(self) -> None:
        if self.arena.cluster.pid(self.node) is None:
            self.arena.cluster.start_node(self.node)


class BrokerKilled(_OfABroker):
    name, weight = "broker: SIGKILL, restarted", 2

    def inject(self) -> None:
        self.arena.cluster.kill(self.node)


class BrokerRestarted(_OfABroker):
    name = "broker: stopped cleanly and restarted"

    def inject(self) -> None:
        self.arena.cluster.stop_node(self.node)


class BrokerFrozen(_OfABroker):
    name, weight = "broker: SIGSTOP, SIGCONT", 2

    def prepare(self) -> None:
        super().prepare()
        self.brief_s = self.dice.uniform(0.5, 10.0)

    def inject(self) -> None:
        self.arena.cluster.freeze(self.node)

    def heal(self) -> None:
        self.arena.cluster.thaw(self.node)


class BrokerKilledInTransaction(_OfABroker):
    """A worker is caught with its records written and its transaction open; then the broker dies."""

    name = "broker: SIGKILL in mid-transaction"

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        return (
            None if any(worker.bent for worker in arena.workers.values()) else "no worker can be held in a transaction"
        )

    def inject(self) -> None:
        self.arena.holding.touch()
        try:
            until_s = time.monotonic() + PREPARE_LIMIT_S
            while not self.arena.held.exists():
                if time.monotonic() > until_s:
                    raise Unsuitable("no transaction was caught")
                time.sleep(0.002)  # between two looks
            self.strike()
        finally:
            self.arena.holding.unlink()

    def strike(self) -> None:
        self.arena.cluster.kill(self.node)


class BrokerFrozenInTransaction(BrokerKilledInTransaction):
    name = "broker: SIGSTOP in mid-transaction, SIGCONT"

    def prepare(self) -> None:
        super().prepare()
        self.brief_s = self.dice.uniform(0.5, 10.0)

    def strike(self) -> None:
        self.arena.cluster.freeze(self.node)

    def heal(self) -> None:
        self.arena.cluster.thaw(self.node)


class CoordinatorMoved(_OfABroker):
    """The broker that coordinates the group goes cleanly, so another takes over; then it gets its leaderships back."""

    name = "group coordinator: moved, and moved back"

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        return "there is one broker only" if arena.setting.nodes == 1 else None

    def choose(self) -> int:
        self.before = self.coordinator()
        return self.before

    def coordinator(self) -> int:
        admin = AdminClient({"bootstrap.servers": self.arena.settings.bootstrap, "log_level": 0})
        group = self.arena.settings.namespace
        found = admin.describe_consumer_groups([group], request_timeout=20)[group].result(30)
        return int(found.coordinator.id)

    def inject(self) -> None:
        self.arena.cluster.stop_node(self.node)
        self.between = self.coordinator()
        self.detail = f"broker {self.before} to {self.between}"

    def heal(self) -> None:
        super().heal()
        admin = AdminClient({"bootstrap.servers": self.arena.settings.bootstrap, "log_level": 0})
        found = admin.list_topics("__consumer_offsets", 20).topics["__consumer_offsets"].partitions
        # Without its time-out arguments: with them the client library refuses (2.16.1).
        places = [TopicPartition("__consumer_offsets", number) for number in found]
        admin.elect_leaders(ElectionType.PREFERRED, places).result(30)

    def check(self) -> str | None:
        return None if self.between != self.before else f"{self}: the coordinator stayed where it was"


class DiskFull(_OfABroker):
    """The broker ends itself; then there is room again and it is started."""

    name = "broker: disk full"

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        return None if arena.small_disks else "mounting a small disk needs root"

    def inject(self) -> None:
        self.file = self.arena.cluster.data_dir(self.node) / "full"
        self.pid = self.arena.cluster.pid(self.node)
        with self.file.open("wb", buffering=0) as out, suppress(OSError):  # the error is what is wanted
            while True:
                out.write(bytes(1 << 20))
        until_s = time.monotonic() + 60
        while self.arena.cluster.pid(self.node) is not None and time.monotonic() < until_s:
            time.sleep(0.05)  # between two looks
        self.ended = self.arena.cluster.pid(self.node) is None

    def heal(self) -> None:
        self.file.unlink()
        try:
            super().heal()
        except BrokerError as error:
            self.detail += f"; {error}"
            raise

    def check(self) -> str | None:
        return None if self.ended else f"{self}: the broker did not notice within a minute"


BROKER_FAULTS: list[type[Fault]] = [
    BrokerKilled,
    BrokerRestarted,
    BrokerFrozen,
    BrokerKilledInTransaction,
    BrokerFrozenInTransaction,
    CoordinatorMoved,
    DiskFull,
]

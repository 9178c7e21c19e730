"""Cut lines: between one worker and the brokers, and between one broker and everybody; one way and both."""

from __future__ import annotations

from tests.faults.arena import Arena
from tests.faults.fault import Fault, Target
from tests.faults.network import FROM, TO, Place


class _WorkerCut(Fault):
    target, owner_lost = Target.WORKER, True
    ways: tuple[str, ...] = (TO, FROM)
    reset = False

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        return arena.no_network

    @property
    def place(self) -> Place:
        assert self.worker.place is not None
        return self.worker.place

    def addresses(self) -> list[str]:
        return [broker.address for broker in self.arena.brokers.values()]

    def inject(self) -> None:
        for way in self.ways:
            self.place.cut(way, self.addresses(), self.reset)

    def heal(self) -> None:
        self.place.mend()


class WorkerCutOff(_WorkerCut):
    name, weight = "network: worker and brokers, both ways", 2


class WorkerCannotSend(_WorkerCut):
    name, ways = "network: worker to brokers, one way", (TO,)


class WorkerCannotHear(_WorkerCut):
    name, ways = "network: brokers to worker, one way", (FROM,)


class WorkerRefused(_WorkerCut):
    name, ways, reset = "network: worker's connections reset and refused", (TO,), True


class WorkerAndOneBroker(_WorkerCut):
    name, owner_lost = "network: worker and one of three brokers", False

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        return "there is one broker only" if arena.setting.nodes == 1 else arena.no_network

    def addresses(self) -> list[str]:
        node = self.dice.choice(sorted(self.arena.brokers))
        self.detail = f"broker {node}"
        return [self.arena.brokers[node].address]


class _BrokerCut(Fault):
    """From workers, from the other brokers, and from us."""

    target = Target.BROKER
    ways: tuple[str, ...] = (TO, FROM)

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        return arena.no_network

    def prepare(self) -> None:
        self.node = self.dice.choice(sorted(self.arena.brokers))
        self.detail = f"broker {self.node}"
        self.brief_s = self.dice.uniform(0.5, 10.0)

    def inject(self) -> None:
        arena = self.arena
        assert arena.network is not None
        others = [place.address for node, place in arena.brokers.items() if node != self.node]
        others += [worker.place.address for worker in arena.workers.values() if worker.place is not None]
        for way in self.ways:
            arena.brokers[self.node].cut(way, [*others, arena.network.host])

    def heal(self) -> None:
        self.arena.brokers[self.node].mend()


class BrokerCutOff(_BrokerCut):
    name = "network: broker and everybody, both ways"


class BrokerCannotSend(_BrokerCut):
    name, ways = "network: from a broker to everybody, one way", (TO,)


class BrokerCannotHear(_BrokerCut):
    name, ways = "network: from everybody to a broker, one way", (FROM,)


NETWORK_FAULTS: list[type[Fault]] = [
    WorkerCutOff,
    WorkerCannotSend,
    WorkerCannotHear,
    WorkerRefused,
    WorkerAndOneBroker,
    BrokerCutOff,
    BrokerCannotSend,
    BrokerCannotHear,
]

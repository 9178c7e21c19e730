"""The transaction coordinator: producers' epochs, what is fenced by initialising, and how transactions end.

As in a broker that serves clients without KIP-890's second part: the producer's epoch stays the same from transaction
to transaction, so a late copy of a request can strike the next one. Its first part is there: a record or an offset that
comes for a partition the transaction does not have is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from tests.simulation.kernel import SECOND_US, Event
from tests.simulation.log import Place

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

OFFSETS: Place = ("__consumer_offsets", 0)


class Stage(Enum):
    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARE_COMMIT = "prepare_commit"
    PREPARE_ABORT = "prepare_abort"
    COMPLETE_COMMIT = "complete_commit"
    COMPLETE_ABORT = "complete_abort"


_PREPARING = (Stage.PREPARE_COMMIT, Stage.PREPARE_ABORT)


@dataclass(slots=True, eq=False)
class Producer:
    """One transactional ID."""

    name: str
    number: int
    epoch: int = -1
    stage: Stage = Stage.EMPTY
    timeout_us: int = 0
    places: dict[Place, None] = field(default_factory=dict)
    expiry: Event | None = None
    unmarked: int = 0


class Coordinator:
    """Answers are names of errors, or None for success."""

    def __init__(self, broker: Broker, marker_delay_us: Callable[[], int]) -> None:
        self._broker = broker
        self._marker_delay_us = marker_delay_us
        self._by_name: dict[str, Producer] = {}
        self._by_number: dict[int, Producer] = {}

    def producer(self, number: int) -> Producer:
        return self._by_number[number]

    def ongoing(self) -> list[Producer]:
        return [known for known in self._by_name.values() if known.stage is Stage.ONGOING or known.unmarked]

    def half_marked(self) -> bool:
        """Whether some transaction's end is written to some of its partitions only."""
        return any(known.unmarked for known in self._by_name.values())

    def initialise(self, name: str, timeout_us: int) -> tuple[int, int] | str:
        """(number, epoch): all that this ID had open is ended. Or the name of an error."""
        known = self._by_name.get(name)
        if known is None:
            known = self._by_name[name] = Producer(name, 1000 + len(self._by_name))
            self._by_number[known.number] = known
        if known.stage in _PREPARING:
            return "CONCURRENT_TRANSACTIONS"
        if known.stage is Stage.ONGOING:
            known.epoch += 1  # what is still on its way under the old one is refused from here on
            self._prepare(known, committed=False)
            return "CONCURRENT_TRANSACTIONS"
        known.timeout_us = timeout_us
        known.epoch += 1
        known.stage = Stage.EMPTY
        return known.number, known.epoch

    def add(self, number: int, epoch: int, places: list[Place]) -> str | None:
        known = self._by_number[number]
        if epoch != known.epoch:
            return "INVALID_PRODUCER_EPOCH"
        if known.stage in _PREPARING:
            return "CONCURRENT_TRANSACTIONS"
        if known.stage is not Stage.ONGOING:
            known.stage = Stage.ONGOING
            known.places = {}
            known.expiry = self._broker.kernel.after(known.timeout_us, lambda: self._expired(known))
        known.places.update(dict.fromkeys(places))
        return None

    def verify(self, number: int, epoch: int, place: Place) -> str | None:
        """Whether the producer's transaction has this partition: asked before its first record there."""
        known = self._by_number[number]
        if epoch != known.epoch:
            return "INVALID_PRODUCER_EPOCH"
        if known.stage is not Stage.ONGOING or place not in known.places:
            return "INVALID_TXN_STATE"
        return None

    def end(self, number: int, epoch: int, committed: bool) -> str | None:
        known = self._by_number[number]
        if epoch != known.epoch:
            return "INVALID_PRODUCER_EPOCH"
        wanted = (Stage.PREPARE_COMMIT, Stage.COMPLETE_COMMIT) if committed else (
            Stage.PREPARE_ABORT, Stage.COMPLETE_ABORT
        )  # fmt: skip
        if known.stage is Stage.ONGOING:
            self._prepare(known, committed)
            return None
        if known.stage is wanted[0]:
            return "CONCURRENT_TRANSACTIONS"
        return None if known.stage is wanted[1] else "INVALID_TXN_STATE"

    def _expired(self, known: Producer) -> None:
        if known.stage is Stage.ONGOING:
            known.epoch += 1
            self._prepare(known, committed=False)

    def _prepare(self, known: Producer, committed: bool) -> None:
        kernel = self._broker.kernel
        kernel.call_off(known.expiry)
        known.stage = Stage.PREPARE_COMMIT if committed else Stage.PREPARE_ABORT
        known.unmarked = len(known.places)
        epoch = known.epoch
        for place in known.places:
            kernel.at(
                max(self._broker.coordinator_down_until_us, kernel.now_us) + self._marker_delay_us(),
                lambda place=place: self._mark(known, place, epoch, committed),  # type: ignore[misc]
            )
        if not known.places:
            self._complete(known)

    def _mark(self, known: Producer, place: Place, epoch: int, committed: bool) -> None:
        if place == OFFSETS:
            for group in self._broker.groups.values():
                group.mark(known.number, committed)
        else:
            self._broker.log(place).mark(known.number, epoch, committed, self._broker.now_ms())
        known.unmarked -= 1
        if not known.unmarked:
            self._complete(known)

    def _complete(self, known: Producer) -> None:
        known.stage = Stage.COMPLETE_COMMIT if known.stage is Stage.PREPARE_COMMIT else Stage.COMPLETE_ABORT


def seconds_us(seconds: float) -> int:
    return round(seconds * SECOND_US)

"""Puts the stand-ins where the code under test looks for clients, clocks, threads and randomness; and takes them away.

The lane and everything below it are the real ones: ring, member, reader and bounds too. What is replaced are the client
library's classes in the four modules that use them, and the standard library's clocks, threads and random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fencepost.core.forgetting
import fencepost.kafka.bounds
import fencepost.kafka.hanging
import fencepost.kafka.member
import fencepost.kafka.reader
import fencepost.kafka.transaction
import fencepost.worker.acquisition
import fencepost.worker.commit
import fencepost.worker.decide
import fencepost.worker.hanging
import fencepost.worker.lane
import fencepost.worker.pools
import fencepost.worker.standstill
import fencepost.worker.worker
from tests.simulation import stage
from tests.simulation.admin import SimAdmin, SimCalls, SimLetters, SimPool, open_records, scan
from tests.simulation.clocks import TimeModule
from tests.simulation.member import SimMember
from tests.simulation.process import Beating
from tests.simulation.producer import SimProducer
from tests.simulation.reader import SimReader

IDLE_WAIT_S = 0.5  # a record, a report or news of the group ends the wait at once
BUSY_WAIT_S = 0.02


class RandomModule:
    """`random` as the lane uses it, seeded."""

    @staticmethod
    def uniform(low: float, high: float) -> float:
        return stage.world().product_random.uniform(low, high)

    @staticmethod
    def shuffle(items: list[Any]) -> None:
        stage.world().product_random.shuffle(items)


def _nonce() -> str:
    return f"{stage.world().product_random.getrandbits(48):012x}"


def _table() -> list[tuple[Any, str, Any]]:
    clock = TimeModule()
    return [
        (fencepost.kafka.transaction, "Producer", SimProducer),
        (fencepost.kafka.transaction, "ThreadPoolExecutor", SimPool),
        (fencepost.kafka.transaction, "time", clock),
        (fencepost.kafka.transaction, "BoundedCalls", SimCalls),
        (fencepost.kafka.hanging, "ThreadPoolExecutor", SimPool),
        (fencepost.kafka.hanging, "BoundedCalls", SimCalls),
        (fencepost.kafka.member, "Consumer", SimMember),
        (fencepost.kafka.reader, "Consumer", SimReader),
        (fencepost.kafka.bounds, "AdminClient", SimAdmin),
        (fencepost.worker.acquisition, "ThreadPoolExecutor", SimPool),
        (fencepost.worker.acquisition, "time", clock),
        (fencepost.worker.acquisition, "random", RandomModule),
        (fencepost.worker.acquisition, "new_nonce", _nonce),
        (fencepost.worker.commit, "time", clock),
        (fencepost.worker.commit, "scan", scan),
        (fencepost.worker.decide, "time", clock),
        (fencepost.worker.decide, "FORGET_EVERY_S", 0.5),
        (fencepost.core.forgetting, "KEPT_MS", 0),  # IDs of triggers are never used twice here
        (fencepost.worker.decide, "random", RandomModule),
        (fencepost.worker.hanging, "time", clock),
        (fencepost.worker.hanging, "open_records", open_records),
        (fencepost.worker.lane, "time", clock),
        (fencepost.worker.lane, "Letters", SimLetters),
        (fencepost.worker.lane, "IDLE_WAIT_S", IDLE_WAIT_S),
        (fencepost.worker.lane, "BUSY_WAIT_S", BUSY_WAIT_S),
        (fencepost.worker.pools, "time", clock),
        (fencepost.worker.standstill, "time", clock),
        (fencepost.worker.worker, "time", clock),
        (fencepost.worker.worker, "_Beating", Beating),
    ]


@contextmanager
def installed() -> Iterator[None]:
    """While this is entered, lanes live in the simulated world that is on stage."""
    before = []
    try:
        for module, name, stand_in in _table():
            before.append((module, name, getattr(module, name)))
            setattr(module, name, stand_in)
        yield
    finally:
        for module, name, real in reversed(before):
            setattr(module, name, real)

"""What really happened, on true time: no part of the code under test can see or change it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fencepost.worker.orders import RunOrder

if TYPE_CHECKING:
    from tests.simulation.kernel import Kernel
    from tests.simulation.process import Process


@dataclass(slots=True)
class Life:
    """A run as it was: `ended_us` None: it goes on."""

    task: str
    epoch: int
    process: str
    nonce: str
    began_us: int
    ended_us: int | None = None


@dataclass(slots=True)
class Facts:
    """Runs, triggers that were produced, and failures of code."""

    kernel: Kernel
    lives: list[Life] = field(default_factory=list)
    triggers: list[tuple[str, str]] = field(default_factory=list)  # task, trigger ID
    crashes: list[str] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)  # why processes ended, and how often
    drift_beyond_bound: bool = False
    _on: dict[tuple[str, str, int], Life] = field(default_factory=dict)

    def run_started(self, process: Process, order: RunOrder) -> None:
        life = Life(order.task, order.epoch, process.name, order.nonce, self.kernel.now_us)
        self.lives.append(life)
        self._on[process.name, order.task, order.epoch] = life
        process.say(f"run {order.task} epoch {order.epoch} starts")

    def run_ended(self, process: Process, order: RunOrder) -> None:
        life = self._on.pop((process.name, order.task, order.epoch), None)
        if life is not None:
            life.ended_us = self.kernel.now_us
            process.say(f"run {order.task} epoch {order.epoch} is gone")

    def on(self) -> list[Life]:
        return list(self._on.values())

"""Clocks of simulated machines, and what stands for the module `time` in the code under test."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fencepost.worker.clock import Clock
from tests.simulation import stage
from tests.simulation.broker import EPOCH_MS

if TYPE_CHECKING:
    from tests.simulation.kernel import Kernel


class MachineClock:
    """Boot time runs at `rate` of true time from an offset of its own; wall time also has an error that may jump."""

    def __init__(self, kernel: Kernel, rate: float, boot_at_s: float, wall_error_ms: int) -> None:
        self._kernel = kernel
        self.rate = rate
        self._boot_at_s = boot_at_s
        self.wall_error_ms = wall_error_ms

    def boot_s(self) -> float:
        return self._boot_at_s + self._kernel.now_us * self.rate / 1e6

    def at_boot_us(self, boot_s: float) -> int:
        """The true time of a boot time, rounded up."""
        return int((boot_s - self._boot_at_s) / self.rate * 1e6) + 1

    def wall_s(self) -> float:
        return (EPOCH_MS + self.wall_error_ms + self._kernel.now_us * self.rate / 1000) / 1000

    def true_us(self, local_s: float) -> int:
        return int(local_s / self.rate * 1e6) + 1


class LaneClock(Clock):
    """The lane's clock on a machine; the correction by the brokers' time is the real one's."""

    def __init__(self, machine: MachineClock) -> None:
        super().__init__()
        self._machine = machine

    def now_ms(self) -> int:
        return int(self._machine.wall_s() * 1000) + self.correction_ms

    def boot_s(self) -> float:  # type: ignore[override] # the real one needs no instance
        return self._machine.boot_s()

    def wall_ms(self) -> int:  # type: ignore[override]
        return int(self._machine.wall_s() * 1000)


class TimeModule:
    """`time` as the process sees it whose fiber is on."""

    CLOCK_BOOTTIME = time.CLOCK_BOOTTIME

    @staticmethod
    def monotonic() -> float:
        return stage.here().clock.boot_s()

    @staticmethod
    def clock_gettime(_clock: int) -> float:
        return stage.here().clock.boot_s()

    @staticmethod
    def time() -> float:
        return stage.here().clock.wall_s()

    @staticmethod
    def sleep(delay_s: float) -> None:
        kernel, process = stage.world().kernel, stage.here()
        assert kernel.current is not None
        kernel.current.block(kernel.now_us + process.clock.true_us(delay_s))

"""Requests on their way: latency, and what may happen to a request or to its answer.

A request that the client has given up may still arrive, much later: that is what a broken connection leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.kernel import Kernel

if TYPE_CHECKING:
    from tests.simulation.faults import Faults
    from tests.simulation.process import Process

TIMEOUT: Final = "(no answer in time)"
RESET: Final = "(connection reset)"
LATENCY_US = (150, 900)

Reply = Callable[[Any], None]
Handle = Callable[[Reply], None]


class Network:
    """Between each process and the brokers."""

    def __init__(self, kernel: Kernel, random: Random, faults: Faults) -> None:
        self._kernel = kernel
        self._random = random
        self._faults = faults

    def send(
        self, process: Process, kind: str, handle: Handle, on_reply: Reply, timeout_us: int, sender: str = ""
    ) -> None:
        """`on_reply` is called once, in the process: the answer, TIMEOUT or RESET. `sender`: its transactional ID."""
        kernel, faults = self._kernel, self._faults
        done = False

        def finish(result: Any) -> None:
            nonlocal done
            if not done:
                done = True
                kernel.call_off(timer)
                faults.step(process, kind, "answered")
                process.when_running(lambda: on_reply(result))

        def reply(result: Any) -> None:
            if faults.lost_on_the_way_back(process, fate):
                return
            kernel.after(self._latency_us(), lambda: finish(result))

        def arrive() -> None:
            faults.step(process, kind, "arrived")
            faults.let_late_ones_follow(sender, kind)
            handle(reply)

        timer = process.after_local_us(timeout_us, lambda: finish(TIMEOUT))
        fate = faults.fate(process, kind)
        if fate.late:
            faults.keep(sender, lambda: handle(lambda _answer: None))
        if fate.reset:
            kernel.after(self._latency_us(), lambda: finish(RESET))
        delay_us = faults.delay_us(process, fate)
        if delay_us is not None:
            kernel.after(self._latency_us() + delay_us, arrive)
        faults.step(process, kind, "sent")

    def call(self, process: Process, kind: str, handle: Handle, timeout_us: int, sender: str = "") -> Any:
        """The same, waited for by the fiber that is on."""
        fiber = self._kernel.current
        assert fiber is not None
        answer: list[Any] = []

        def on_reply(result: Any) -> None:
            answer.append(result)
            fiber.wake()

        self.send(process, kind, handle, on_reply, timeout_us, sender)
        while not answer:
            fiber.block(None)
        return answer[0]

    def _latency_us(self) -> int:
        return int(LATENCY_US[0] + self._random.random() * LATENCY_US[1])  # `randint` takes four times as long

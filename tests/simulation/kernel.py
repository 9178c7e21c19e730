"""Virtual time, and the fibers that share it: one runs at a time, in the order that the seed decides.

A fiber is a thread of a simulated process. It runs until it blocks; then the next event of the heap is due. Nothing
here reads a real clock. Times are microseconds of true time, which no process can see: each has a clock of its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from tests.simulation.process import Process

SECOND_US = 1_000_000

Action = Callable[[], None]
Event = list[Any]  # [at_us, number, action]; an action of None: it was called off


class ProcessDied(BaseException):
    """Unwinds the fibers of a process that was killed. Nothing of the product catches it for good."""


class Kernel:
    """The heap of events."""

    def __init__(self) -> None:
        self.now_us = 0
        self.steps = 0
        self.current: Fiber | None = None
        self._heap: list[Event] = []
        self._number = 0
        self._hub = getcurrent()

    def at(self, at_us: int, action: Action) -> Event:
        self._number += 1
        event: Event = [at_us if at_us > self.now_us else self.now_us, self._number, action]
        heapq.heappush(self._heap, event)
        return event

    def after(self, delay_us: int, action: Action) -> Event:
        return self.at(self.now_us + delay_us, action)

    @staticmethod
    def call_off(event: Event | None) -> None:
        if event is not None:
            event[2] = None

    def run(self, until_us: int, limit_steps: int) -> bool:
        """Everything up to then. False: more than `limit_steps` events, which only a livelock needs."""
        heap = self._heap
        while heap and heap[0][0] <= until_us:
            event = heapq.heappop(heap)
            action = event[2]
            if action is None:
                continue
            self.now_us = event[0]
            self.steps += 1
            if self.steps > limit_steps:
                return False
            action()
        self.now_us = until_us
        return True

    def enter(self, fiber: Fiber, thrown: BaseException | None = None) -> None:
        """Switch to a fiber until it blocks or ends. Called from events only."""
        before, self.current = self.current, fiber
        if thrown is None:
            fiber.greenlet.switch()
        else:
            fiber.greenlet.throw(thrown)
        self.current = before


class Fiber:
    """One thread of a process. `work` is run when it is started; what it raises goes to `on_end`."""

    __slots__ = ("_awaited", "_ready", "_result", "_waiting", "ended", "greenlet", "kernel", "on_end", "process")

    def __init__(self, process: Process, work: Callable[[], Any], on_end: Callable[[Any, BaseException | None], None]):
        self.process = process
        self.kernel = process.world.kernel
        self.on_end = on_end
        self.ended = False
        self._awaited: Event | None = None
        self._ready = False
        self._waiting = False
        self._result = False

        def body() -> None:
            value, failure = None, None
            try:
                value = work()
            except ProcessDied:
                failure = None
            except BaseException as raised:  # noqa: BLE001 - whoever started the fiber is told
                failure = raised
            self.ended = True
            process.fibers.pop(self, None)
            if not process.dead:
                self.on_end(value, failure)

        self.greenlet = greenlet(body, self.kernel._hub)

    def block(self, until_us: int | None) -> bool:
        """Until `wake`, or until then. Whether it was woken. Called by the fiber itself."""
        if self.process.dead:
            raise ProcessDied
        self._waiting = True
        if until_us is not None:
            self._awaited = self.kernel.at(until_us, self._timed_out)
        self.kernel._hub.switch()
        if self.process.dead:
            raise ProcessDied
        return self._result

    def wake(self) -> None:
        """Have it go on, at once or when its process is let go on. Harmless where it does not wait."""
        if self._waiting:
            self.kernel.call_off(self._awaited)
            self._awaited = self.kernel.after(0, self._woken)

    def start(self) -> None:
        self._waiting = True
        self._awaited = self.kernel.after(0, self._woken)

    def _woken(self) -> None:
        self._go_on(True)

    def _timed_out(self) -> None:
        self._go_on(False)

    def _go_on(self, woken: bool) -> None:
        self._awaited = None
        if not self._waiting:
            return
        self._waiting = False
        self._result = woken
        if self.ended or self.process.dead:
            return
        if self.process.paused:
            self._ready = True
            return
        self.kernel.enter(self)

    def let_go_on(self) -> None:
        """The process is not paused any more."""
        if self._ready and not self.process.paused and not self.process.dead:
            self._ready = False
            self.kernel.enter(self)

    def die(self) -> None:
        self.kernel.call_off(self._awaited)
        self._waiting = False
        if not self.ended and self.greenlet:  # one that never began has nothing to unwind
            self.kernel.enter(self, ProcessDied())

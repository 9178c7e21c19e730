"""An event loop in virtual time: where it would wait, its fiber sleeps."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

from fencepost.testing.fiber import Fiber

_OUTSIDE_S = 0.02  # real time that is given to what is not of this world (a thread of an executor), at each look


class _Selector(selectors.SelectSelector):
    """Never blocks: the time until the next call of the loop is slept in virtual time."""

    def __init__(self, fiber: Fiber, now_ms: Callable[[], int], awoken: Callable[[], None]) -> None:
        super().__init__()
        self._fiber, self._now_ms, self._awoken = fiber, now_ms, awoken

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout is not None else _OUTSIDE_S)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        self._fiber.park(None if timeout is None else self._now_ms() + math.ceil(timeout * 1000 - 1e-6))
        self._awoken()
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, selector: _Selector, now_ms: Callable[[], int]) -> None:
        super().__init__(selector)
        self._virtual_ms, self._begun_ms = now_ms, now_ms()  # counted from here, or fractions would be lost in floats
        self._clock_resolution = 0.0005

    def time(self) -> float:
        return (self._virtual_ms() - self._begun_ms) / 1000


def run(coroutine: Coroutine[Any, Any, Any], fiber: Fiber, now_ms: Callable[[], int], asked: Callable[[], bool]) -> Any:
    """Run it to its end. Once `asked` says so it is cancelled, once."""
    told = False

    def awoken() -> None:
        nonlocal told
        if asked() and not told:
            told = True
            task.cancel()

    loop = _Loop(_Selector(fiber, now_ms, awoken), now_ms)
    try:
        task = loop.create_task(coroutine)
        return loop.run_until_complete(task)
    finally:
        for left in asyncio.all_tasks(loop):
            left.cancel()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

"""Code that runs for a virtual time: a thread that holds the baton until it sleeps, and gets it back in due time.

Only one thread runs at any moment, so nothing is left to chance.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_current = threading.local()
SWITCH_LIMIT_S = 60.0  # real time: what computes for longer than this without sleeping is not waited for


class Killed(BaseException):
    """Raised in the code of a run that is killed, where it sleeps."""


def current() -> Fiber | None:
    """The fiber whose code calls this; None outside."""
    found: Fiber | None = getattr(_current, "fiber", None)
    return found


class _Hand:
    """A thread that runs one fiber after the other: to start one for each would take longer than most runs."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.fiber: Fiber | None = None  # None: there is nothing more to do
        self.thread = threading.Thread(target=self._work, name="fencepost-world", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while True:
            self.go.acquire()
            if self.fiber is None:
                return
            self.fiber.run(self)


_idle: list[_Hand] = []


def dismiss() -> None:
    """End the threads that wait for work."""
    while _idle:
        hand = _idle.pop()
        hand.fiber = None
        hand.go.release()
        hand.thread.join()


class Fiber:
    """One function, from its begin to its end."""

    def __init__(self, function: Callable[[], Any], name: str) -> None:
        self._function, self._name = function, name
        self._mine = threading.Semaphore(0)
        self._theirs = threading.Semaphore(0)
        self._killed = False
        self.started = False
        self.over = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.wake_ms: int | None = None  # None: it waits for something else than time

    def resume(self) -> None:
        """Let it go on until it sleeps or ends. Raises TimeoutError where it does neither in real time."""
        if self.over:
            return
        if self.started:
            self._mine.release()
        else:
            self.started = True
            hand = _idle.pop() if _idle else _Hand()
            hand.fiber = self
            hand.go.release()
        if not self._theirs.acquire(timeout=SWITCH_LIMIT_S):
            raise TimeoutError(f"{self._name} neither slept nor ended within {SWITCH_LIMIT_S:g} s of real time")

    def kill(self) -> None:
        """End it where it sleeps. Code that catches everything and sleeps on is left behind."""
        self._killed = True
        for _ in range(3):
            if self.started and not self.over:
                self.resume()
        self.over = True

    def park(self, wake_ms: int | None) -> None:
        """Called by its own code: give the baton back until that time. Raises Killed."""
        self.wake_ms = wake_ms
        self._theirs.release()
        self._mine.acquire()
        if self._killed:
            raise Killed

    def run(self, hand: _Hand) -> None:
        """By the thread that it was given to."""
        _current.fiber = self
        try:
            self.result = self._function()
        except BaseException as error:  # noqa: BLE001 - told as the end of the run
            self.error = error
        finally:
            _current.fiber = None
            if not self.over:
                _idle.append(hand)
            self.over = True
            self._theirs.release()

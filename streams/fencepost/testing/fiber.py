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


class Fiber:
    """One function, from its begin to its end."""

    def __init__(self, function: Callable[[], Any], name: str) -> None:
        self._function = function
        self._mine = threading.Semaphore(0)
        self._theirs = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._killed = False
        self.started = False
        self.over = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.wake_ms: int | None = None  # None: it waits for something else than time

    def resume(self) -> None:
        """Let it go on until it sleeps or ends. Raises TimeoutError where it does neither in real time."""
        if self.ended():
            return
        if self.started:
            self._mine.release()
        else:
            self.started = True
            self._thread.start()
        if not self._theirs.acquire(timeout=SWITCH_LIMIT_S):
            raise TimeoutError(f"{self._thread.name} neither slept nor ended within {SWITCH_LIMIT_S:g} s of real time")
        if self.ended():
            self._thread.join()

    def ended(self) -> bool:
        """Whether its code is done, or was given up."""
        return self.over

    def kill(self) -> None:
        """End it where it sleeps. Code that catches everything and sleeps on is left behind."""
        self._killed = True
        for _ in range(3):
            if self.over or not self.started:
                break
            self.resume()
        self.over = True

    def park(self, wake_ms: int | None) -> None:
        """Called by its own code: give the baton back until that time. Raises Killed."""
        self.wake_ms = wake_ms
        self._theirs.release()
        self._mine.acquire()
        if self._killed:
            raise Killed

    def _run(self) -> None:
        _current.fiber = self
        try:
            self.result = self._function()
        except BaseException as error:  # noqa: BLE001 - told as the end of the run
            self.error = error
        finally:
            self.over = True
            self._theirs.release()

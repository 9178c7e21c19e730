"""Calls that may fail for a moment (a leader moves, a coordinator loads) are made again until the time is up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from fencepost.kafka.errors import RetryLater

_T = TypeVar("_T")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5


def patiently(call: Callable[[], _T], timeout_s: float) -> _T:
    """What the call returns. It must be harmless to repeat. Raises its last RetryLater when the time is up."""
    until_s = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return call()
        except RetryLater:
            if time.monotonic() + pause_s > until_s:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

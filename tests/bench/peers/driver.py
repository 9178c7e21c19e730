"""The producing side of a peer, in a process of its own.

enqueue FIRST COUNT            send tasks FIRST .. FIRST+COUNT-1 as fast as it goes
space FIRST COUNT LEAST MOST   send them LEAST to MOST seconds apart; print when each was sent (CLOCK_MONOTONIC, ns)
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any


def drive(arguments: Sequence[str], send: Callable[[int], Any]) -> None:
    command, first, count = arguments[0], int(arguments[1]), int(arguments[2])
    if command == "enqueue":
        for index in range(first, first + count):
            send(index)
    elif command == "space":
        least_s, most_s = float(arguments[3]), float(arguments[4])
        spacing = random.Random(first)
        for index in range(first, first + count):
            time.sleep(spacing.uniform(least_s, most_s))
            sent_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            send(index)
            print(index, sent_ns, flush=False)
    else:
        raise SystemExit(f"command is {command!r}; allowed: enqueue, space")

"""How long the next attempt waits."""

from __future__ import annotations

import math

from fencepost.core.task import Retry

MAX_BACKOFF_S = 36_525 * 86_400.0  # a hundred years: no time beyond the calendar comes out


def backoff_ms(retry: Retry, attempt: int, spread: float) -> int:
    """Milliseconds between the end of `attempt` (1 is the first) and the next one.

    min(max_delay, delay * factor ** (attempt - 1)), then `jitter` of it up or down as `spread` in [-1, 1] says. The
    size is compared before it is computed: ``2.0 ** 5000`` is an OverflowError, and long before that the date lies
    beyond the calendar.
    """
    ceiling_s = min(retry.max_delay_s, MAX_BACKOFF_S)
    delay_s = _grown_s(retry, attempt - 1, ceiling_s)
    return max(0, round(delay_s * (1.0 + retry.jitter * spread) * 1000))


def _grown_s(retry: Retry, exponent: int, ceiling_s: float) -> float:
    if retry.delay_s <= 0.0 or ceiling_s <= 0.0:
        return 0.0
    if retry.factor <= 0.0:
        return min(retry.delay_s, ceiling_s) if exponent == 0 else 0.0
    # Compared as logarithms, so that nothing is computed that a float cannot hold.
    grown = math.log(retry.delay_s) + exponent * math.log(retry.factor)
    return ceiling_s if grown >= math.log(ceiling_s) else math.exp(grown)

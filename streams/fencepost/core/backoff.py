"""How long the next attempt waits."""

from __future__ import annotations

import math

from fencepost.core.task import Retry

MAX_BACKOFF_S = 36_525 * 86_400.0  # a hundred years: no time beyond the calendar comes out


def backoff_ms(retry: Retry, attempt: int, spread: float) -> int:
    """Milliseconds between the end of `attempt` (1 is the first) and the next one.

    min(max_delay, delay * factor ** (attempt - 1)), then `jitter` of it up or down as `spread` in [-1, 1] says. The
    exponent is clamped before it is used: ``2.0 ** 5000`` is an OverflowError, and long before that the date lies
    beyond the calendar.
    """
    ceiling_s = min(retry.max_delay_s, MAX_BACKOFF_S)
    delay_s: float = min(retry.delay_s * retry.factor ** _clamped(retry, attempt - 1, ceiling_s), ceiling_s)
    return max(0, round(delay_s * (1.0 + retry.jitter * spread) * 1000))


def _clamped(retry: Retry, exponent: int, ceiling_s: float) -> float:
    """The exponent, or the first one that reaches the ceiling; a factor of at most 1 never overflows."""
    if retry.factor <= 1.0 or retry.delay_s <= 0.0:
        return min(exponent, 10_000)
    if ceiling_s <= retry.delay_s:
        return 0
    return min(exponent, math.log(ceiling_s / retry.delay_s) / math.log(retry.factor) + 1.0)

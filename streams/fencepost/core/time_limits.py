"""Time limits beside the one of a run: how long a request may wait, and how long all its attempts may take."""

from __future__ import annotations

from typing import Final

from fencepost.core.rank import since_ms
from fencepost.core.task import BACKOFF, IDLE, Definition, Task, Work

WAITED_TOO_LONG: Final = "waited too long"
TOTAL: Final = "total"
LOOKED_AT: Final = 100  # requests that wait, for when the first limit passes: this is asked at each step


def start_by_ms(definition: Definition, work: Work) -> int | None:
    """From when on the request is not started any more; None: it may wait for ever.

    Counted from when it came due: a slot that is caught up with counts from when that was decided.
    """
    if definition.start_timeout_s is None:
        return None
    return since_ms(work) + round(definition.start_timeout_s * 1000)


def over_by_ms(definition: Definition, work: Work) -> int | None:
    """From when on nothing of the request is tried any more; None: no limit, or no run of it began."""
    if definition.total_timeout_s is None or not work.began_ms:
        return None
    return work.began_ms + round(definition.total_timeout_s * 1000)


def run_limit_s(definition: Definition, work: Work, now_ms: int) -> float | None:
    """How long a run that starts now may take: its own limit, or what is left of the total one."""
    over_ms = over_by_ms(definition, work)
    if over_ms is None:
        return definition.timeout_s
    left_s = max(0.001, (over_ms - now_ms) / 1000)
    return left_s if definition.timeout_s is None else min(left_s, definition.timeout_s)


def first_limit_ms(task: Task) -> int | None:
    """When the first limit passes of what waits; None: nothing that waits has one.

    Of what waits the first few are looked at. A request behind them came at most 90 s before one of them, as priority
    makes up for no more: where so many wait, it may be skipped so much later than its limit says, but it never starts.
    """
    definition = task.definition
    if definition is None:
        return None
    times: list[int] = []
    if definition.start_timeout_s is not None:
        times += [at_ms for work in task.waiting[:LOOKED_AT] if (at_ms := start_by_ms(definition, work)) is not None]
    work = task.state.work
    if definition.total_timeout_s is not None and work is not None and task.state.status is BACKOFF:
        over_ms = over_by_ms(definition, work)
        times += [] if over_ms is None else [over_ms]
    return min(times, default=None)


def expired(task: Task, now_ms: int) -> bool:
    """Whether what would start next may not start any more."""
    definition = task.definition
    if definition is None:
        return False
    if task.state.status is IDLE:
        at_ms = start_by_ms(definition, task.waiting[0]) if task.waiting else None
    else:
        at_ms = None if task.state.work is None else over_by_ms(definition, task.state.work)
    return at_ms is not None and at_ms <= now_ms

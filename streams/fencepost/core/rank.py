"""Who goes first: a lower priority number, then who came first; and whoever waits gets older.

Ten seconds of waiting count as one level of priority. As all that waits ages alike, the order of two requests never
changes while they wait: it is known when they come, by `since + priority * AGE_MS`. So a request of priority 9 goes
behind those of priority 0 that come within 90 s after it, and before all that come later: nothing starves.

What that is counted from stands in the record of each request, and depends on no other. So those that are left stand in
the same order whoever has gone, and whoever restores them; and one that comes is put in its place without sorting.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from fencepost.core.evolve import changer
from fencepost.core.task import Work

AGE_MS: Final = 10_000

_arrived = changer(Work, "arrived_ms")


def rank(priority: int, since_ms: int) -> int:
    """The smaller one goes first; of equal ones the lower priority number, then who came first."""
    return since_ms + priority * AGE_MS


def since_ms(work: Work) -> int:
    """Since when it waits: what was delayed, since it was due."""
    return max(work.due_ms, work.arrived_ms)


def in_order(waiting: tuple[Work, ...], work: Work) -> tuple[Work, ...]:
    """`waiting`, which is in order, with `work` in its place."""
    place = bisect_right(waiting, _key(work), key=_key)
    return (*waiting[:place], work, *waiting[place:])


def behind_its_level(waiting: tuple[Work, ...], work: Work) -> Work:
    """The work, which is new, as come no earlier than what waits of its level: a producer's time stamp may be anything.

    To be asked before it is recorded. Only those that would stand behind it have to be looked at.
    """
    for other in reversed(waiting[bisect_right(waiting, _key(work), key=_key) :]):
        if other.priority == work.priority:
            return _arrived(work, since_ms(other))
    return work


def line_up(works: Iterable[Work]) -> tuple[Work, ...]:
    """The work in the order in which it will start."""
    return tuple(sorted(works, key=_key))


def _key(work: Work) -> tuple[int, int, int]:
    return rank(work.priority, since_ms(work)), work.priority, work.seq

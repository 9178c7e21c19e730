"""Who goes first: a lower priority number, then who came first; and whoever waits gets older.

Ten seconds of waiting count as one level of priority. As all that waits ages alike, the order of two requests never
changes while they wait: it is known when they come, by `since + priority * AGE_MS`. So a request of priority 9 goes
behind those of priority 0 that come within 90 s after it, and before all that come later: nothing starves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fencepost.core.task import Work

AGE_MS: Final = 10_000


def rank(priority: int, since_ms: int) -> int:
    """The smaller one goes first; of equal ones the lower priority number, then who came first."""
    return since_ms + priority * AGE_MS


def in_order(waiting: tuple[Work, ...], work: Work) -> tuple[Work, ...]:
    """`waiting`, which is in order, with `work` in its place."""
    if not waiting or (waiting[-1].priority == work.priority and waiting[-1].seq < work.seq):
        return (*waiting, work)
    return line_up((*waiting, work))


def line_up(works: Iterable[Work]) -> tuple[Work, ...]:
    """The work in the order in which it will start.

    Within a level that is the order of arrival, by `seq`: a producer's time stamp may be anything. Between levels the
    ranks count, and for them nobody waits for longer than the one before it in its level.
    """
    since_ms: dict[int, int] = {}
    places: list[tuple[int, int, int, Work]] = []
    for work in sorted(works, key=lambda each: each.seq):
        own_ms = max(work.due_ms, work.arrived_ms, since_ms.get(work.priority, 0))
        since_ms[work.priority] = own_ms
        places.append((rank(work.priority, own_ms), work.priority, work.seq, work))
    places.sort(key=lambda place: place[:3])
    return tuple([place[3] for place in places])

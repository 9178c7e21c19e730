"""Limits over many tasks: at most so many runs at once, and at most so many starts in a time, of all that name one key.

The owner of the key's ID grants, by records alone: a task that could start asks, the grant names the ask, and whoever
records that the run has ended, or that the task does not want to start any more, gives it back in the same transaction.
So a grant is neither lost nor given twice, whoever dies. First come, first served.

What counts is the strictest of all that hold or wait: a limit is never exceeded for anybody who named it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Final

PREFIX: Final = "limit/"  # the ID under which a key has its owner; a task may have the same ID, they share nothing
_RATE: Final = re.compile(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,4})?(s|m|h|d)")
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
RATE_FORM: Final = 'runs per time such as "10/s", "100/m" or "5/10m" (units s, m, h, d)'


@dataclass(frozen=True, slots=True)
class Limit:
    """What a task names: a key, and how many runs of all that name it may be on, or start in a time.

    burst: how many may start at once after a time in which fewer did.
    """

    key: str
    max_runs: int | None = None
    rate: str | None = None
    burst: int = 1


@dataclass(frozen=True, slots=True)
class Permit:
    """What a task asked for. `ticket` is its own for each ask; `epoch`: the run that it was used for, 0 before."""

    ticket: int
    limit: Limit
    granted: bool = False
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """One ask, as the owner of the key keeps it until it is given back. `number` is the order of asking."""

    number: int
    task: str
    ticket: int
    limit: Limit
    asked_ms: int
    granted: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """All that hold or wait under one key, in the order of asking. `next_ms`: before when the rate's next start is due
    if none is ahead of its time; it moves on by one interval with each start."""

    claims: tuple[Claim, ...] = ()
    next_ms: float = 0.0


def group_id(key: str) -> str:
    """The ID whose owner grants what is asked under this key."""
    return PREFIX + key


def interval_ms(rate: str) -> float:
    """The time from one start to the next. Raises ValueError."""
    found = _RATE.fullmatch(rate)
    if found is None:
        raise ValueError(f"{rate!r} is no rate; allowed: {RATE_FORM}")
    return int(found[2] or 1) * _UNIT_MS[found[3]] / int(found[1])


def granting(group: Group, now_ms: int) -> tuple[Group, tuple[Claim, ...]]:
    """The group with everything granted that can be now, and the claims it was granted to."""
    held = sum(claim.granted for claim in group.claims)
    if held == len(group.claims):
        return group, ()
    most, apart_ms, burst = strictest(group)
    next_ms, granted = group.next_ms, []
    claims = list(group.claims)
    for place, claim in enumerate(claims):
        if claim.granted:
            continue
        if most is not None and held >= most:
            break
        if apart_ms:
            if now_ms < next_ms - (burst - 1) * apart_ms:
                break
            next_ms = round(max(next_ms, now_ms) + apart_ms, 3)
        held += 1
        claims[place] = Claim(claim.number, claim.task, claim.ticket, claim.limit, claim.asked_ms, True)
        granted.append(claims[place])
    return (Group(tuple(claims), next_ms), tuple(granted)) if granted else (group, ())


def due_ms(group: Group) -> int | None:
    """When something can be granted by the mere passage of time; None: at no time."""
    held = sum(claim.granted for claim in group.claims)
    if held == len(group.claims):
        return None
    most, apart_ms, burst = strictest(group)
    if not apart_ms or (most is not None and held >= most):
        return None
    return max(0, ceil(group.next_ms - (burst - 1) * apart_ms))


def strictest(group: Group) -> tuple[int | None, float, int]:
    """(runs at once, ms from start to start, burst) of all that hold or wait; None, 0.0: no limit of this kind."""
    limits = {claim.limit for claim in group.claims}
    most = min((limit.max_runs for limit in limits if limit.max_runs is not None), default=None)
    apart_ms = max((interval_ms(limit.rate) for limit in limits if limit.rate is not None), default=0.0)
    burst = min((limit.burst for limit in limits if limit.rate is not None), default=1)
    return most, apart_ms, burst


def slowest(rates: Iterable[str | None]) -> str | None:
    """The rate with the longest time from start to start; None: there is none."""
    return max((rate for rate in rates if rate is not None), key=interval_ms, default=None)

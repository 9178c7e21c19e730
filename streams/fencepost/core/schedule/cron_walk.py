"""The walk over wall-clock times: the one place that uses croniter.

croniter walks the hours of one plain, naive day and the minutes of one hour of it, and that is all it is asked for.
What it is given are explicit, sorted lists of numbers, and every day of its walk matches, because within that its
releases from 5.0.1 to 7.0.0 are right and equal. Left out on purpose is what at least one of them gets wrong:

- days: a day field such as `*/2` next to a weekday is joined by OR instead of AND in all of them, and 5.0.1 steps over
  the first of March in `0 0 1,31 * *`;
- months: a range such as `11-3/3` starts its steps again in January;
- zones: 5.0.1 moves or repeats runs around a change of the clock;
- text: 5.0.1 reads full-width digits; random and hashed values differ from one construction to the next;
- the end of the calendar: the walk beyond 9999-12-31 raises errors of several kinds.

Minutes and hours do not depend on each other, so the times of a day are the product of the two walks: at most 84 steps
instead of 1,440, and cached per field, since a construction costs 0.1 to 0.6 ms and a step 0.03 to 0.08 ms.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

from croniter import croniter

_START = datetime(2001, 1, 1)  # Any day does: it is naive, so it has 24 hours.
_MINUTE = timedelta(minutes=1)


@lru_cache(maxsize=4096)
def times_of_day(minutes: tuple[int, ...], hours: tuple[int, ...]) -> tuple[int, ...]:
    """The wall times that match, as seconds after midnight in growing order.

    `minutes` (0–59) and `hours` (0–23) are sorted, without repeats, and not empty.
    """
    within_hour = _minutes_of_an_hour(minutes)
    return tuple(hour_s + minute_s for hour_s in _hours_of_a_day(hours) for minute_s in within_hour)


@lru_cache(maxsize=4096)
def _hours_of_a_day(hours: tuple[int, ...]) -> tuple[int, ...]:
    return _walk(f"0 {_listed(hours)} * * *", timedelta(days=1))


@lru_cache(maxsize=4096)
def _minutes_of_an_hour(minutes: tuple[int, ...]) -> tuple[int, ...]:
    return _walk(f"{_listed(minutes)} * * * *", timedelta(hours=1))


def _walk(expression: str, span: timedelta) -> tuple[int, ...]:
    """Seconds after the start of each wall time in the span, which the expression matches at least once."""
    found = []
    # The walk gives what comes after its start, so it starts a minute early.
    walk = croniter(expression, _START - _MINUTE, ret_type=datetime)
    while (wall := walk.get_next(datetime)) < _START + span:
        found.append((wall - _START) // timedelta(seconds=1))
    return tuple(found)


def _listed(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))

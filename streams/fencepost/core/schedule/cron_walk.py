"""The walk over wall-clock times: the one place that uses croniter.

croniter walks the hours of one plain, naive day, the minutes of one hour and the seconds of one minute of it, and that
is all it is asked for.
What it is given are explicit, sorted lists of numbers, and every day of its walk matches, because within that its
releases from 5.0.1 to 7.0.0 are right and equal. Left out on purpose is what at least one of them gets wrong:

- days: a day field such as `*/2` next to a weekday is joined by OR instead of AND in all of them, and 5.0.1 steps over
  the first of March in `0 0 1,31 * *`;
- months: a range such as `11-3/3` starts its steps again in January;
- zones: 5.0.1 moves or repeats runs around a change of the clock;
- text: 5.0.1 reads full-width digits; random and hashed values differ from one construction to the next;
- the end of the calendar: the walk beyond 9999-12-31 raises errors of several kinds.

Hours, minutes and seconds do not depend on each other, so the times of a day are the product of the three walks: at
most 144 steps instead of 86,400, and cached per field, since a construction costs 0.1 to 0.6 ms and a step 0.03 to
0.08 ms.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

from croniter import croniter

from fencepost.core.schedule.times_of_day import TimesOfDay

_START = datetime(2001, 1, 1)  # Any day does: it is naive, so it has 24 hours.


@lru_cache(maxsize=4096)
def times_of_day(seconds: tuple[int, ...], minutes: tuple[int, ...], hours: tuple[int, ...]) -> TimesOfDay:
    """The wall times that match. `seconds`, `minutes` (0–59) and `hours` (0–23): sorted, without repeats, not empty."""
    return TimesOfDay(_hours_of_a_day(hours), _minutes_of_an_hour(minutes), _seconds_of_a_minute(seconds))


@lru_cache(maxsize=4096)
def _hours_of_a_day(hours: tuple[int, ...]) -> tuple[int, ...]:
    return _walk(f"0 {_listed(hours)} * * *", timedelta(days=1))


@lru_cache(maxsize=4096)
def _minutes_of_an_hour(minutes: tuple[int, ...]) -> tuple[int, ...]:
    return _walk(f"{_listed(minutes)} * * * *", timedelta(hours=1))


@lru_cache(maxsize=4096)
def _seconds_of_a_minute(seconds: tuple[int, ...]) -> tuple[int, ...]:
    # croniter takes the seconds as the last of six fields.
    return _walk(f"* * * * * {_listed(seconds)}", timedelta(minutes=1))


def _walk(expression: str, span: timedelta) -> tuple[int, ...]:
    """Seconds after the start of each wall time in the span, which the expression matches at least once."""
    found = []
    # The walk gives what comes after its start, so it starts a second early.
    walk = croniter(expression, _START - timedelta(seconds=1), ret_type=datetime)
    while (wall := walk.get_next(datetime)) < _START + span:
        found.append((wall - _START) // timedelta(seconds=1))
    return tuple(found)


def _listed(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))

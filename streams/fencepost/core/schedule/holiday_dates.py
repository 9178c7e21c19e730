"""Public holidays of a country: the one place that uses `holidays`.

It is data and arithmetic alone, with no clock in it, so it may stand in the core; but its releases differ as laws do,
so workers report theirs with the version of the time zone data. It is loaded when a calendar with a country is first
made.
"""

from __future__ import annotations

import re
from functools import lru_cache

from fencepost.core.schedule.errors import ScheduleError
from fencepost.core.times import shown

_COUNTRY = re.compile(r"[A-Z]{2}")


@lru_cache(maxsize=4096)
def holidays_in(country: str, subdivision: str | None, year: int) -> frozenset[int]:
    """The holidays of a year as ordinals of dates, substitute days included; none in years that the data leave out.

    Raises ScheduleError for a country or a subdivision that is not known.
    """
    import holidays

    if not _COUNTRY.fullmatch(country):
        raise ScheduleError("calendar.country", f"{shown(country)} is not a code of two capitals, such as DE or US")
    if country not in holidays.list_supported_countries():
        raise ScheduleError("calendar.country", f"{shown(country)} is not known; allowed: codes such as DE, FR, GB, US")
    known = holidays.list_supported_countries()[country]
    if subdivision is not None and subdivision not in known:
        listed = ", ".join(known[:20]) or "none"
        raise ScheduleError("calendar.subdivision", f"{shown(subdivision)} is not one of {country}; allowed: {listed}")
    return frozenset(day.toordinal() for day in holidays.country_holidays(country, subdiv=subdivision, years=year))

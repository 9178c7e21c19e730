"""Which days are open, and what becomes of a slot on a closed one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Any, Final

from fencepost.core.schedule.errors import ScheduleError
from fencepost.core.schedule.holiday_dates import holidays_in
from fencepost.core.schedule.json_keys import require_known
from fencepost.core.schedule.zone_clock import zone_clock
from fencepost.core.times import shown

MOST_DATES: Final = 1000
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_LAST_ORDINAL = date.max.toordinal()
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_KEYS = ("country", "subdivision", "weekdays_only", "closed", "open", "on_closed", "time_zone")


class OnClosed(StrEnum):
    """What becomes of a slot on a closed day."""

    SKIP = "skip"  # there is none
    NEXT = "next"  # it moves to the next open day, to the same time of day
    PREVIOUS = "previous"  # it moves to the open day before


@dataclass(frozen=True, slots=True)
class Calendar:
    """Open and closed days. A date in `open` is open whatever else; any other is closed if one of these says so.

    `country` (two capitals) and `subdivision`: its public holidays. `weekdays_only`: Saturdays and Sundays. `closed`
    and `open`: dates as `2026-12-24`, at most 1,000 each. `time_zone`: whose days; None: the schedule's, else UTC.
    Raises ScheduleError.
    """

    country: str | None = None
    subdivision: str | None = None
    weekdays_only: bool = False
    closed: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    on_closed: OnClosed = OnClosed.SKIP
    time_zone: str | None = None
    _closed: frozenset[int] = field(init=False, repr=False, compare=False)
    _open: frozenset[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("country", "subdivision", "time_zone"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ScheduleError(f"calendar.{name}", f"must be a text, not {type(value).__name__}")
        if not isinstance(self.weekdays_only, bool):
            raise ScheduleError("calendar.weekdays_only", f"{shown(self.weekdays_only)} is not true or false")
        if self.subdivision is not None and self.country is None:
            raise ScheduleError("calendar.subdivision", "is given without a country")
        try:
            object.__setattr__(self, "on_closed", OnClosed(self.on_closed))
        except ValueError:
            allowed = ", ".join(item.value for item in OnClosed)
            raise ScheduleError("calendar.on_closed", f"{shown(self.on_closed)}; allowed: {allowed}") from None
        for name in ("closed", "open"):
            object.__setattr__(self, name, dates := _dates(name, getattr(self, name)))
            object.__setattr__(self, f"_{name}", frozenset(date.fromisoformat(text).toordinal() for text in dates))
        if self.country is not None:
            holidays_in(self.country, self.subdivision, 2000)  # refuses what is not known
        if self.time_zone is not None:
            zone_clock(self.time_zone)
        if self.country is None and not self.weekdays_only and not self.closed:
            raise ScheduleError("calendar", "closes no day; give country, weekdays_only or closed")

    def is_open(self, day: int) -> bool:
        """Whether a day (counted from 1970-01-01) is open. Days outside the years 1970 to 9999 are."""
        ordinal = day + _EPOCH_ORDINAL
        if ordinal in self._open or not 0 <= day <= _LAST_ORDINAL - _EPOCH_ORDINAL:
            return True
        if ordinal in self._closed or (self.weekdays_only and ordinal % 7 in (6, 0)):
            return False
        year = date.fromordinal(ordinal).year
        return self.country is None or ordinal not in holidays_in(self.country, self.subdivision, year)

    def open_from(self, day: int) -> int:
        """The first open day at or after `day`."""
        while not self.is_open(day):
            day += 1
        return day

    def open_until(self, day: int) -> int:
        """The last open day at or before `day`."""
        while not self.is_open(day):
            day -= 1
        return day

    @property
    def fingerprint(self) -> str:
        weekdays = " weekdays" if self.weekdays_only else ""
        dates = f" closed {','.join(self.closed)} open {','.join(self.open)}"
        return f"{self.country} {self.subdivision}{weekdays}{dates} {self.on_closed} {self.time_zone}"

    def to_json(self) -> dict[str, Any]:
        """`{"country": "DE", "weekdays_only": true, "on_closed": "next"}`; what is at its default is left out."""
        body: dict[str, Any] = {}
        for name in _KEYS:
            value = getattr(self, name)
            if value and value != OnClosed.SKIP:
                body[name] = list(value) if isinstance(value, tuple) else value if value is True else str(value)
        return body

    @classmethod
    def from_json(cls, body: object) -> Calendar:
        """The reverse of `to_json`. Raises ScheduleError."""
        if not isinstance(body, Mapping):
            raise ScheduleError("calendar", f"must be an object, not {type(body).__name__}; keys: {', '.join(_KEYS)}")
        require_known(body, "calendar", _KEYS)
        given: dict[str, Any] = {name: value for name, value in body.items() if value is not None}
        for name in ("closed", "open"):
            if name in given and not isinstance(given[name], list):
                raise ScheduleError(f"calendar.{name}", f"must be a list of dates, not {type(given[name]).__name__}")
        given |= {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
        return cls(**given)


def _dates(name: str, values: object) -> tuple[str, ...]:
    field_name = f"calendar.{name}"
    if isinstance(values, str) or not isinstance(values, tuple | list | set | frozenset):
        raise ScheduleError(field_name, f"must be a list of dates, not {type(values).__name__}")
    if len(values) > MOST_DATES:
        raise ScheduleError(field_name, f"has {len(values)} dates; allowed: {MOST_DATES} at most")
    return tuple(sorted({_date(field_name, value) for value in values}))


def _date(field_name: str, value: object) -> str:
    if type(value) is date:
        return value.isoformat()
    try:
        if isinstance(value, str) and _DATE.fullmatch(value) and date.fromisoformat(value).year >= 1970:
            return value
    except ValueError:
        pass
    raise ScheduleError(field_name, f"{shown(value)} is not a date from 1970 on, such as 2026-12-24")

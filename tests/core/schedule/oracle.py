"""A slow second opinion: every minute of real time is looked at, one by one.

Written apart from the code under test and in another way: it asks each minute whether it is a slot, takes the repeated
hour from `datetime.fold`, and sees a gap where the offset of a minute differs from that of the minute before. It reads
only expressions that are right, and only zones with offsets of whole minutes.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
NAMES = dict(zip(MONTHS, range(1, 13), strict=True)) | dict(zip(WEEKDAYS, range(7), strict=True))
MINUTE = timedelta(minutes=1)


def field_matches(text: str, value: int, low: int, high: int) -> bool:
    for item in text.lower().split(","):
        body, _, step = item.partition("/")
        first, _, end = body.partition("-")
        begin = low if first == "*" else number(first)
        stop = number(end) if end else high if first == "*" or step else begin
        if begin <= value <= stop and (value - begin) % int(step or 1) == 0:
            return True
    return False


def number(text: str) -> int:
    return NAMES[text] if text in NAMES else int(text)


class Expression:
    def __init__(self, text: str) -> None:
        self.minute, self.hour, self.day, self.month, self.weekday = text.split()
        self.follows_the_wall_clock = self.minute[0] == "*" or self.hour[0] == "*"
        self.minutes = {value for value in range(60) if field_matches(self.minute, value, 0, 59)}
        self.hours = {value for value in range(24) if field_matches(self.hour, value, 0, 23)}
        self.months = {value for value in range(1, 13) if field_matches(self.month, value, 1, 12)}

    def matches(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours and self.matches_day(wall)

    def matches_day(self, wall: datetime) -> bool:
        if wall.month not in self.months:
            return False
        by_date = field_matches(self.day, wall.day, 1, 31)
        sunday_first = wall.isoweekday() % 7
        by_weekday = field_matches(self.weekday, sunday_first, 0, 6) or (
            sunday_first == 0 and field_matches(self.weekday, 7, 0, 6)
        )
        if self.day[0] == "*" or self.weekday[0] == "*":
            return by_date and by_weekday
        return by_date or by_weekday


@lru_cache(maxsize=64)
def minutes_of(zone_name: str, from_s: int, until_s: int) -> list[tuple[int, datetime, bool, list[datetime]]]:
    """For each minute: its time, the wall time, whether it is a repetition, and the wall times left out before it."""
    zone = ZoneInfo(zone_name)
    found = []
    before = datetime.fromtimestamp(from_s - 60, zone).replace(tzinfo=None)
    for at_s in range(from_s, until_s, 60):
        aware = datetime.fromtimestamp(at_s, zone)
        wall = aware.replace(tzinfo=None)
        left_out = []
        if wall - before <= timedelta(hours=3) + MINUTE:
            while (before := before + MINUTE) < wall:
                left_out.append(before)
        before = wall
        found.append((at_s, wall.replace(fold=0), aware.fold == 1, left_out))
    return found


def slots(text: str, zone_name: str, from_s: int, until_s: int) -> list[int]:
    """All slots in [from_s, until_s) in milliseconds; both ends are whole minutes."""
    expression = Expression(text)
    found = []
    for at_s, wall, repeated, left_out in minutes_of(zone_name, from_s, until_s):
        slot = expression.matches(wall)
        if not expression.follows_the_wall_clock:
            slot = (slot and not repeated) or any(expression.matches(missing) for missing in left_out)
        if slot:
            found.append(at_s * 1000)
    return found

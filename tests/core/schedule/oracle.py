"""A slow second opinion: every minute (or second) of real time is looked at, one by one.

Written apart from the code under test and in another way: it asks each moment whether it is a slot, takes the repeated
hour from `datetime.fold`, and sees a gap where the offset of a moment differs from that of the moment before. It reads
only expressions that are right, and only zones with offsets of whole minutes.
"""

from __future__ import annotations

import calendar
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
NAMES = dict(zip(MONTHS, range(1, 13), strict=True)) | dict(zip(WEEKDAYS, range(7), strict=True))


def field_matches(text: str, value: int, low: int, high: int) -> bool:
    size = high - low + 1
    for item in text.lower().split(","):
        body, _, step = item.partition("/")
        first, _, end = body.partition("-")
        begin = low if first == "*" else number(first)
        stop = number(end) if end else high if first == "*" or step else begin
        # How far from the beginning, going around the end of the field where the range does.
        distance = (value - begin) % size if begin > stop else value - begin
        length = (stop - begin) % size if begin > stop else stop - begin
        if 0 <= distance <= length and distance % int(step or 1) == 0:
            return True
    return False


def number(text: str) -> int:
    return NAMES[text] if text in NAMES else int(text)


def nearest_working_day(wall: datetime, day: int) -> int | None:
    length = calendar.monthrange(wall.year, wall.month)[1]
    if not 1 <= day <= length:
        return None
    working = [one for one in range(1, length + 1) if wall.replace(day=one).isoweekday() <= 5]
    return min(working, key=lambda one: abs(one - day))


def date_matches(text: str, wall: datetime) -> bool:
    length = calendar.monthrange(wall.year, wall.month)[1]
    for item in text.upper().split(","):
        if item == "?":
            return True
        meant = item.removesuffix("W")
        if meant.startswith("L"):
            day = length - int(meant[2:] or 0)
        elif item.endswith("W"):
            day = int(meant)
        else:
            if field_matches(item, wall.day, 1, 31):
                return True
            continue
        if wall.day == (nearest_working_day(wall, day) if item.endswith("W") else day):
            return True
    return False


def weekday_matches(text: str, wall: datetime) -> bool:
    length = calendar.monthrange(wall.year, wall.month)[1]
    today = wall.isoweekday() % 7
    for item in text.lower().split(","):
        if item == "?":
            return True
        weekday, sharp, count = item.partition("#")
        if sharp:
            if number(weekday) % 7 == today and (wall.day + 6) // 7 == int(count):
                return True
        elif item.endswith("l"):
            if number(item[:-1]) % 7 == today and wall.day + 7 > length:
                return True
        elif field_matches(item, today, 0, 6) or (today == 0 and field_matches(item, 7, 0, 6)):
            return True
    return False


class Expression:
    def __init__(self, text: str) -> None:
        fields = text.split()
        self.by_the_second = len(fields) > 5
        fields = fields if self.by_the_second else ["0", *fields]
        second, minute, hour, self.day, month, self.weekday, self.year = [*fields, "*"][:7]
        self.follows_the_wall_clock = minute[0] == "*" or hour[0] == "*"
        self.seconds = {value for value in range(60) if field_matches(second, value, 0, 59)}
        self.minutes = {value for value in range(60) if field_matches(minute, value, 0, 59)}
        self.hours = {value for value in range(24) if field_matches(hour, value, 0, 23)}
        self.months = {value for value in range(1, 13) if field_matches(month, value, 1, 12)}
        self._days: dict[date, bool] = {}  # which days match, of those that were looked at

    def matches(self, wall: datetime) -> bool:
        in_time = wall.second in self.seconds and wall.minute in self.minutes and wall.hour in self.hours
        return in_time and self.matches_day(wall)

    def matches_day(self, wall: datetime) -> bool:
        day = wall.date()
        if day not in self._days:
            self._days[day] = self._looked_at(wall)
        return self._days[day]

    def _looked_at(self, wall: datetime) -> bool:
        if wall.month not in self.months or not field_matches(self.year, wall.year, 1970, 9999):
            return False
        by_date, by_weekday = date_matches(self.day, wall), weekday_matches(self.weekday, wall)
        if self.day[0] in "*?" or self.weekday[0] in "*?":
            return by_date and by_weekday
        return by_date or by_weekday


@lru_cache(maxsize=64)
def moments_of(
    zone_name: str, from_s: int, until_s: int, step_s: int
) -> list[tuple[int, datetime, bool, list[datetime]]]:
    """For each moment: its time, the wall time, whether it is a repetition, and the wall times left out before it."""
    zone, step = ZoneInfo(zone_name), timedelta(seconds=step_s)
    found = []
    before = datetime.fromtimestamp(from_s - step_s, zone).replace(tzinfo=None)
    for at_s in range(from_s, until_s, step_s):
        aware = datetime.fromtimestamp(at_s, zone)
        wall = aware.replace(tzinfo=None)
        left_out = []
        if wall - before <= timedelta(hours=3) + step:
            while (before := before + step) < wall:
                left_out.append(before)
        before = wall
        found.append((at_s, wall.replace(fold=0), aware.fold == 1, left_out))
    return found


def slots(text: str, zone_name: str, from_s: int, until_s: int) -> list[int]:
    """All slots in [from_s, until_s) in milliseconds; both ends are whole minutes."""
    expression = Expression(text)
    found = []
    step_s = 1 if expression.by_the_second else 60
    for at_s, wall, repeated, left_out in moments_of(zone_name, from_s, until_s, step_s):
        slot = expression.matches(wall)
        if not expression.follows_the_wall_clock:
            slot = (slot and not repeated) or any(expression.matches(missing) for missing in left_out)
        if slot:
            found.append(at_s * 1000)
    return found

"""The text of a cron expression, read into one set of values per field.

Grammar, of ASCII characters only:

    expression = alias | [second] minute hour day-of-month month day-of-week [year]      (spaces or tabs between)
    alias      = @hourly | @daily | @midnight | @weekly | @monthly | @yearly | @annually      (any case)
    field      = item {"," item}
    item       = ("*" | value | value "-" value) ["/" step] | hashed | day-of-month | day-of-week
    value      = number | the first three letters of a month or a weekday (any case)
    hashed     = "H" ["(" value "-" value ")"] ["/" step]      (in every field but the year)
    day-of-month = "?" | "L" ["-" days] ["W"] | "LW" | day "W"
    day-of-week  = "?" | weekday "#" (1 to 5) | weekday "L"

Six fields begin with the seconds; seven also end with the year. Without them the second is 0 and the year is any.
`a/n` runs from a to the field's highest value, for weekdays to Saturday. Sunday is 0 and 7. A range whose end lies
before its start runs around the end of the field (`22-2`, `nov-feb`, `fri-mon`), and its steps go on around it; years
have no such ranges. `?` is a star. What `L`, `W` and `#` mean is in `day_forms`, what `H` means in `cron_hash`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from fencepost.core.schedule.cron_hash import Hashed
from fencepost.core.schedule.day_forms import DayForm, FromLast, LastWeekday, NearestWorkingDay, NthWeekday
from fencepost.core.schedule.errors import ScheduleError

LONGEST = 1024

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True)
class FieldKind:
    """One of the seven fields: its name in errors, and the values it may have."""

    key: str
    label: str
    lowest: int
    highest: int  # the highest number that may be written
    last: int  # the last of the values that `*` means and that `a/n` runs to
    names: tuple[str, ...] = ()
    names_from: int = 0
    last_hashed: int | None = None  # the last value that `H` may choose; None: the field has no `H`
    forms: str = ""

    @property
    def everything(self) -> int:
        """The bits of all values."""
        return (1 << self.last + 1) - (1 << self.lowest)

    @property
    def allowed(self) -> str:
        names = f", names {self.names[0]}-{self.names[-1]}" if self.names else ""
        sunday = " (0 and 7 are Sunday)" if self.highest == 7 else ""
        hashed = "" if self.last_hashed is None else ", H, H(a-b), H/n"
        return (
            f"allowed: numbers {self.lowest}-{self.highest}{sunday}{names}, *, lists a,b, ranges a-b, "
            f"steps */n, a/n, a-b/n{hashed}{self.forms}"
        )


SECOND = FieldKind("second", "second", 0, 59, 59, last_hashed=59)
MINUTE = FieldKind("minute", "minute", 0, 59, 59, last_hashed=59)
HOUR = FieldKind("hour", "hour", 0, 23, 23, last_hashed=23)
# H leaves out the days that not every month has: with them some IDs would not come every month.
DAY_OF_MONTH = FieldKind(
    "day_of_month", "day of month", 1, 31, 31, last_hashed=28, forms=" (up to 28), ?, L, L-n, LW, nW"
)
MONTH = FieldKind("month", "month", 1, 12, 12, _MONTHS, 1, last_hashed=12)
DAY_OF_WEEK = FieldKind("day_of_week", "day of week", 0, 7, 6, _WEEKDAYS, 0, last_hashed=6, forms=", ?, n#1 to n#5, nL")
YEAR = FieldKind("year", "year", 1970, 9999, 9999)
FIELDS = (SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK, YEAR)

_COUNTS = (
    "allowed: five fields (minute, hour, day of month, month, day of week), six (second first), seven (year last), "
    "or one of " + ", ".join(ALIASES)
)

# Pattern (of a whole item) → what it is. They are known elsewhere, so a plain "not a number" would not do.
_OTHER_FORMS = (
    (re.compile(r"r(\([^)]*\))?(/.*)?", re.IGNORECASE), "R would be another value after each restart; use H"),
    (re.compile(r".*~.*"), "~ would be another value after each restart; use H(a-b)"),
    (re.compile(r"\?"), "? stands in the day fields only, and alone"),
    (re.compile(r"l", re.IGNORECASE), "L alone stands in the day of month only; for the last Friday write 5L"),
    (re.compile(r"l[0-9]+|l[a-z]{3}", re.IGNORECASE), "for the last such weekday write the weekday first, as in 5L"),
    (re.compile(r"(l|[0-9]+)(-[0-9]+)?w|w[0-9]+", re.IGNORECASE), "W stands after a day from 1 to 31 or L, as in 15W"),
    (re.compile(r"l-[0-9]+", re.IGNORECASE), "L-n is for the day of month, with n from 0 to 30"),
    (re.compile(r"[0-9a-z]+l", re.IGNORECASE), "L after a value is for the day of week, as in 5L"),
    (re.compile(r"[0-9a-z]+#.*", re.IGNORECASE), "# is for the day of week, from the first to the fifth, as in 2#3"),
    (re.compile(r"h(\(.*)?(/.*)?", re.IGNORECASE), "H is written H, H(a-b), H/n or H(a-b)/n, and the year has none"),
)
_LONG_NAMES = re.compile(
    r"january|february|march|april|june|july|august|september|october|november|december|"
    r"(?:sun|mon|tues|wednes|thurs|fri|satur)day",
    re.IGNORECASE,
)
_ITEM = re.compile(r"(?P<first>\*|[0-9A-Za-z]+)(?:-(?P<end>[0-9A-Za-z]+))?(?:/(?P<step>[0-9]+))?")
_HASHED = re.compile(r"[Hh](?:\((?P<first>[0-9A-Za-z]+)-(?P<end>[0-9A-Za-z]+)\))?(?:/(?P<step>[0-9]+))?")
_FROM_LAST = re.compile(r"[Ll](?:-(?P<back>[0-9]{1,2}))?(?P<nearest>[Ww])?")
_NEAREST = re.compile(r"(?P<day>[0-9]{1,2})[Ww]")
_NTH = re.compile(r"(?P<weekday>[0-7]|[A-Za-z]{3})#(?P<number>[1-5])")
_LAST_WEEKDAY = re.compile(r"(?P<weekday>[0-7]|[A-Za-z]{3})[Ll]")


@dataclass(frozen=True, slots=True)
class CronField:
    """The values of one field as bits (bit n for the value n; Sunday is bit 0), and whether its text is a star.

    `forms`: days that depend on the month's shape. `hashed`: what a task's ID is yet to choose.
    """

    bits: int
    star: bool
    forms: tuple[DayForm, ...] = ()
    hashed: tuple[Hashed, ...] = ()

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(value for value in range(self.bits.bit_length()) if self.bits >> value & 1)


def parse_fields(expression: str) -> tuple[CronField, ...]:
    """The fields of an expression, in the order of `FIELDS`. Raises ScheduleError (`cron`, `cron.minute`, …)."""
    if len(expression) > LONGEST:
        raise ScheduleError("cron", f"has {len(expression)} characters; allowed: {LONGEST} at most")
    for character in expression.strip("\r\n"):  # A text of several lines in a file ends with a line break.
        if not (" " <= character <= "~" or character == "\t"):
            raise ScheduleError("cron", f"holds {character!a}; allowed: ASCII letters, digits, signs, spaces and tabs")
    texts = _split(expression)
    return tuple(_parse_field(kind, text) for kind, text in zip(FIELDS, texts, strict=True))


def choose(fields: tuple[CronField, ...], task: str | None) -> tuple[CronField, ...]:
    """The fields with what the ID of a task chooses; without one, with all that any ID may choose."""
    return tuple(_chosen(kind, cron_field, task) for kind, cron_field in zip(FIELDS, fields, strict=True))


def _chosen(kind: FieldKind, cron_field: CronField, task: str | None) -> CronField:
    if not cron_field.hashed:
        return cron_field
    bits = cron_field.bits
    for item in cron_field.hashed:
        bits |= item.bits(kind.key, task)
    return replace(cron_field, bits=bits, hashed=())


def _split(expression: str) -> list[str]:
    texts = expression.split()
    if not texts:
        raise ScheduleError("cron", f"is empty; {_COUNTS}")
    if texts[0].startswith("@"):
        alias = ALIASES.get(texts[0].lower()) if len(texts) == 1 else None
        if alias is None:
            more = "; for a fixed distance use every_s" if texts[0].lower() == "@every" else ""
            raise ScheduleError("cron", f"{_shown(expression)} is not a known alias{more}; {_COUNTS}")
        texts = alias.split()
    if not 5 <= len(texts) <= 7:
        raise ScheduleError("cron", f"has {len(texts)} field{'s' if len(texts) > 1 else ''}; {_COUNTS}")
    if len(texts) == 5:
        texts = ["0", *texts]
    return texts if len(texts) == 7 else [*texts, "*"]


def _parse_field(kind: FieldKind, text: str) -> CronField:
    if text == "?" and kind in (DAY_OF_MONTH, DAY_OF_WEEK):
        return CronField(kind.everything, star=True)
    bits = 0
    forms: list[DayForm] = []
    hashed: list[Hashed] = []
    for item in text.split(","):
        read = _hashed(kind, item) or _day_form(kind, item)
        if read is None:
            bits |= _parse_item(kind, item)
        elif isinstance(read, Hashed):
            hashed.append(read)
        elif read not in forms:
            forms.append(read)
    return CronField(bits, text.startswith("*"), tuple(sorted(forms, key=_text_of)), tuple(hashed))


def _text_of(form: DayForm) -> str:
    return form.text


def _hashed(kind: FieldKind, item: str) -> Hashed | None:
    match = _HASHED.fullmatch(item)
    if match is None or kind.last_hashed is None:
        return None
    low, high, step = kind.lowest, kind.last_hashed, match["step"]
    if match["first"] is not None:
        low, high = _value(kind, match["first"], item), _value(kind, match["end"], item)
        if not low <= high <= kind.last_hashed:
            raise _refusal(kind, item, f"H chooses from a range upwards, within {kind.lowest}-{kind.last_hashed}")
    number = 0 if step is None else _step(kind, step, item)
    if number > high - low + 1:
        raise _refusal(kind, item, f"the step {number} is longer than the range {low}-{high}")
    return Hashed(low, high, number)


def _day_form(kind: FieldKind, item: str) -> DayForm | None:
    if kind is DAY_OF_MONTH:
        if (match := _FROM_LAST.fullmatch(item)) and int(match["back"] or 0) <= 30:
            return FromLast(int(match["back"] or 0), match["nearest"] is not None)
        if (match := _NEAREST.fullmatch(item)) and 1 <= int(match["day"]) <= 31:
            return NearestWorkingDay(int(match["day"]))
    if kind is DAY_OF_WEEK:
        if match := _NTH.fullmatch(item):
            return NthWeekday(_value(kind, match["weekday"], item) % 7, int(match["number"]))
        if match := _LAST_WEEKDAY.fullmatch(item):
            return LastWeekday(_value(kind, match["weekday"], item) % 7)
    return None


def _parse_item(kind: FieldKind, item: str) -> int:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise _refusal(kind, item, _why_not(kind, item) or ("an item is empty" if not item else "cannot be read"))
    first, end, step = match["first"], match["end"], match["step"]
    if first == "*":
        if end is not None:
            raise _refusal(kind, item, "a range starts with a value, not with *")
        low, high = kind.lowest, kind.last
    else:
        low = _value(kind, first, item)
        high = _value(kind, end, item) if end is not None else low if step is None else max(low, kind.last)
    if low > high:
        if kind is YEAR:
            raise _refusal(kind, item, "years do not come again: a range of years runs upwards")
        high += kind.last - kind.lowest + 1  # around the end
        low = 0 if kind is DAY_OF_WEEK and low == 7 else low
        high = high - 7 if kind is DAY_OF_WEEK and high - low >= 7 else high
    return _range_bits(kind, low, high, _step(kind, step, item))


def _range_bits(kind: FieldKind, low: int, high: int, step: int) -> int:
    bits, size = 0, kind.last - kind.lowest + 1
    for value in range(low, high + 1, step):
        bits |= 1 << (value if value <= kind.last else value - size)
    return bits


def _value(kind: FieldKind, text: str, item: str) -> int:
    if text.isdecimal():
        # The length is looked at before the number is made: a text may hold a thousand digits.
        value = int(text) if len(text) <= 4 else -1
        if not kind.lowest <= value <= kind.highest:
            raise _refusal(kind, item, f"{_shown(text)} is out of range")
        return value
    if text.lower() in kind.names:
        return kind.names.index(text.lower()) + kind.names_from
    raise _refusal(kind, item, _why_not(kind, item) or f"{_shown(text)} is not a value of this field")


def _step(kind: FieldKind, text: str | None, item: str) -> int:
    if text is None:
        return 1
    step = int(text) if len(text) <= 4 else 0
    if step == 0:
        raise _refusal(kind, item, f"the step {_shown(text)} is out of range; steps are 1-9999")
    return step


def _why_not(kind: FieldKind, item: str) -> str | None:
    """What an item that cannot be read may have been meant as."""
    for pattern, why in _OTHER_FORMS:
        if pattern.fullmatch(item):
            return why
    if item[:1] in ("-", "+"):
        return "signs are not accepted"
    if "_" in item:
        return "underscores are not accepted"
    long_name = _LONG_NAMES.search(item)
    if long_name is not None and long_name[0][:3].lower() in kind.names:
        return f"full names are not accepted; write {long_name[0][:3].lower()}"
    return None


def _refusal(kind: FieldKind, item: str, why: str) -> ScheduleError:
    return ScheduleError(f"cron.{kind.key}", f"{_shown(item)} in the field {kind.label}: {why}; {kind.allowed}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")

"""The text of a cron expression, read into one set of values per field.

Grammar, of ASCII characters only:

    expression = alias | minute hour day-of-month month day-of-week      (spaces or tabs between)
    alias      = @hourly | @daily | @midnight | @weekly | @monthly | @yearly | @annually      (any case)
    field      = item {"," item}
    item       = ("*" | value | value "-" value) ["/" step]
    value      = number | the first three letters of a month or a weekday (any case)

`a/n` runs from a to the field's highest value, for weekdays to Saturday. Sunday is 0 and 7. Forms that other crons know
(`L`, `W`, `#`, `H`, `?`, ranges around the end, seconds, years) are told apart from mistakes: `_OTHER_FORMS` names
them, and each has one line there until it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    """One of the five fields: its name in errors, and the values it may have."""

    key: str
    label: str
    lowest: int
    highest: int  # the highest number that may be written
    last: int  # the last of the values that `*` means and that `a/n` runs to
    names: tuple[str, ...] = ()
    names_from: int = 0

    @property
    def allowed(self) -> str:
        names = f", names {self.names[0]}-{self.names[-1]}" if self.names else ""
        sunday = " (0 and 7 are Sunday)" if self.highest == 7 else ""
        return (
            f"allowed: numbers {self.lowest}-{self.highest}{sunday}{names}, *, lists a,b, "
            "ranges a-b with a <= b, steps */n, a/n, a-b/n"
        )


MINUTE = FieldKind("minute", "minute", 0, 59, 59)
HOUR = FieldKind("hour", "hour", 0, 23, 23)
DAY_OF_MONTH = FieldKind("day_of_month", "day of month", 1, 31, 31)
MONTH = FieldKind("month", "month", 1, 12, 12, _MONTHS, 1)
DAY_OF_WEEK = FieldKind("day_of_week", "day of week", 0, 7, 6, _WEEKDAYS, 0)
FIELDS = (MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)

_FIVE = "allowed: five fields (minute, hour, day of month, month, day of week) or one of " + ", ".join(ALIASES)

# Pattern (of a whole item) → what it is called. They are known elsewhere, so a plain "not a number" would not do.
_OTHER_FORMS = (
    (re.compile(r"l(-[0-9]+)?", re.IGNORECASE), "L (the last day)"),
    (re.compile(r"(l|[0-9]+)w|w[0-9]+", re.IGNORECASE), "W (the nearest working day)"),
    (re.compile(r"l[0-9a-z]+|[0-9a-z]+l", re.IGNORECASE), "L (the last such weekday)"),
    (re.compile(r"[0-9a-z]+#[0-9a-z,]+", re.IGNORECASE), "# (the n-th such weekday)"),
    (re.compile(r"h(\([^)]*\))?(/.*)?", re.IGNORECASE), "H (a value chosen by the task's ID)"),
    (re.compile(r"r(\([^)]*\))?(/.*)?", re.IGNORECASE), "R (a value chosen at random)"),
    (re.compile(r".*~.*"), "~ (a value chosen at random)"),
    (re.compile(r"\?"), "? (no value)"),
)
_LONG_NAMES = re.compile(
    r"january|february|march|april|june|july|august|september|october|november|december|"
    r"(?:sun|mon|tues|wednes|thurs|fri|satur)day",
    re.IGNORECASE,
)
_ITEM = re.compile(r"(?P<first>\*|[0-9A-Za-z]+)(?:-(?P<end>[0-9A-Za-z]+))?(?:/(?P<step>[0-9]+))?")


@dataclass(frozen=True, slots=True)
class CronField:
    """The values of one field as bits (bit n for the value n; Sunday is bit 0), and whether its text is a star."""

    bits: int
    star: bool

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(value for value in range(self.bits.bit_length()) if self.bits >> value & 1)


def parse_fields(expression: str) -> tuple[CronField, ...]:
    """The five fields of an expression, in the order of `FIELDS`. Raises ScheduleError (`cron`, `cron.minute`, …)."""
    if len(expression) > LONGEST:
        raise ScheduleError("cron", f"has {len(expression)} characters; allowed: {LONGEST} at most")
    for character in expression.strip("\r\n"):  # A text of several lines in a file ends with a line break.
        if not (" " <= character <= "~" or character == "\t"):
            raise ScheduleError("cron", f"holds {character!a}; allowed: ASCII letters, digits, signs, spaces and tabs")
    texts = _split(expression)
    return tuple(_parse_field(kind, text) for kind, text in zip(FIELDS, texts, strict=True))


def _split(expression: str) -> list[str]:
    texts = expression.split()
    if not texts:
        raise ScheduleError("cron", f"is empty; {_FIVE}")
    if texts[0].startswith("@"):
        alias = ALIASES.get(texts[0].lower()) if len(texts) == 1 else None
        if alias is None:
            more = "; for a fixed distance use every_s" if texts[0].lower() == "@every" else ""
            raise ScheduleError("cron", f"{_shown(expression)} is not a known alias{more}; {_FIVE}")
        texts = alias.split()
    if len(texts) in (6, 7):
        also = "seconds" if len(texts) == 6 else "seconds and years"
        raise ScheduleError("cron", f"has {len(texts)} fields; {also} cannot be given; {_FIVE}")
    if len(texts) != len(FIELDS):
        raise ScheduleError("cron", f"has {len(texts)} field{'s' if len(texts) > 1 else ''}; {_FIVE}")
    return texts


def _parse_field(kind: FieldKind, text: str) -> CronField:
    bits = 0
    for item in text.split(","):
        bits |= _parse_item(kind, item)
    return CronField(bits, star=text.startswith("*"))


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
        raise _refusal(kind, item, "ranges around the end are not accepted in this release")
    return _range_bits(kind, low, high, _step(kind, step, item))


def _range_bits(kind: FieldKind, low: int, high: int, step: int) -> int:
    bits = 0
    for value in range(low, high + 1, step):
        bits |= 1 << (0 if kind is DAY_OF_WEEK and value == 7 else value)
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
    for pattern, called in _OTHER_FORMS:
        if pattern.fullmatch(item):
            return f"{called} is not accepted in this release"
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

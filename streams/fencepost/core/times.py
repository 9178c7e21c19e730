"""Points in time and durations: between text and numbers.

A point in time is an integer: milliseconds since the epoch, UTC, within the years 1970 to 9999. A duration is a float:
seconds. Texts for points in time are RFC 3339 (https://www.rfc-editor.org/rfc/rfc3339); what the text must hold beyond
that is said at each function. Every refusal is a `ValueError` that says what is wrong and what is allowed.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MAX_S = 253_402_300_799  # 9999-12-31T23:59:59Z
MAX_MS = MAX_S * 1000 + 999
MAX_DURATION_S = 36_525 * 86_400.0  # a hundred years

_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)
_TEXT_LIMIT = 64
_RFC3339 = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]"
    r"(?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.(?P<fraction>[0-9]+))?"
    r"(?P<offset>[Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION_PARTS = re.compile("".join(rf"(?:(?P<{unit}>[0-9]+(?:\.[0-9]+)?){unit})?" for unit in _UNITS_S))
_BARE_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def parse_rfc3339(text: str) -> int:
    """Milliseconds since the epoch of an RFC 3339 time such as `2026-11-30T10:11:04.5+01:00`.

    The offset (`Z`, `+01:00`) is required: a wall time alone names no point in time. Digits beyond the millisecond are
    cut off. The leap second `:60` is refused, because counted milliseconds have no place for it.
    Raises ValueError.
    """
    if not isinstance(text, str):
        raise ValueError(f"a time is a text such as 2026-11-30T10:11:04Z, not {type(text).__name__}")
    what = shown(text)
    match = _RFC3339.fullmatch(text) if len(text) <= _TEXT_LIMIT else None
    if match is None:
        raise ValueError(
            f"{what} is not an RFC 3339 time; allowed: YYYY-MM-DDTHH:MM:SS, then a fraction of a second if wanted, "
            "then an offset (Z, +01:00, -05:00)"
        )
    offset = match["offset"]
    if offset is None:
        raise ValueError(f"{what} has no offset; end it with Z (UTC) or with one such as +01:00")
    try:
        local = datetime.fromisoformat(f"{match['date']}T{match['time']}")
    except ValueError as error:
        raise ValueError(f"{what} names no real time: {_why_not_a_time(match, error)}") from error
    at_s = (local - _EPOCH) // _SECOND - _offset_s(offset, what)
    at_ms = at_s * 1000 + int(((match["fraction"] or "") + "000")[:3])
    if not 0 <= at_ms <= MAX_MS:
        raise ValueError(f"{what} is outside 1970-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z")
    return at_ms


@lru_cache(maxsize=4096)
def format_ms(at_ms: int) -> str:
    """RFC 3339 in UTC with milliseconds: `2026-11-30T10:11:04.123Z`. Raises ValueError outside 1970 to 9999."""
    return f"{_utc_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


def format_ms_in(at_ms: int, zone_name: str) -> str:
    """RFC 3339 with the offset that the zone has at that time: `2026-03-08T03:00:00-04:00`.

    The fraction is written only where it is not zero. An offset with seconds, as a few zones had until 1972, is given
    in whole minutes and the wall time with it, since RFC 3339 has no seconds there: the point in time stays the same.
    Raises ValueError: a point outside 1970 to 9999 (in UTC or in the zone), an unknown zone.
    """
    _require_in_range(at_ms)
    try:
        zone = ZoneInfo(zone_name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"{shown(zone_name)} is not a known time zone; allowed: names such as Europe/Berlin"
        ) from error
    try:
        local = datetime.fromtimestamp(at_ms // 1000, zone)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{format_ms(at_ms)} lies beyond the year 9999 in {zone_name}") from error
    offset = local.utcoffset() or timedelta(0)
    offset_min = round(offset / timedelta(minutes=1))
    wall = local.replace(tzinfo=None) - offset + timedelta(minutes=offset_min)
    sign = "-" if offset_min < 0 else "+"
    hours, minutes = divmod(abs(offset_min), 60)
    fraction = f".{at_ms % 1000:03d}" if at_ms % 1000 else ""
    return f"{wall.isoformat(timespec='seconds')}{fraction}{sign}{hours:02d}:{minutes:02d}"


def parse_duration(value: str | float) -> float:
    """Seconds of a duration: `"250ms"`, `"10s"`, `"5m"`, `"1h30m"`, `"2d"`; a number, also as text, is seconds.

    Units are d, h, m, s and ms, each at most once and the larger first; numbers may have a decimal point.
    Raises ValueError: anything else, and what is negative, not finite or longer than 36525 days.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(
            f"a duration is a number of seconds or a text such as 10s or 1h30m, not {type(value).__name__}"
        )
    duration_s = _duration_text_s(value) if isinstance(value, str) else _number_s(value)
    if math.isnan(duration_s) or duration_s < 0:
        raise ValueError(f"{shown(value)} is not a duration; allowed: 0 seconds to 36525 days")
    if duration_s > MAX_DURATION_S:
        raise ValueError(f"{shown(value)} is too long; allowed: 0 seconds to 36525 days")
    return duration_s


def shown(value: object) -> str:
    """A value as it may stand in a message: short, whatever it is."""
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a number of more than 30 digits"  # Python refuses to write out thousands of digits.
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _duration_text_s(text: str) -> float:
    trimmed = text.strip(" ")
    if len(trimmed) <= _TEXT_LIMIT:
        if _BARE_NUMBER.fullmatch(trimmed):
            return float(trimmed)
        match = _DURATION_PARTS.fullmatch(trimmed)
        if trimmed and match is not None:
            # Summed in the order of the units, so that equal texts give equal floats.
            return math.fsum(float(match[unit]) * unit_s for unit, unit_s in _UNITS_S.items() if match[unit])
    raise ValueError(
        f"{shown(text)} is not a duration; allowed: seconds as a number, or numbers with units, the larger first: "
        "d, h, m, s, ms (10s, 1h30m, 250ms)"
    )


def _number_s(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _offset_s(offset: str, what: str) -> int:
    if offset in "Zz":
        return 0
    hours, minutes = int(offset[1:3]), int(offset[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError(f"{what} has the offset {offset}; allowed: -23:59 to +23:59")
    offset_s = hours * 3600 + minutes * 60
    return -offset_s if offset[0] == "-" else offset_s


def _why_not_a_time(match: re.Match[str], error: ValueError) -> str:
    if match["time"].endswith(":60"):
        return "a leap second cannot be given; use the second before or after it"
    return str(error)


@lru_cache(maxsize=16_384)
def _utc_second(at_s: int) -> str:
    # Cached by the second: the hot path formats the same few seconds over and over, in thousands of milliseconds.
    _require_in_range(at_s * 1000)
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None).isoformat()


def _require_in_range(at_ms: int) -> None:
    if not 0 <= at_ms <= MAX_MS:
        raise ValueError(f"{shown(at_ms)} ms since the epoch is outside 1970-01-01 to 9999-12-31 (0 to {MAX_MS})")

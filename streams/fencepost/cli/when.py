"""Times that options give: a point in time, or how long ago."""

from __future__ import annotations

import time

from fencepost.cli.failures import BadInput
from fencepost.core.times import parse_duration, parse_rfc3339, shown


def when_ms(option: str, text: str) -> int:
    """Milliseconds of an RFC 3339 time, or of a duration such as 10m before now. Raises BadInput; the future too."""
    now_ms = time.time_ns() // 1_000_000
    try:
        at_ms = parse_rfc3339(text) if text[4:5] == "-" else now_ms - round(parse_duration(text) * 1000)
    except ValueError as error:
        allowed = "a time such as 2026-11-30T10:11:04Z, or how long ago: 10m, 2d"
        raise BadInput(f"{option}: {error} (allowed: {allowed})") from error
    if at_ms > now_ms:
        raise BadInput(f"{option}: {shown(text)} lies in the future")
    if at_ms < 0:
        raise BadInput(f"{option}: {shown(text)} ago lies before 1970")
    return at_ms

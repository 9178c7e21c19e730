"""Which keys a schedule's object may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fencepost.core.schedule.errors import ScheduleError


def require_only(body: Mapping[str, Any], *, required: str, optional: str | None = None) -> None:
    """Raises ScheduleError for a missing key and for one that is not known."""
    allowed = (required,) if optional is None else (required, optional)
    require_known(body, "schedule", allowed)
    if required not in body:
        raise ScheduleError(required, f"is missing; allowed here: {', '.join(allowed)}")


def require_known(body: Mapping[str, Any], field: str, allowed: Iterable[str]) -> None:
    """Raises ScheduleError, naming `field`, for a key that is not among `allowed`."""
    known = tuple(allowed)
    for key in body:
        if key not in known:
            raise ScheduleError(field, f"unknown key {str(key)[:40]!r}; allowed here: {', '.join(known)}")

"""The schedule as it stands in a definition: one of three kinds of object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.core.schedule.cron import Cron
from fencepost.core.schedule.errors import ScheduleError
from fencepost.core.schedule.every import Every
from fencepost.core.schedule.once import Once

Schedule = Cron | Every | Once

_FORMS = '{"cron": …, "time_zone": …}, {"every_s": …, "anchor": …} or {"at": …}'


def schedule_from_json(body: object) -> Schedule:
    """The schedule an object describes; which kind it is follows from the key `cron`, `every_s` or `at`.

    Raises ScheduleError.
    """
    if not isinstance(body, Mapping):
        raise ScheduleError("schedule", f"must be an object, not {type(body).__name__}; allowed: {_FORMS}")
    kinds = [key for key in ("cron", "every_s", "at") if key in body]
    if len(kinds) != 1:
        given = "none of cron, every_s, at is given" if not kinds else f"{' and '.join(kinds)} are given together"
        raise ScheduleError("schedule", f"{given}; allowed: {_FORMS}")
    return _from_json(kinds[0], body)


def _from_json(kind: str, body: Mapping[str, Any]) -> Schedule:
    if kind == "cron":
        return Cron.from_json(body)
    return Every.from_json(body) if kind == "every_s" else Once.from_json(body)

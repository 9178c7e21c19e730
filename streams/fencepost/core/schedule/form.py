"""The schedule as it stands in a definition: one of three kinds of object, or a list of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.core.schedule.adjusted import KEYS, Adjusted, adjusted_from_json
from fencepost.core.schedule.cron import Cron
from fencepost.core.schedule.errors import ScheduleError
from fencepost.core.schedule.every import Every
from fencepost.core.schedule.once import Once
from fencepost.core.schedule.several import MOST, Several, several

Schedule = Cron | Every | Once | Adjusted | Several

_FORMS = (
    '{"cron": …, "time_zone": …}, {"every_s": …, "anchor": …} or {"at": …}, each with start, end, jitter_s, calendar; '
    "or a list of such"
)


def schedule_from_json(body: object) -> Schedule:
    """The schedule an object (or a list of objects) describes; its kind follows from the key `cron`, `every_s` or `at`.

    Raises ScheduleError.
    """
    if not isinstance(body, list):
        return _one(body)
    if not 1 <= len(body) <= MOST:
        raise ScheduleError("schedule", f"has {len(body)} schedules; allowed: 1 to {MOST}")
    return several([_one(item) for item in body])


def _one(body: object) -> Cron | Every | Once | Adjusted:
    if not isinstance(body, Mapping):
        raise ScheduleError("schedule", f"must be an object, not {type(body).__name__}; allowed: {_FORMS}")
    kinds = [key for key in ("cron", "every_s", "at") if key in body]
    if len(kinds) != 1:
        given = "none of cron, every_s, at is given" if not kinds else f"{' and '.join(kinds)} are given together"
        raise ScheduleError("schedule", f"{given}; allowed: {_FORMS}")
    schedule = _plain(kinds[0], {key: value for key, value in body.items() if key not in KEYS})
    around = {key: value for key, value in body.items() if key in KEYS and value is not None}
    return adjusted_from_json(schedule, around) if around else schedule


def _plain(kind: str, body: Mapping[str, Any]) -> Cron | Every | Once:
    if kind == "cron":
        return Cron.from_json(body)
    return Every.from_json(body) if kind == "every_s" else Once.from_json(body)

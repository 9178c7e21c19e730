"""The refusal of a schedule."""

from __future__ import annotations


class ScheduleError(ValueError):
    """A schedule that cannot be accepted.

    `field` names what is wrong: `cron` (the whole expression), `cron.second`, `cron.minute`, `cron.hour`,
    `cron.day_of_month`, `cron.month`, `cron.day_of_week`, `cron.year`, `time_zone`, `every_s`, `anchor`, `at`,
    `start`, `end`, `jitter_s`, `calendar`, `calendar.country`, …, or `schedule` (the object itself).
    `message` says why and what is allowed.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message

    def __reduce__(self) -> tuple[type[ScheduleError], tuple[str, str]]:
        return ScheduleError, (self.field, self.message)

"""The refusal of the machine."""

from __future__ import annotations


class IllegalEvent(Exception):
    """An event that cannot happen to a task as it stands. Nothing was changed."""

    def __init__(self, task: str, status: str, event: str, why: str) -> None:
        super().__init__(f"{task!r} is {status}: {event} is not possible ({why})")
        self.task = task
        self.status = status
        self.event = event
        self.why = why

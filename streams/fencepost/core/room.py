"""What has room in the state record of a task, which has 4 KiB at most: what is larger gets a record of its own."""

from __future__ import annotations

from typing import Final

STATE_WORK_BYTES: Final = 480  # of a request as JSON: payload, headers, trigger ID, where it comes from


def needs_own_record(size: int, task: str) -> bool:
    """Whether a request of so many bytes stays out of the state, which also holds what JSON adds to the task's ID."""
    return size + escapes(task) > STATE_WORK_BYTES


def escapes(text: str) -> int:
    """Bytes that JSON adds to an ID, a cycle or a key: these have no other characters that are escaped."""
    return text.count('"') + text.count("\\")

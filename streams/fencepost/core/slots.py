"""Slots: when the next one is, and what becomes of those that have come due.

The next slot is stored and only ever moves on from a slot, so neither a restart nor a takeover repeats or skips one.
Whatever the number of slots that went by, the work is the same: one may run, the others are one record.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from fencepost.core.admission import admit
from fencepost.core.commands import Command
from fencepost.core.dependents import tell_missed
from fencepost.core.making import armed_slot, fired_slot, new_history, new_work, with_state
from fencepost.core.schedule import Schedule
from fencepost.core.task import Definition, Task, TaskState
from fencepost.core.times import format_ms

ON_TIME_MS: Final = 1000  # so late a slot is on time: its owner was busy for a moment, nobody missed it
COUNTED: Final = 1_000_000  # slots of one series; beyond it the record says `count_at_least`
_FINGERPRINT_CHARS: Final = 64


def fire_slots(task: Task, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """Decide on every slot that is due: the newest runs if it is not too late, the older ones were missed."""
    definition = task.definition
    first_ms = task.state.next_slot_ms
    if first_ms is None or first_ms > now_ms or definition is None or definition.schedule is None:
        return task, ()
    newest_ms = _newest(definition.schedule, first_ms, now_ms)
    if now_ms - newest_ms > max(definition.catch_up_s * 1000, ON_TIME_MS):
        return miss_slots(task, definition.schedule, now_ms, "nobody ran")
    missed: tuple[Command, ...] = ()
    if newest_ms > first_ms:
        missed = _series(definition.schedule, first_ms, newest_ms - 1, "nobody ran", now_ms)
        missed += tell_missed(task, first_ms, newest_ms - 1)
    seq = task.state.next_seq
    task = _move_on(task, definition.schedule, newest_ms, seq + 1)
    slot = new_work(seq, None, newest_ms, 0, now_ms, priority=definition.priority)
    task, commands = admit(task, definition, slot, now_ms, recorded=False)
    return task, missed + commands


def miss_slots(task: Task, schedule: Schedule, now_ms: int, cause: str) -> tuple[Task, tuple[Command, ...]]:
    """Every slot that is due counts as missed."""
    first_ms = task.state.next_slot_ms
    if first_ms is None or first_ms > now_ms:
        return task, ()
    newest_ms = _newest(schedule, first_ms, now_ms)
    missed = _series(schedule, first_ms, newest_ms, cause, now_ms)
    missed += tell_missed(task, first_ms, newest_ms)
    return _move_on(task, schedule, newest_ms, task.state.next_seq), missed


def arm(state: TaskState, definition: Definition, from_ms: int) -> TaskState:
    """The state with the schedule's next slot after `from_ms` and after every slot that was decided on.

    An unchanged schedule is left alone. A one-shot is armed for its time even if that is past: whether it still runs is
    for catch-up to say.
    """
    schedule = definition.schedule
    fingerprint = None if schedule is None else fingerprint_of(schedule)
    if fingerprint == state.schedule_fingerprint:
        return state
    if schedule is not None and schedule.one_shot:
        from_ms = -1
    next_ms = None if schedule is None else schedule.next_after(max(from_ms, state.last_slot_ms))
    return armed_slot(state, next_ms, fingerprint)


@lru_cache(maxsize=65_536)
def fingerprint_of(schedule: Schedule) -> str:
    """Tells a changed schedule from the same one; hashed where it is long, for the sake of the state record.

    Cached so that tasks with one schedule share one text.
    """
    text = schedule.fingerprint
    if len(text) <= _FINGERPRINT_CHARS:
        return text
    return f"blake2b {blake2b(text.encode(), digest_size=16).hexdigest()}"


def _newest(schedule: Schedule, first_ms: int, now_ms: int) -> int:
    # The stored slot stays one even if new zone data say otherwise: a takeover neither repeats nor skips it.
    return schedule.latest_at_or_before(now_ms, first_ms) or first_ms


def _move_on(task: Task, schedule: Schedule, newest_ms: int, next_seq: int) -> Task:
    return with_state(task, fired_slot(task.state, schedule.next_after(newest_ms), newest_ms, next_seq))


def _series(schedule: Schedule, first_ms: int, until_ms: int, cause: str, now_ms: int) -> tuple[Command, ...]:
    """One record for the slots from `first_ms` to `until_ms`."""
    counted = min(COUNTED, schedule.countable)
    count = 1 + schedule.count(first_ms, until_ms, counted)
    fields: dict[str, Any] = {"cause": cause}
    fields["count_at_least" if count > counted else "count"] = min(count, counted)
    fields["first"] = format_ms(first_ms)
    fields["last"] = format_ms(_newest(schedule, first_ms, until_ms))
    return (new_history("missed", None, now_ms, fields),)

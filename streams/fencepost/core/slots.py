"""Slots: when the next one is, and what becomes of those that have come due.

The next slot is stored and only ever moves on from a slot, so neither a restart nor a takeover repeats or skips one.
Whatever the number of slots that went by, the work is the same: one may run, the others are one record.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

from fencepost.core.admission import admit
from fencepost.core.commands import Command
from fencepost.core.dependents import tell_missed
from fencepost.core.making import armed_slot, caught_up, fired_slot, new_history, new_work, with_state
from fencepost.core.owed import COUNTED, drop_owed, owe, series
from fencepost.core.schedule import Schedule
from fencepost.core.task import CatchUp, Definition, OnResume, Task, TaskState

__all__ = ["COUNTED", "ON_TIME_MS", "arm", "fingerprint_of", "fire_slots", "miss_slots", "resume_slots"]

ON_TIME_MS: Final = 1000  # so late a slot is on time: its owner was busy for a moment, nobody missed it
_FINGERPRINT_CHARS: Final = 64


def fire_slots(task: Task, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """Decide on every slot that is due: the newest runs if it is not too late, the older ones were missed."""
    definition = task.definition
    first_ms = task.state.next_slot_ms
    if first_ms is None or first_ms > now_ms or definition is None or definition.schedule is None:
        return task, ()
    newest_ms = _newest(definition.schedule, first_ms, now_ms)
    if definition.catch_up is CatchUp.NONE:
        window_ms = ON_TIME_MS
    else:
        window_ms = max(round(definition.catch_up_s * 1000), ON_TIME_MS)
    if definition.catch_up is CatchUp.ALL and (newest_ms > first_ms or _follows(task, definition.schedule, first_ms)):
        return _catch_up(task, definition.schedule, first_ms, newest_ms, now_ms - window_ms, now_ms)
    if now_ms - newest_ms > window_ms:
        return miss_slots(task, definition.schedule, now_ms, "nobody ran")
    return _run_newest(task, definition, definition.schedule, first_ms, newest_ms, "nobody ran", now_ms)


def resume_slots(task: Task, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """What becomes of the slots of a pause, as whoever paused the task said."""
    definition, first_ms = task.definition, task.state.next_slot_ms
    if definition is None or definition.schedule is None or first_ms is None or first_ms > now_ms:
        return task, ()
    schedule, on_resume = definition.schedule, task.state.on_resume
    if on_resume is OnResume.MISS:
        return miss_slots(task, schedule, now_ms, "paused")
    newest_ms = _newest(schedule, first_ms, now_ms)
    if on_resume is OnResume.LATEST:
        return _run_newest(task, definition, schedule, first_ms, newest_ms, "paused", now_ms)
    return _catch_up(task, schedule, first_ms, newest_ms, -1, now_ms)


def _run_newest(
    task: Task, definition: Definition, schedule: Schedule, first_ms: int, newest_ms: int, cause: str, now_ms: int
) -> tuple[Task, tuple[Command, ...]]:
    missed = _series(task, schedule, first_ms, newest_ms - 1, cause, now_ms) if newest_ms > first_ms else ()
    seq = task.state.next_seq
    task = _move_on(task, schedule, newest_ms, seq + 1)
    slot = new_work(seq, None, newest_ms, 0, now_ms, priority=definition.priority)
    task, commands = admit(task, definition, slot, now_ms, recorded=False)
    return task, missed + commands


def _follows(task: Task, schedule: Schedule, first_ms: int) -> bool:
    """Whether a slot comes right behind those that are still owed. Between them slots of a pause may lie, say."""
    owed = task.state.catching
    return owed is not None and schedule.next_after(owed.until_ms) == first_ms


def _catch_up(
    task: Task, schedule: Schedule, first_ms: int, newest_ms: int, since_ms: int, now_ms: int
) -> tuple[Task, tuple[Command, ...]]:
    """All slots that are due run, behind those that are still owed; those before `since_ms` were missed."""
    dropped: tuple[Command, ...] = ()
    if not _follows(task, schedule, first_ms):
        task, dropped = drop_owed(task, "nobody ran", now_ms)
    owed = task.state.catching
    oldest_ms = first_ms if owed is None else owed.next_ms
    begin_ms = oldest_ms if oldest_ms >= since_ms else schedule.next_after(since_ms - 1)
    task = _move_on(task, schedule, newest_ms, task.state.next_seq)
    if begin_ms is None or begin_ms > newest_ms:
        missed = _series(task, schedule, oldest_ms, newest_ms, "nobody ran", now_ms)
        return with_state(task, caught_up(task.state, None, task.state.next_seq)), (*dropped, *missed)
    missed = _series(task, schedule, oldest_ms, begin_ms - 1, "nobody ran", now_ms) if begin_ms > oldest_ms else ()
    task, told = owe(task, schedule, begin_ms, newest_ms, max(begin_ms, first_ms), now_ms)
    return task, (*dropped, *missed, told)


def miss_slots(task: Task, schedule: Schedule, now_ms: int, cause: str) -> tuple[Task, tuple[Command, ...]]:
    """Every slot that is due counts as missed."""
    first_ms = task.state.next_slot_ms
    if first_ms is None or first_ms > now_ms:
        return task, ()
    newest_ms = _newest(schedule, first_ms, now_ms)
    missed = _series(task, schedule, first_ms, newest_ms, cause, now_ms)
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


def _series(
    task: Task, schedule: Schedule, first_ms: int, until_ms: int, cause: str, now_ms: int
) -> tuple[Command, ...]:
    """One record for the slots from `first_ms` to `until_ms`, and one word to each task that runs after this one."""
    told = new_history("missed", None, now_ms, {"cause": cause, **series(schedule, first_ms, until_ms)})
    return (told, *tell_missed(task, first_ms, until_ms))

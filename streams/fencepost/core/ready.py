"""Whether a task can start a run now, and if not, when to look again."""

from __future__ import annotations

from fencepost.core.limits import due_ms
from fencepost.core.links import Links
from fencepost.core.owed import owes
from fencepost.core.task import BACKOFF, IDLE, RUNNING, Task
from fencepost.core.time_limits import expired, first_limit_ms


def startable(task: Task, now_ms: int) -> bool:
    """Whether `Started` is legal now: defined, not paused, nothing on, settled, and work that is due.

    A pause holds back every start, the retry of a run that began before it too.
    """
    definition = task.definition
    if definition is not None:
        if definition.broadcast:
            return _may_broadcast(task, now_ms)
        if definition.limit is not None:
            permit = task.state.permit
            if permit is None or not permit.granted or permit.epoch:
                return False
    return wants_to_start(task, now_ms)


def _may_broadcast(task: Task, now_ms: int) -> bool:
    """One request is out at a time; first of all, whoever of it is to be asked again is."""
    links = task.links
    if links is not None and task.state.status is IDLE:
        if links.asks_again:
            return not task.state.paused
        if links.broadcasting:
            return False
    return wants_to_start(task, now_ms)


def wants_to_start(task: Task, now_ms: int) -> bool:
    """Whether the task could start but for its limit."""
    state = task.state
    if state.status is IDLE:
        if not task.waiting and not owes(state):
            return False
    elif state.status is RUNNING or (state.retry_at_ms or 0) > now_ms:
        return False
    definition = task.definition
    if definition is None or state.paused or state.not_before_ms > now_ms:
        return False
    if state.place is not None and state.place.away:
        return False
    if task.links is not None and definition.fans_out and not task.waiting and _is_out(task.links):
        return False  # what is owed goes one by one
    if definition.start_timeout_s is None and definition.total_timeout_s is None:
        return True
    return not expired(task, now_ms)


def _is_out(links: Links) -> bool:
    return any(not fan.failed for fan in links.fans)


def why_not_startable(task: Task, now_ms: int) -> str | None:
    """The reason in words, for people; None: it can start."""
    if startable(task, now_ms):
        return None
    state = task.state
    if state.status is RUNNING:
        return "a run is on"
    if task.definition is None:
        return "it is not defined"
    if state.place is not None and state.place.away:
        return "it is in another pool"
    if state.paused:
        return "it is paused"
    if state.not_before_ms > now_ms:
        return "it settles after the last run"
    if expired(task, now_ms):
        return "its time is over"
    if wants_to_start(task, now_ms):
        return "its last broadcast is not over" if task.definition.broadcast else "its limit is reached"
    return "nothing is due"


def wake_at_ms(task: Task, now_ms: int = -1) -> int | None:
    """When a `Woken` event, or a look at `startable`, matters next; None: never by itself.

    Slots and delayed work count until a `Woken` has dealt with them, even when their time has passed. The end of a
    backoff or settle is only a time to look again, so it counts while it is later than `now_ms`: a task that is
    startable and waits for a free runner has no timer for it.
    """
    if task.group is None:
        return _own_wake_at_ms(task, now_ms)
    times = (_own_wake_at_ms(task, now_ms), due_ms(task.group))
    return min((at_ms for at_ms in times if at_ms is not None), default=None)


def _own_wake_at_ms(task: Task, now_ms: int) -> int | None:
    state = task.state
    if task.definition is None:
        return None
    at_ms = task.delayed[0].due_ms if task.delayed else None
    if task.definition.start_timeout_s is not None or task.definition.total_timeout_s is not None:
        limit_ms = first_limit_ms(task)
        if limit_ms is not None and (at_ms is None or limit_ms < at_ms):
            at_ms = limit_ms
    if state.paused:
        return at_ms
    if state.next_slot_ms is not None and (at_ms is None or state.next_slot_ms < at_ms):
        at_ms = state.next_slot_ms
    start_ms = _start_at_ms(task)
    if start_ms > max(now_ms, 0) and (at_ms is None or start_ms < at_ms):
        return start_ms
    return at_ms


def _start_at_ms(task: Task) -> int:
    """From when the next start is possible, as far as only time is missing; -1: not for time to say."""
    state = task.state
    if state.status is BACKOFF:
        return max(state.retry_at_ms or 0, state.not_before_ms)
    return state.not_before_ms if state.status is IDLE and (task.waiting or owes(state)) else -1

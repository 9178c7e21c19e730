"""What can happen to a task. The machine takes one of these, never anything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fencepost.core.attendance import Attendance
from fencepost.core.links import Shard
from fencepost.core.signals import Signal
from fencepost.core.task import Cause, Definition, NodeFenced, OnResume, Outcome


@dataclass(frozen=True, slots=True)
class Trigger:
    """A request to run the task, as read from the triggers topic and checked at the edge."""

    task: str
    id: str | None = None  # deduplication
    payload: Any = None
    run_at_ms: int | None = None
    priority: int | None = None
    headers: dict[str, str] | None = None
    offset: int = -1
    arrived_ms: int = 0  # as the record's time stamp says; 0: now, and so is what lies in the future
    size: int = 0  # bytes of its body as JSON, and so of payload and headers at most
    delay_ms: int | None = None  # counted from the arrival; not together with run_at_ms
    replays: int = 0  # how often it was sent again from the dead letters
    cycle: str | None = None  # the cycle it belongs to; None: it begins one
    upstream: dict[str, Any] | None = None  # what the run is told of the tasks it runs after
    shard: Shard | None = None  # which part of a fanned out request it is
    slot_ms: int | None = None  # of a backfill that runs side by side: the slot
    asked_by: str | None = None  # and its name


@dataclass(frozen=True, slots=True)
class Defined:
    """A definition was made or changed (from the tasks topic, or from code).

    `restored`: it was found while the partition was taken over, so it is news to this lane only. Then nothing goes into
    the history, unless the schedule changed meanwhile, which is armed from the last slot instead of from now.
    """

    definition: Definition
    restored: bool = False


@dataclass(frozen=True, slots=True)
class Deleted:
    """The definition was taken away."""


@dataclass(frozen=True, slots=True)
class Triggered:
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class Woken:
    """A time that the task waits for (`wake_at_ms`) has come: a slot, delayed work, a retry, the end of a settle."""


@dataclass(frozen=True, slots=True)
class Started:
    """A runner is free for the task and the lane decides to start it. Legal only if `startable(task, now)`.

    `worker` is the lane's, and `able` whether it has the task's handler: without it only what a broadcast asks of a
    worker may be started, which then ends. `attendance`: who is there, for a task that broadcasts.
    """

    lane: str
    nonce: str
    lease_ttl_s: float
    worker: str = ""
    able: bool = True
    attendance: Attendance | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A run ended by itself, or after it was asked to stop. Outcome as the runner saw it.

    A run that was asked to stop (`run.stopping`) is recorded as such whatever `outcome` says.
    """

    epoch: int
    outcome: Outcome  # SUCCEEDED, FAILED or TIMED_OUT
    result: Any = None
    error: str | None = None
    spread: float = 0.0  # in [-1, 1]: drawn by the shell for the jitter of the retry
    names: tuple[str, ...] = ()  # of the exception's class and its bases
    exit_code: int | None = None  # of a command
    limit: str | None = None  # TIMED_OUT: by which limit, where it was not the run's own: "heartbeat"
    final: bool = False  # a failure that would be the same again: the attempts that are left are not made


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A run was stopped from outside and is certainly gone. `spread` as in Ended."""

    epoch: int
    cause: Cause
    spread: float = 0.0
    node_fenced: NodeFenced | None = None  # what the command came to that fences the lost worker's node


@dataclass(frozen=True, slots=True)
class Adopted:
    """The own guard still holds the run; it goes on under a new nonce of the same lane."""

    epoch: int
    nonce: str


@dataclass(frozen=True, slots=True)
class Checkpointed:
    epoch: int
    data: Any


@dataclass(frozen=True, slots=True)
class Cancelled:
    """An operator cancels: the run that is on, and what waits unless `waiting` is False."""

    offset: int = -1
    reason: str | None = None
    waiting: bool = True


@dataclass(frozen=True, slots=True)
class Rerun:
    """An operator asks for a past run once more, with what is given here: the log of triggers may be long gone.

    epoch: the run that is repeated, for history; slot_ms: where it was a slot's. payload None: the definition's.
    """

    offset: int = -1
    epoch: int | None = None
    slot_ms: int | None = None
    id: str | None = None  # deduplication, as for triggers
    payload: Any = None
    headers: dict[str, str] | None = None
    priority: int | None = None
    size: int = 0  # bytes of its body as JSON


@dataclass(frozen=True, slots=True)
class Backfilled:
    """An operator wants the slots from `from_ms` to `until_ms`, both included, but those in `left_out`.

    stop: no more of those that are under way are to run instead.
    """

    offset: int = -1
    id: str = ""
    from_ms: int = 0
    until_ms: int = 0
    left_out: tuple[int, ...] = ()  # sorted
    stop: bool = False
    reason: str | None = None
    max_runs: int = 1  # at once


@dataclass(frozen=True, slots=True)
class Paused:
    offset: int = -1
    reason: str | None = None
    on_resume: OnResume = OnResume.MISS  # what becomes of the slots of the pause
    late: bool = False  # it was sent on to a pool, which the task had left, and is back


@dataclass(frozen=True, slots=True)
class Resumed:
    offset: int = -1
    late: bool = False


@dataclass(frozen=True, slots=True)
class Signalled:
    """The owner of another task, `sender`, told this one something, in its transaction."""

    signal: Signal
    offset: int = -1
    sender: str = ""


Event = (
    Defined | Deleted | Triggered | Woken | Started | Ended | Interrupted | Adopted | Checkpointed
    | Cancelled | Rerun | Backfilled | Paused | Resumed | Signalled
)  # fmt: skip

"""What is known of one task: its definition, its state, its current run and what waits for it.

Every record here is frozen and slotted. Times are milliseconds since the epoch (UTC) and end in ``_ms``;
durations are seconds and end in ``_s``. JSON shapes live beside the schemas, in :mod:`fencepost.wire`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from fencepost.core.limits import Group, Limit, Permit
from fencepost.core.links import Links, Origin, When
from fencepost.core.place import Arrival, Place
from fencepost.core.schedule import Schedule


class Status(StrEnum):
    """Where a task stands. One run at a time, so the task has the status of its run."""

    IDLE = "idle"
    RUNNING = "running"
    BACKOFF = "backoff"  # the last attempt failed or was interrupted; `retry_at_ms` says when the next is due


class Outcome(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


# Python finds an enum's member ten times slower than a name, and these are asked for some thirty times a run.
IDLE: Final = Status.IDLE
RUNNING: Final = Status.RUNNING
BACKOFF: Final = Status.BACKOFF
SUCCEEDED: Final = Outcome.SUCCEEDED
CANCELLED: Final = Outcome.CANCELLED
INTERRUPTED: Final = Outcome.INTERRUPTED


class Cause(StrEnum):
    """Why a run was interrupted."""

    HANDOVER = "handover"  # the partition moved and the handover limit passed
    STOPPED = "stopped"  # the worker was told to stop
    LOST = "lost"  # the owner died or was cut off; its lease was waited out
    FENCED = "fenced"  # the own lease ended: the guard stopped the run
    NEIGHBOUR = "neighbour"  # its process had to be killed because of another run


class NodeFenced(StrEnum):
    """What became of the command that fences a lost worker's node."""

    CONFIRMED = "confirmed"  # nothing of that worker runs any more
    FAILED = "failed"
    TIMED_OUT = "timed_out"


class Overlap(StrEnum):
    """What happens to a trigger or slot that arrives while a run of the same task is on."""

    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    BUFFER_ALL = "buffer_all"
    CANCEL = "cancel"
    TERMINATE = "terminate"
    BATCH = "batch"


class CatchUp(StrEnum):
    """Which of the slots run that came due while nobody ran."""

    NONE = "none"
    LATEST = "latest"  # the newest one
    ALL = "all"  # all of them, one after the other, oldest first


class OnResume(StrEnum):
    """Which of the slots run that came due during a pause."""

    MISS = "miss"
    LATEST = "latest"
    ALL = "all"


class OnInterruption(StrEnum):
    """What happens to the request of a run that was interrupted."""

    RETRY = "retry"
    RESUME = "resume"
    SKIP = "skip"


class OnHandover(StrEnum):
    """Whether a run may finish while its partition is given away."""

    FINISH = "finish"
    STOP = "stop"


class Isolation(StrEnum):
    """Whether a run shares a runner process with others."""

    SHARED = "shared"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class PythonHandler:
    """A function of the worker's app, by the name it was registered under."""

    function: str


@dataclass(frozen=True, slots=True)
class CommandHandler:
    """A command, never through a shell; `argv[0]` must be on the worker's allow-list."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None


class Redirects(StrEnum):
    """Where an HTTP handler may be sent on to."""

    SAME_HOST = "same_host"
    ALLOWED_HOSTS = "allowed_hosts"  # any host on the worker's list
    NONE = "none"  # the answer counts as it is


@dataclass(frozen=True, slots=True)
class HttpHandler:
    """An HTTP request. Its host must be on the worker's list of hosts. Ranges of statuses include both ends.

    `headers` go with the request, besides those that name the run. `timeout_s` is for the whole exchange.
    """

    url: str
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    sends_payload: bool = True  # as JSON, if there is one
    success: tuple[tuple[int, int], ...] = ((200, 299),)
    retried: tuple[tuple[int, int], ...] = ((408, 408), (425, 425), (429, 429), (500, 599))  # of the other statuses
    timeout_s: float = 60.0
    redirects: Redirects = Redirects.SAME_HOST


Handler = PythonHandler | CommandHandler | HttpHandler


@dataclass(frozen=True, slots=True)
class Retry:
    """Attempts of one trigger or slot, the first included; the delay before attempt n+1 grows by `factor`.

    delay = min(max_delay_s, delay_s * factor ** (n - 1)), exponent clamped first; then up or down by a share, `jitter`.
    `on` and `never` say which errors are worth another attempt: see `core.retrying`.
    """

    attempts: int = 1
    delay_s: float = 1.0
    factor: float = 2.0
    max_delay_s: float = 3600.0
    jitter: float = 0.1
    on: tuple[str | int, ...] = ()  # nothing: every error but those in `never`
    never: tuple[str | int, ...] = ()


def default_overlap(schedule: Schedule | None) -> Overlap:
    """With a schedule one request waits (a second would come too late to be of use), without one they all do."""
    return Overlap.BUFFER_ALL if schedule is None else Overlap.BUFFER_ONE


@dataclass(frozen=True, slots=True)
class Definition:
    """What can be run. `task` is an ID, or a pattern such as ``invoice/*`` when it was declared in code."""

    task: str
    handler: Handler
    schedule: Schedule | None = None
    retry: Retry = Retry()
    timeout_s: float | None = None
    overlap: Overlap = Overlap.BUFFER_ALL  # what is taken where nothing is said: see default_overlap
    buffer_limit: int = 100
    batch_limit: int = 100  # requests that one run gets at most, under BATCH
    on_interruption: OnInterruption = OnInterruption.RETRY
    on_handover: OnHandover = OnHandover.FINISH
    isolation: Isolation = Isolation.SHARED
    lease_ttl_s: float | None = None  # None: the worker's
    grace_s: float = 5.0  # between asking a run to stop and killing it
    settle_s: float = 0.0  # between the death of one epoch and the start of the next
    max_losses: int = 3
    catch_up_s: float = 3600.0  # a missed slot runs only if it is not older
    catch_up: CatchUp = CatchUp.LATEST
    priority: int = 5  # 0 first, 9 last
    payload: Any = None  # for slots, and for triggers without one
    strict_stop: bool = False
    paused: bool = False  # defined as paused
    description: str = ""
    start_timeout_s: float | None = None  # a request that waited longer than this is skipped
    heartbeat_s: float | None = None  # a run that says nothing for so long is timed out
    total_timeout_s: float | None = None  # over all attempts of a request, from the start of the first
    after: tuple[str, ...] = ()  # tasks it runs after, once for each of their cycles
    when: When = When.ALL_SUCCEEDED  # which ends of theirs it waits for
    propagate_failure: bool = True  # False: tasks that run after this one go on as if it had succeeded
    shards: int = 0  # each request becomes so many runs of IDs of their own
    map: str = ""  # each request becomes a run for each item of this task's result, or of its payload
    chunk: int = 1  # items of `map` for each run
    shard_of: str = ""  # a shard, defined by the owner of this task
    broadcast: bool = False  # each request becomes a run on every worker
    pool: str | None = None  # only workers of this pool run it
    limit: Limit | None = None  # shared with all tasks that name its key
    arrival: Arrival | None = None  # only in a pool: what the task brought along

    @property
    def fans_out(self) -> bool:
        """Whether its requests are run by shards."""
        return bool(self.shards or self.map or self.broadcast)


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one run of a request ended that was tried again."""

    epoch: int
    outcome: Outcome
    cause: str | None
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Work:
    """One request on its way to a run: a trigger or a slot. `seq` counts within the task and gives the order."""

    seq: int
    trigger_id: str | None = None  # None: a slot, or a trigger without one
    slot_ms: int | None = None  # nominal fire time; None: a trigger
    due_ms: int = 0  # not before; 0: at once
    arrived_ms: int = 0
    payload: Any = None
    headers: dict[str, str] | None = None
    priority: int = 5
    offset: int = -1  # of the trigger on its partition; -1: none
    attempt: int = 0  # attempts started that count
    losses: int = 0  # runs of it that were lost with their worker
    resumed: bool = False  # whether the next run resumes from the checkpoint
    own_record: bool = False  # too large for the state record: its own record stays until the work ends
    replays: int = 0  # how often it came back from the dead letters
    began_ms: int = 0  # when its first run started; kept only where the task has a total time limit
    past: tuple[Attempt, ...] = ()  # its last runs that were tried again, for its dead letter
    origin: Origin | None = None  # the cycle it belongs to; None: it begins one
    members: tuple[Work, ...] = ()  # the other requests of a batch, which run and end with it
    asked_by: str | None = None  # what asked for it, if no trigger and not the schedule: "rerun of epoch 7"


@dataclass(frozen=True, slots=True)
class Run:
    """The execution that is on. `nonce` is the acquisition it is held under."""

    epoch: int
    attempt: int
    lane: str
    nonce: str
    lease_ttl_s: float
    started_ms: int
    stopping: str | None = None  # "cancelled", "timed_out": it was asked to stop for this reason
    stop_cause: str | None = None  # who asked: "overlap", "deleted", or an operator's words


@dataclass(frozen=True, slots=True)
class LastRun:
    """How the last run ended, for people who look."""

    epoch: int
    outcome: Outcome
    cause: Cause | None
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Owed:
    """Slots of the past that are still to run, from `next_ms` to `until_ms`, oldest first and one at a time."""

    next_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Backfill:
    """Slots of a past range that an operator wants, from `next_ms` to `until_ms`; `done` of them were started.

    max_runs above 1: they run side by side (`core.spread`), and are counted as they end; what is still out when
    `next_ms` has passed `until_ms` is waited for.
    """

    id: str
    next_ms: int
    until_ms: int
    done: int = 0
    max_runs: int = 1
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class TaskState:
    """What the compacted state topic holds of a task under its ID; at most 4 KiB as JSON."""

    task: str
    epoch: int = 0  # the last one given out; only grows
    status: Status = Status.IDLE
    run: Run | None = None
    work: Work | None = None  # what runs, or waits for its next attempt
    retry_at_ms: int | None = None
    not_before_ms: int = 0  # settle: the next run starts no sooner
    next_slot_ms: int | None = None
    last_slot_ms: int = -1  # the newest slot that was decided on (run, skipped, missed): none up to it comes again
    schedule_fingerprint: str | None = None
    paused: bool = False
    pause_reason: str | None = None
    defined_paused: bool = False  # what the definition said of it last, so that a restart does not undo `resume`
    deleted: bool = False  # deleted, and not defined since; a run that was on may still be ending
    last: LastRun | None = None
    trigger_offset: int = -1  # last trigger taken from its partition
    control_offset: int = -1  # last control record taken
    recent_ids: tuple[tuple[str, int], ...] = ()  # (hash of the trigger ID, taken at ms); the last 100 within 24 h
    next_seq: int = 1
    permit: Permit | None = None  # what it asked for under its limit
    place: Place | None = None  # None: it never was in a pool
    catching: Owed | None = None  # slots that were missed and are caught up with
    on_resume: OnResume = OnResume.MISS  # of the pause that is on
    backfill: Backfill | None = None
    cancelled_to: int = -1  # of a shard: no request of its task up to this number starts any more

    @property
    def never_defined(self) -> bool:
        """Whether nothing was ever defined under this ID: there is no state, or just of what other tasks told it."""
        return self == TaskState(self.task, self.epoch, control_offset=self.control_offset, next_seq=self.next_seq)


@dataclass(frozen=True, slots=True)
class Task:
    """Everything the machine needs of a task: definition (None: unknown or deleted), state, work that waits.

    `waiting` may start as soon as nothing else of the task runs, in the order it will (`core.rank`); `delayed`
    waits for its time, earliest first, and counts for the overlap policy only from then on.
    `checkpoint` is what the current or last interrupted run saved. `links`: None where nothing ties it to other tasks.
    """

    state: TaskState
    definition: Definition | None = None
    waiting: tuple[Work, ...] = ()
    checkpoint: Any = None
    delayed: tuple[Work, ...] = ()
    links: Links | None = None
    group: Group | None = None  # where the ID stands for the key of a limit: who holds and waits
    left_out: tuple[int, ...] = ()  # slots that the backfill leaves out

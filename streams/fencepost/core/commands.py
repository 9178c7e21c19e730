"""What the shell must do after a step. Records go into one transaction; acts follow once it was read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fencepost.core.events import Trigger
from fencepost.core.limits import Claim
from fencepost.core.links import Fan, Join, Links
from fencepost.core.signals import Signal
from fencepost.core.task import Attempt, Definition, Run, Work


@dataclass(frozen=True, slots=True)
class History:
    """One event for the runs topic. `fields` holds JSON values only (times already RFC 3339).

    kind: defined, deleted, triggered (only when it waits), started, succeeded, failed, timed_out, cancelled,
    interrupted, skipped, missed, paused, resumed, adopted. The end of a run says what follows: `retry_at` where the
    same work is tried again, `given_up` (with the reason) where it becomes a dead letter, `dropped` (with the reason)
    where it is left out on purpose. `defined` says the schedule where that is another one than before.
    """

    kind: str
    epoch: int | None
    at_ms: int
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PutWork:
    """Work that waits gets a record of its own."""

    work: Work


@dataclass(frozen=True, slots=True)
class DropWork:
    """That record is no longer needed: tombstone."""

    seq: int


@dataclass(frozen=True, slots=True)
class PutCheckpoint:
    data: Any


@dataclass(frozen=True, slots=True)
class DropCheckpoint:
    pass


@dataclass(frozen=True, slots=True)
class PutLeftOut:
    """Slots that a backfill leaves out, in a record of their own."""

    slots_ms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DropLeftOut:
    pass


@dataclass(frozen=True, slots=True)
class Forget:
    """The task was deleted and nothing of it runs: what waits is dropped; the epoch stays in the state."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The work ends as a dead letter: attempts or losses used up."""

    work: Work
    reason: str
    attempts: tuple[Attempt, ...] = ()  # its runs, as far as they are remembered, the last one included
    error: str | None = None  # of the last one


@dataclass(frozen=True, slots=True)
class PutLinks:
    """What ties the task to others changed: its record."""

    links: Links


@dataclass(frozen=True, slots=True)
class DropLinks:
    """Nothing ties the task to others any more: tombstone."""


@dataclass(frozen=True, slots=True)
class PutJoin:
    """A cycle that waits for parents has a record of its own."""

    join: Join


@dataclass(frozen=True, slots=True)
class DropJoin:
    """That record is no longer needed: tombstone."""

    number: int


@dataclass(frozen=True, slots=True)
class PutFan:
    """A request whose shards have not all ended has a record of its own."""

    fan: Fan


@dataclass(frozen=True, slots=True)
class DropFan:
    """That record is no longer needed: tombstone."""

    number: int


@dataclass(frozen=True, slots=True)
class Define:
    """The definition of another task, a shard; None deletes it. A record of the tasks topic in the same transaction."""

    to_task: str
    definition: Definition | None


@dataclass(frozen=True, slots=True)
class Ask:
    """A trigger for another task, a shard: a record of the triggers topic in the same transaction."""

    trigger: Trigger


@dataclass(frozen=True, slots=True)
class PutClaim:
    """Somebody holds or waits under the key that this ID stands for: its record."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class DropClaim:
    """It was given back: tombstone."""

    number: int


@dataclass(frozen=True, slots=True)
class PutGroup:
    """When the next start under the key is due by its rate: the record of that."""

    next_ms: float


@dataclass(frozen=True, slots=True)
class Send:
    """Tell the owner of another task, by a record of the control topic in the same transaction."""

    to_task: str
    signal: Signal
    pool: str | None = None  # the pool in which that owner is; None: whoever has the task, by way of the namespace
    sender: str | None = None  # None: the task of the step


@dataclass(frozen=True, slots=True)
class Hand:
    """Give a pool the task's definition (None: take it away), by a record of its tasks topic."""

    pool: str
    definition: Definition | None


@dataclass(frozen=True, slots=True)
class Launch:
    """Act: start the run, once its RUNNING record was read back."""

    run: Run
    work: Work
    checkpoint: Any


@dataclass(frozen=True, slots=True)
class Stop:
    """Act: ask the run to stop, kill it after `grace_s`."""

    epoch: int
    reason: str
    grace_s: float


Record = (
    History
    | PutWork
    | DropWork
    | PutCheckpoint
    | DropCheckpoint
    | PutLinks
    | DropLinks
    | PutJoin
    | DropJoin
    | PutFan
    | DropFan
    | Define
    | Ask
    | PutLeftOut
    | DropLeftOut
    | Forget
    | GiveUp
    | Send
    | Hand
    | PutClaim
    | DropClaim
    | PutGroup
)
Act = Launch | Stop
Command = Record | Act

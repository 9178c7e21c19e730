"""What ties a task to others: who runs after it, whom it runs after, and the cycles whose parents have not all ended.

A *cycle* names what belongs together: the slot of a scheduled root (``slot:2026-11-30T02:00:00.000Z``), or the run of a
triggered one (``run:TASK/TRIGGER`` or ``run:TASK/EPOCH``). A task that runs after others passes their cycle on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fencepost.core.task import Work

MAX_CHILDREN: Final = 200  # of one task: each is told of every end, in one transaction
MAX_PARENTS: Final = 100
MAX_JOINS: Final = 100  # cycles of one task that wait for parents, or were skipped and may come back
KEPT_RAN: Final = 200
MAX_PATH: Final = 100
MAX_SHARDS: Final = 250  # of one request: all are asked for in one transaction
RESULTS_BYTES: Final = 64 * 1024  # of all parents together, as JSON


class When(StrEnum):
    """Which ends of its parents a task waits for."""

    ALL_SUCCEEDED = "all_succeeded"
    ANY = "any"  # one that succeeded is enough
    ALL_DONE = "all_done"  # however they ended


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `shard` of `shards` of the request `number` of the task `of`, which is told how it ends.

    shards 0: a whole slot of a backfill, which no run is told of as a part of anything.
    worker: of a broadcast, the only one that may run it. attempt, losses: what its request had on another partition.
    """

    of: str
    number: int
    shard: int
    shards: int
    worker: str = ""
    attempt: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request comes from that belongs to a cycle. `path`: the tasks it came through, the root first.

    upstream: what the run is told of each parent: {"outcome": …, "epoch": …, "result": …}.
    """

    cycle: str
    path: tuple[str, ...] = ()
    upstream: dict[str, Any] | None = None
    shard: Shard | None = None  # which part of a request it is that was fanned out


@dataclass(frozen=True, slots=True)
class Done:
    """How a parent's request of the cycle ended, the last time it did. `ok`: the children may go on."""

    parent: str
    outcome: str  # succeeded, failed, timed_out, cancelled, interrupted, skipped
    ok: bool
    epoch: int = 0  # 0: nothing ran
    result: Any = None
    result_dropped: str | None = None
    size: int = 0  # bytes that it came in, and so of the result at most


@dataclass(frozen=True, slots=True)
class Join:
    """A cycle whose parents have not all ended, in a record of its own. `number` grows with the order of opening.

    failed: the task was skipped for it. It is kept in case a parent succeeds after all, when it is replayed.
    """

    number: int
    cycle: str
    opened_ms: int = 0
    done: tuple[Done, ...] = ()
    path: tuple[str, ...] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """How the request of a shard ended, the last time it did."""

    shard: int
    outcome: str
    epoch: int = 0
    result: Any = None
    result_dropped: str | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """One worker that a broadcast asks. `at`: which shard of its it is asked by, TASK/on/AT; `tries`: how often.

    again: the partition moved before it had run, so it is asked once more as soon as it is known where it is by now.
    attempt, losses: of its runs so far.
    """

    worker: str
    at: str
    tries: int = 1
    again: bool = False
    attempt: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Fan:
    """A request whose shards have not all ended, in a record of its own. `number` is the request's `seq`.

    work: the request, without its payload (a broadcast keeps it). failed: all shards ended, and not all succeeded; kept
    in case they do after all, when they are replayed. targets: of a broadcast, the worker of each shard.
    """

    number: int
    shards: int
    opened_ms: int
    work: Work
    done: tuple[ShardEnd, ...] = ()
    failed: bool = False
    place: int | None = None  # of a slot of a backfill: which of the backfill's IDs has it, as its only shard
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True)
class Links:
    """Kept in a record of its own beside the state, also of an ID that is not defined (yet)."""

    children: tuple[str, ...] = ()  # in the order in which they asked
    parents: tuple[str, ...] = ()  # who was asked to tell this task
    ran: tuple[str, ...] = ()  # hashes of the cycles that became requests; the last KEPT_RAN
    joins: tuple[Join, ...] = ()  # oldest first; each has a record of its own
    fans: tuple[Fan, ...] = ()  # oldest first; each has a record of its own
    shards: int = 0  # so many of its shards are defined
    shard_definition: str = ""  # a hash of how
    backfill_ids: int = 0  # so many IDs of its backfills are defined
    backfill_definition: str = ""  # a hash of how
    cancelled_to: int = -1  # requests up to this number were cancelled: what their shards still tell says nothing
    on: tuple[str, ...] = ()  # of a broadcast: which of its shards TASK/on/AT are defined

    @property
    def empty(self) -> bool:
        """Whether it needs no record."""
        return not (self.children or self.parents or self.ran or self.shards or self.backfill_ids or self.on)

    @property
    def broadcasting(self) -> bool:
        """Whether workers are being asked: the next broadcast of the task waits for that."""
        return any(fan.targets and not fan.failed for fan in self.fans)

    @property
    def asks_again(self) -> bool:
        """Whether a worker of a broadcast is to be asked once more."""
        return any(target.again for fan in self.fans for target in fan.targets)

"""Signals: what the owner of one task tells the owner of another, by a record that its transaction carries.

A step says `Send(to_task, signal)`; the record goes to the control topic, to the partition of the ID it is for, in the
transaction that records the step. There it is taken exactly once, as `Signalled(signal, offset, sender)`.

A new kind is a record here, its name in `KINDS`, its taker in `core/steps/signal.py`, and its fields in
`schemas/signal.json`. Fields hold JSON values, tuples of them, enums of text, or times (`*_ms`, RFC 3339 in the
record); what is at its default is left out. A field `size` is filled in as it is read: the bytes of the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fencepost.core.task import Work


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The sender runs after this task, and wants to be told how its requests end.

    number: of the move that takes the sender's wish along with the task; 0: the sender asks itself.
    """

    number: int = 0


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """The sender does not run after this task any more."""


@dataclass(frozen=True, slots=True)
class UpstreamDone:
    """A request of the sender has ended for good, in this cycle. `path`: the tasks the cycle came through, it last.

    tolerated: it did not succeed, and its children shall go on as if it had.
    """

    cycle: str
    outcome: str
    path: tuple[str, ...] = ()
    epoch: int = 0
    result: Any = None
    result_dropped: str | None = None
    tolerated: bool = False
    size: int = 0


@dataclass(frozen=True, slots=True)
class UpstreamMissed:
    """The sender missed all its slots from `first_ms` to `last_ms`: cycles that wait for it there wait no longer."""

    first_ms: int
    last_ms: int
    tolerated: bool = False


@dataclass(frozen=True, slots=True)
class ShardDone:
    """The request of shard `shard` has ended for good; it is part of the request `number` of this task."""

    cycle: str
    number: int
    shard: int
    outcome: str
    epoch: int = 0
    result: Any = None
    result_dropped: str | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class CancelShard:
    """The requests `numbers` of the sender were cancelled: this shard of theirs ends what it has of them.

    No request of the sender up to the last of them starts here any more, but for one sent again from the dead letters:
    its trigger may come after this word. at_once: a run that is on gets no time to end.
    """

    numbers: tuple[int, ...]
    cause: str
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class ShardMoved:
    """The sender's partition is another worker's now, and its part of a broadcast was for the one that had it.

    attempt, losses: of the runs that there were before.
    """

    cycle: str
    number: int
    shard: int
    attempt: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Carry:
    """A request that waits moves with its task. `checkpoint`: what its last run saved.

    new: it was made in the namespace just now, of a cycle that is joined, and no overlap policy has seen it yet.
    next_seq: the number of the next request where it comes from.
    """

    work: Work
    checkpoint: Any = None
    new: bool = False
    next_seq: int = 1
    size: int = 0


@dataclass(frozen=True, slots=True)
class TellChildren:
    """Those that run after the task are to be told this. They are known where the task is, and it is elsewhere.

    The fields are those of `UpstreamDone`, as it will be said.
    """

    cycle: str
    outcome: str
    path: tuple[str, ...] = ()
    epoch: int = 0
    result: Any = None
    tolerated: bool = False


@dataclass(frozen=True, slots=True)
class GaveBack:
    """A pool has nothing of the task any more; it is the namespace's again. The fields are those of `Luggage`."""

    number: int
    epoch: int
    last_slot_ms: int = -1
    not_before_ms: int = 0
    paused: bool = False
    pause_reason: str | None = None
    schedule: str | None = None
    recent: tuple[str, ...] = ()
    cancelled_to: int = -1
    next_seq: int = 1
    defined_paused: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """The sender could start, but for the limit whose key this ID stands for. `ticket` is its own for each ask."""

    ticket: int
    max_runs: int | None = None
    rate: str | None = None
    burst: int = 1


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The sender's run has ended, or it does not want to start any more."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Grant:
    """The task may start once, for this ask of it."""

    ticket: int


Signal = (
    Subscribe | Unsubscribe | UpstreamDone | UpstreamMissed | ShardDone | CancelShard | ShardMoved
    | Carry | TellChildren | GaveBack | Ask | GiveBack | Grant
)  # fmt: skip

KINDS: Final[dict[str, type[Signal]]] = {
    "subscribe": Subscribe,
    "unsubscribe": Unsubscribe,
    "upstream_done": UpstreamDone,
    "upstream_missed": UpstreamMissed,
    "shard_done": ShardDone,
    "cancel_shard": CancelShard,
    "shard_moved": ShardMoved,
    "carry": Carry,
    "tell_children": TellChildren,
    "gave_back": GaveBack,
    "ask": Ask,
    "give_back": GiveBack,
    "grant": Grant,
}
KIND_OF: Final[dict[type[Signal], str]] = {record: kind for kind, record in KINDS.items()}

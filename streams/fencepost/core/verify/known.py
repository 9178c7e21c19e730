"""What is remembered of one task while its partition is checked. Offsets end in `_at`; -1: not known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from fencepost.core.making import of_schedule
from fencepost.core.task import Status, TaskState

ScheduleItems = tuple[Any, ...]  # a schedule's JSON form: hashable, small, and on disk as well as here


@dataclass(slots=True)
class Stated:
    """What the newest state record says, as far as it is compared."""

    at: int
    epoch: int
    running: bool
    backoff: bool
    run: tuple[int, str, str, float] | None  # epoch, lane, nonce, lease_ttl_s
    last: tuple[int, str] | None  # epoch and outcome of the last run
    last_slot_ms: int
    work_slot_ms: int | None
    fingerprint: str | None
    catching: tuple[int, int] | None = None  # slots that are still to run


def stated(state: TaskState, at: int) -> Stated:
    run, last = state.run, state.last
    return Stated(
        at,
        state.epoch,
        state.status is Status.RUNNING,
        state.status is Status.BACKOFF,
        None if run is None else (run.epoch, run.lane, run.nonce, run.lease_ttl_s),
        None if last is None else (last.epoch, last.outcome.value),
        state.last_slot_ms,
        None if state.work is None or not of_schedule(state.work.asked_by) else state.work.slot_ms,
        state.schedule_fingerprint,
        None if state.catching is None else (state.catching.next_ms, state.catching.until_ms),
    )


@dataclass(slots=True)
class Promise:
    """A run ended and said that its request is tried again."""

    work: tuple[Any, ...]
    epoch: int
    at: int


@dataclass(slots=True)
class Era:
    """Slots under one schedule: all up to `edge_ms` are accounted for, and those within `beyond`.

    assumed: the schedule is the present one, and history did not tell yet that it was in force.
    """

    schedule: ScheduleItems | None = None
    assumed: bool = True
    edge_ms: int | None = None
    edge_at: int = -1
    beyond: list[tuple[int, int, int]] = field(default_factory=list)  # sorted (first, last, offset), both included


@dataclass(slots=True)
class Known:
    """Everything of one task. `opened`: epochs that are on, with where they started; one, if the promise holds."""

    problem: str | None = None  # why its state cannot be read
    bad_definition: str | None = None  # why its definition cannot be read
    stated: Stated | None = None
    waiting: dict[int, int] = field(default_factory=dict)  # seq → slot, of work that waits in the state topic
    schedule: ScheduleItems | None = None  # of its definition in the tasks topic
    first: int = 0  # the first epoch seen
    last: int = 0  # the last epoch started, as far as history goes
    last_at: int = -1
    opened: list[tuple[int, int]] = field(default_factory=list)
    ended: int = 0  # the last epoch that ended
    ended_at: int = -1
    ended_as: str = ""
    promise: Promise | None = None
    forgotten: int = 0  # the epoch after which its state went
    final_slot_ms: int = -1  # the newest slot whose work is over
    final_slot_at: int = -1
    pending: dict[int, int] = field(default_factory=dict)  # slot → where it was told to wait
    missing: dict[int, tuple[int, int]] = field(default_factory=dict)  # slot → the events before and after the gap
    era: Era = field(default_factory=Era)
    # Who asked for it, the last slot that began, where; the offset of its trigger.
    backfilled: tuple[str, int, int, int] | None = None


class Store(Protocol):
    """Where the `Known` of each task lies. A dict is one.

    What `get` returned may be changed until the next call of `get` or `__setitem__`; the store keeps the change.
    """

    def get(self, task: str, /) -> Known | None: ...

    def __setitem__(self, task: str, known: Known, /) -> None: ...

    def items(self) -> Iterable[tuple[str, Known]]: ...

    def __len__(self) -> int: ...

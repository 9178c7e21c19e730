"""Who holds and who waits under the keys of limits, as the topics say it: as it was recorded last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from fencepost.codec import BadRecord
from fencepost.core.ids import check_task_id, partition_of, split_key
from fencepost.core.limits import PREFIX, Claim, Group, group_id, slowest, strictest
from fencepost.core.task import TaskState
from fencepost.core.times import format_ms
from fencepost.kafka.namespace import load_namespace
from fencepost.kafka.scan import scan
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.wire.limit import CLAIM, GROUP, decode_claim, decode_group
from fencepost.wire.state import decode_state


@dataclass(frozen=True, slots=True)
class Holder:
    """A task that was granted a start and has not given it back. Times are ms since the epoch, UTC.

    epoch: of its run; None: granted, and not started yet. since_ms: when that run started, else when it asked.
    pool: where the task is; None: in the namespace.
    """

    task: str
    epoch: int | None
    since_ms: int
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A task that waits; those of one key stand in the order in which they will be granted."""

    task: str
    since_ms: int
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """One key. max_runs, rate, burst: the strictest of all that hold or wait; None: nobody names one now.

    next_ms: by the rate, nothing is granted before; None where there is no rate, or room in it now.
    """

    key: str
    max_runs: int | None = None
    rate: str | None = None
    burst: int = 1
    holders: tuple[Holder, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    next_ms: int | None = None

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "key": self.key,
            "max_runs": self.max_runs,
            "rate": self.rate,
            "burst": self.burst,
            "next_start": None if self.next_ms is None else format_ms(self.next_ms),
            "holders": [
                {"task": each.task, "epoch": each.epoch, "since": format_ms(each.since_ms), "pool": each.pool}
                for each in self.holders
            ],
            "waiting": [
                {"task": each.task, "since": format_ms(each.since_ms), "pool": each.pool} for each in self.waiting
            ],
        }


def read_limits(settings: Settings, now_ms: int, key: str | None = None) -> list[LimitStatus]:
    """Every key under which somebody holds or waits, or whose rate was used; with `key` that one, also if nobody does.

    A pool's settings show the limits of its namespace: it has none of its own. Raises BadRecord for what cannot be a
    key, KafkaProblem.
    """
    settings = replace(settings, namespace=Topics(settings.namespace).main)
    count, only = load_namespace(settings).partitions, None
    if key is not None:
        try:
            check_task_id(group_id(key))
        except ValueError as error:
            raise BadRecord(f"cannot be part of an ID, {PREFIX}KEY: {error}", "KEY") from error
        only = group_id(key)
    groups = _groups(settings, None if only is None else [partition_of(only.encode(), count)], only)
    if only is not None:
        groups.setdefault(only, Group())
    named = {claim.task for group in groups.values() for claim in group.claims}
    states = _states(settings, named, count)
    return [_status(name.removeprefix(PREFIX), group, states, now_ms) for name, group in sorted(groups.items())]


def _groups(settings: Settings, partitions: list[int] | None, only: str | None) -> dict[str, Group]:
    claims: dict[str, dict[int, Claim]] = {}
    next_ms: dict[str, float] = {}
    for task_id, kind, number, value in _records(settings, partitions):
        if kind not in (CLAIM, GROUP) or (only is not None and task_id != only):
            continue
        if kind == GROUP:
            if value is None:
                next_ms.pop(task_id, None)
            else:
                next_ms[task_id] = decode_group(value)
        elif value is None:
            claims.get(task_id, {}).pop(number, None)
        else:
            claims.setdefault(task_id, {})[number] = decode_claim(value)
    found = {}
    for name in claims.keys() | next_ms.keys():
        in_order = tuple(sorted(claims.get(name, {}).values(), key=lambda claim: claim.number))
        if in_order or name in next_ms:
            found[name] = Group(in_order, next_ms.get(name, 0.0))
    return found


def _states(settings: Settings, named: set[str], count: int) -> dict[str, tuple[TaskState, str | None]]:
    """The states of these tasks, each where the task is: (state, pool)."""
    found: dict[str, tuple[TaskState, str | None]] = {
        task: (state, None) for task, state in _states_in(settings, named, count).items()
    }
    away: dict[str, set[str]] = {}
    for task, (state, _) in found.items():
        if state.place is not None and state.place.pool is not None:
            away.setdefault(state.place.pool, set()).add(task)
    for pool, tasks in away.items():
        there = replace(settings, namespace=Topics(settings.namespace).of(pool).namespace)
        found |= {task: (state, pool) for task, state in _states_in(there, tasks, count).items()}
    return found


def _states_in(settings: Settings, named: set[str], count: int) -> dict[str, TaskState]:
    found: dict[str, bytes | None] = {}
    partitions = sorted({partition_of(task.encode(), count) for task in named})
    if partitions:
        states = _records(settings, partitions)
        found = {task_id: value for task_id, kind, _, value in states if kind is None and task_id in named}
    return {task: decode_state(value) for task, value in found.items() if value is not None}


def _records(
    settings: Settings, partitions: Iterable[int] | None
) -> Iterator[tuple[str, str | None, int, bytes | None]]:
    """(task, kind, number, value) of the records of the state topic, tombstones too, in their order."""
    for record in scan(settings, Topics(settings.namespace).state, partitions):
        try:
            task_id, kind, number = split_key(record.key_text)
        except ValueError:
            continue
        yield task_id, kind, number, record.value


def _status(key: str, group: Group, states: dict[str, tuple[TaskState, str | None]], now_ms: int) -> LimitStatus:
    limits = [claim.limit for claim in group.claims]
    most, apart_ms, burst = strictest(group)
    rate = slowest(limit.rate for limit in limits)
    next_ms = ceil(group.next_ms - (burst - 1) * apart_ms) if group.next_ms else None
    holders = tuple([_holder(claim, states) for claim in group.claims if claim.granted])
    waiting = tuple(
        [
            Waiting(claim.task, claim.asked_ms, states[claim.task][1] if claim.task in states else None)
            for claim in group.claims
            if not claim.granted
        ]
    )
    return LimitStatus(
        key, most, rate, burst, holders, waiting, next_ms if next_ms is not None and next_ms > now_ms else None
    )


def _holder(claim: Claim, states: dict[str, tuple[TaskState, str | None]]) -> Holder:
    state, pool = states.get(claim.task, (None, None))
    permit, run = (None, None) if state is None else (state.permit, state.run)
    if permit is None or permit.ticket != claim.ticket or not permit.epoch:
        return Holder(claim.task, None, claim.asked_ms, pool)
    since_ms = run.started_ms if run is not None and run.epoch == permit.epoch else claim.asked_ms
    return Holder(claim.task, permit.epoch, since_ms, pool)

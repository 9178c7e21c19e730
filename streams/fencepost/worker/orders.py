"""What a lane and its runners say to each other. Plain values: no Kafka, no process here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from fencepost.core.commands import Launch
from fencepost.core.evolve import builder
from fencepost.core.links import Origin
from fencepost.core.task import Cause, Definition, Handler, Isolation, Outcome, Overlap, PythonHandler, Task, Work
from fencepost.core.time_limits import run_limit_s


@dataclass(frozen=True, slots=True)
class RunOrder:
    """A run to start. It was read back from the log as RUNNING under `nonce`."""

    task: str
    epoch: int
    attempt: int
    partition: int
    nonce: str
    lease_ttl_s: float
    handler: Handler
    payload: Any
    headers: dict[str, str] | None
    scheduled_for_ms: int | None
    idempotency_key: str
    checkpoint: Any
    timeout_s: float | None
    grace_s: float
    isolation: Isolation
    strict_stop: bool
    heartbeat_s: float | None = None  # it must say something at least so often
    origin: Origin | None = None  # the cycle it belongs to
    payloads: tuple[Any, ...] | None = None  # of a batch: those of all its requests


_new_order = builder(RunOrder)
_BATCH: Final = Overlap.BATCH


def order_of(task_id: str, task: Task, launch: Launch, partition: int, nonce: str) -> RunOrder:
    """The order for a launch, of the task as it is after the step that said so."""
    work, run, definition = launch.work, launch.run, task.definition
    assert definition is not None
    payload = work.payload if work.payload is not None else definition.payload
    payloads = None
    if definition.overlap is _BATCH:
        payloads = _payloads(work, definition)
        if not isinstance(definition.handler, PythonHandler):
            payload = list(payloads)  # what is no function gets them in one
    return _new_order(
        task_id,
        run.epoch,
        run.attempt,
        partition,
        nonce,
        run.lease_ttl_s,
        definition.handler,
        payload,
        work.headers,
        work.slot_ms,
        f"{task_id}:{work.seq}",
        launch.checkpoint,
        run_limit_s(definition, work, run.started_ms),
        definition.grace_s,
        definition.isolation,
        definition.strict_stop,
        definition.heartbeat_s,
        work.origin,
        payloads,
    )


def more_for_context(order: RunOrder) -> dict[str, Any] | None:
    """What the run's context is told beside what every run is: arguments of `RunContext`. Nothing, mostly."""
    more: dict[str, Any] = {}
    if order.origin is not None:
        more = {"cycle": order.origin.cycle, "upstream": order.origin.upstream}
        if order.origin.shard is not None and order.origin.shard.shards:
            more["shard"], more["shards"] = order.origin.shard.shard, order.origin.shard.shards
            if order.origin.shard.worker:
                more["worker"] = order.origin.shard.worker
    if order.payloads is not None:
        more["payloads"] = order.payloads
    return more or None


def _payloads(work: Work, definition: Definition) -> tuple[Any, ...]:
    """Of all requests of a batch, which may be one alone."""
    given = (work, *work.members)
    return tuple([definition.payload if each.payload is None else each.payload for each in given])


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run is over and nothing of it lives any more (its process group too, if it had one of its own).

    `cause` is set when it was stopped from outside (fence, handover, shutdown, neighbour): then `outcome` is
    INTERRUPTED. A run killed by its own time limit has outcome TIMED_OUT; one stopped by `stop(..., "cancelled")` has
    CANCELLED.
    """

    task: str
    epoch: int
    outcome: Outcome
    cause: Cause | None = None
    result: Any = None
    error: str | None = None
    exit_code: int | None = None
    names: tuple[str, ...] = ()  # of the exception's class and its bases, where a function failed
    limit: str | None = None  # TIMED_OUT by another limit than the run's own: "heartbeat"
    final: bool = False  # a failure that would be the same again


@dataclass(frozen=True, slots=True)
class RunCheckpoint:
    task: str
    epoch: int
    data: Any


@dataclass(frozen=True, slots=True)
class RunOutput:
    """Lines that a run printed."""

    task: str
    epoch: int
    stream: str  # "out", "err", "log"
    text: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The guard would not start it: (task, epoch) already had, or no time left on the lease. Nothing of it ran.

    `repeated` tells the two apart.
    """

    task: str
    epoch: int
    repeated: bool


RunReport = RunEnded | RunCheckpoint | RunOutput | Refused


class Runners(Protocol):
    """The guard and its runners, as a lane sees them. Called from the lane's thread only; no call blocks for long."""

    capacity: int  # how many runs may be on at once

    def lease(self, partition: int, nonce: str, began_boot_s: float) -> None:
        """A renewal that was *proven* (read back): it began to be sent at `began_boot_s` (CLOCK_BOOTTIME).

        Every run held under (partition, nonce) may live until began + its lease_ttl_s - margin.
        """

    def launch(self, orders: Sequence[RunOrder]) -> None:
        """Start these. Each gets exactly one RunEnded or Refused later."""

    def stop(self, task: str, epoch: int, reason: str, cause: Cause | None, grace_s: float) -> None:
        """Ask, then kill after `grace_s`. reason: "cancelled", "timed_out" or "interrupted" (then with a cause)."""

    def rebind(self, partition: int, old_nonce: str, new_nonce: str) -> None:
        """Runs held under the old nonce go on under the new one (same process, partition acquired again)."""

    def holds(self, task: str, epoch: int) -> bool:
        """Whether this run is on here (or not certainly gone yet)."""

    def beat(self) -> None:
        """The lane's loop is alive. The guard ends the worker if no beat comes for one lease."""

    def wait(self, timeout_s: float) -> bool:
        """Block until something can be taken, at most so long. True: take() has something."""

    def take(self) -> list[RunReport]:
        """What happened since the last call, in order; never blocks."""

    def in_flight(self) -> int:
        """Runs launched and not yet reported ended."""

    def room(self) -> int:
        """How many more runs may be given out now: as many as there are slots, and more while runs are short.

        Many no-op runs are worth one batch; behind a long run nothing may queue that the log already calls RUNNING.
        """

    def close(self, grace_s: float) -> None:
        """Stop all runs (interrupted: stopped), then guard and runners; returns when every process is gone."""

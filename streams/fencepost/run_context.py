"""What a task's function is given: which run it is, and how it talks back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_namespace = "fencepost"  # a process runs tasks of one


def belong_to(namespace: str) -> None:
    """For the process that runs code: all its contexts are of this namespace."""
    global _namespace
    _namespace = namespace


def current_namespace() -> str:
    """The namespace that this process runs code for."""
    return _namespace


class RunLink(Protocol):
    """The process that executes the run."""

    def cancelled(self, token: int) -> bool: ...

    def checkpoint(self, token: int, data: Any) -> None: ...

    def log(self, token: int, text: str) -> None: ...

    def heartbeat(self, token: int) -> None: ...


class RunContext:
    """One run of a task. Functions get it as their only argument.

    `epoch` is the run's number within its task: it only grows, and no two runs of a task share one. Give it to every
    resource that can refuse an older one (a fencing token). `idempotency_key` is the same for all attempts of one
    trigger or slot. `scheduled_for` is the nominal fire time of a slot, None for a trigger.

    For a task that runs after others: `cycle` names what the run belongs to, and `upstream` has how each of them ended
    in it: {"extract": {"outcome": "succeeded", "epoch": 7, "result": …}}. A shard knows which of how many it is:
    `shard` counts from 0 to `shards` - 1; both are None for any other run. `worker` is the ID of the worker that a
    broadcast asks, and that this run is on; None for any other run.

    Tests may make one by hand; without a link it is never cancelled and keeps its checkpoint to itself.
    """

    __slots__ = (
        "_deadline_boot_s",
        "_link",
        "_payloads",
        "_scheduled_for_ms",
        "_token",
        "attempt",
        "cycle",
        "epoch",
        "headers",
        "idempotency_key",
        "last_checkpoint",
        "payload",
        "shard",
        "shards",
        "task_id",
        "upstream",
        "worker",
    )

    def __init__(
        self,
        task_id: str,
        epoch: int = 1,
        attempt: int = 1,
        payload: Any = None,
        headers: Mapping[str, str] | None = None,
        scheduled_for_ms: int | None = None,
        idempotency_key: str = "",
        last_checkpoint: Any = None,
        deadline_boot_s: float | None = None,
        link: RunLink | None = None,
        token: int = 0,
        cycle: str | None = None,
        upstream: Mapping[str, Any] | None = None,
        shard: int | None = None,
        shards: int | None = None,
        payloads: Sequence[Any] | None = None,
        worker: str | None = None,
    ) -> None:
        self.task_id = task_id
        self.epoch = epoch
        self.attempt = attempt
        self.payload = payload
        self.headers = headers if headers is not None else {}
        self.idempotency_key = idempotency_key
        self.last_checkpoint = last_checkpoint
        self._scheduled_for_ms = scheduled_for_ms
        self._deadline_boot_s = deadline_boot_s
        self._link = link
        self._token = token
        self.cycle = cycle
        self.upstream = upstream if upstream is not None else {}
        self.shard = shard
        self.shards = shards
        self.worker = worker
        self._payloads = payloads

    def __repr__(self) -> str:
        return f"RunContext(task_id={self.task_id!r}, epoch={self.epoch}, attempt={self.attempt})"

    @property
    def namespace(self) -> str:
        """The namespace of the worker. An epoch is of a task, and a task ID means something within a namespace."""
        return _namespace

    @property
    def payloads(self) -> Sequence[Any]:
        """The payloads of all requests of a batch (overlap "batch"), in order; of another run its own alone."""
        return (self.payload,) if self._payloads is None else self._payloads

    @property
    def scheduled_for(self) -> datetime | None:
        """The slot's nominal time, in UTC; None if a trigger asked for the run."""
        if self._scheduled_for_ms is None:
            return None
        return _EPOCH + timedelta(milliseconds=self._scheduled_for_ms)

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the run's time limit, negative beyond it; None if the task has no `timeout_s`."""
        if self._deadline_boot_s is None:
            return None
        return self._deadline_boot_s - time.clock_gettime(time.CLOCK_BOOTTIME)

    @property
    def deadline(self) -> datetime | None:
        """When the run's time limit is reached, in UTC; None if the task has no `timeout_s`."""
        remaining_s = self.remaining_s
        return None if remaining_s is None else datetime.now(UTC) + timedelta(seconds=remaining_s)

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to stop: cancelled, over its time limit, or about to lose its lease.

        A function that runs long looks at this now and then and returns; it is killed `grace_s` after it was asked.
        """
        return self._link is not None and self._link.cancelled(self._token)

    def checkpoint(self, data: Any) -> None:
        """Save how far the run has come, for the next run of the same work (`last_checkpoint`). At most 64 KiB as JSON.

        Raises ValueError if the data is too large or has no JSON form.
        """
        if self._link is not None:
            self._link.checkpoint(self._token, data)
        self.last_checkpoint = data

    def heartbeat(self) -> None:
        """Say that the run gets on. A task with `heartbeat_s` must say something at least so often, or is timed out.

        A checkpoint, and what the run prints or logs, count as well. In others this does nothing.
        """
        if self._link is not None:
            self._link.heartbeat(self._token)

    def log(self, text: str) -> None:
        """Write a line to the run's log."""
        if self._link is not None:
            self._link.log(self._token, text)
        else:
            print(text)

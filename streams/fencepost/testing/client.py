"""The Python client of a world: everything it sends goes into the world's log."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fencepost.client import Client, RunFailed, RunStatus, after
from fencepost.core.task import TaskState
from fencepost.kafka.producer import Outgoing, Sent
from fencepost.kafka.scan import Record
from fencepost.settings import Settings
from fencepost.wire.history import HistoryRecord

if TYPE_CHECKING:
    from fencepost.testing.world import World


class Asked:
    """A trigger that was sent into a world. `result` and `wait` let time pass as far as they need."""

    def __init__(self, world: World, task: str, trigger_id: str) -> None:
        self._world = world
        self.task, self.id = task, trigger_id

    def status(self) -> RunStatus:
        """Where it stands now."""
        status = RunStatus("sent")
        for event in self._world.history(self.task):
            status = after(status, event, self.id)
        return status

    def wait(self, timeout: float | timedelta | None = None) -> RunStatus:
        """Let time pass until it has ended: `timeout` seconds, or a month. Raises TimeoutError."""
        limit = timedelta(days=30) if timeout is None else timeout
        self._world.advance_until(lambda: self.status().done, limit, f"trigger {self.id} of {self.task} has ended")
        return self.status()

    def result(self, timeout: float | timedelta | None = None) -> Any:
        """What the run returned. Raises RunFailed, TimeoutError."""
        status = self.wait(timeout)
        if status.kind != "succeeded":
            raise RunFailed(self.task, status.kind, status.cause, status.epoch)
        return status.result


class WorldClient(Client):
    """As `Client`, but for what only a Kafka has (verify, follow)."""

    def __init__(self, world: World) -> None:
        super().__init__(Settings(namespace=world.topics.namespace))
        self._world = world

    def trigger(self, task: str, payload: Any = None, **more: Any) -> Any:
        """Ask for a run. See `Client.trigger`."""
        more.setdefault("id", None)
        if more["id"] is None:
            more["id"] = self._world.new_id()
        handle = super().trigger(task, payload, **more)
        return Asked(self._world, handle.task, handle.id)

    def rerun(self, task: str, epoch: int | None = None, **more: Any) -> Any:
        """Run a past run again, or a slot. See `Client.rerun`."""
        handle = super().rerun(task, epoch, **{**more, "id": more.get("id") or self._world.new_id()})
        return Asked(self._world, handle.task, handle.id)

    def record_at(self, topic: str, partition: int, offset: int) -> Record | None:
        """One record of the world's log."""
        return self._world.at_offset(topic, offset)

    def history(self, task: str, since_ms: int | None = None) -> list[HistoryRecord]:
        """The task's events in order."""
        return [event for event in self._world.history(task) if since_ms is None or event.at_ms >= since_ms]

    def state(self, task: str) -> TaskState | None:
        """What the owner last recorded of the task."""
        return self._world.state(task)

    @property
    def producer(self) -> Any:
        return self

    def send(self, record: Outgoing) -> Sent:
        """A record into the world's log."""
        return self.send_all([record])[0]

    def send_all(self, records: Iterable[Outgoing]) -> list[Sent]:
        """Records into the world's log; what they call for is done when the last one is there."""
        return self._world.take(list(records))

    def close(self) -> None:
        """Nothing is held."""

    def partition_of(self, task: str) -> int:
        return 0

    def _check_pool(self, pool: str) -> None:
        """A world has every pool: what is for one runs here."""

"""What a lane knows of one partition: where its acquisition stands, and the tasks restored from its log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.core.forgetting import floor_of
from fencepost.core.machine import new_task, startable, wake_at_ms
from fencepost.core.ownership import Holding, Phase
from fencepost.core.task import RUNNING, Definition, Task
from fencepost.worker.line import Line
from fencepost.worker.look_up import LookUp
from fencepost.worker.orders import RunEnded
from fencepost.worker.timers import Timers

if TYPE_CHECKING:
    from fencepost.kafka.reader import Message
    from fencepost.worker.restore import Restore


@dataclass(frozen=True, slots=True)
class Look:
    """A look at who is there that is under way: how far owners has to be read, and what was known when it began.

    held: the workers that held something; heard: how many fences had been read, by worker.
    """

    ends: dict[tuple[str, int], int]
    held: frozenset[str]
    heard: dict[str, int]


class Partition:
    """Mutable, of one lane and one thread. Thrown away when the partition is given up."""

    def __init__(self, holding: Holding) -> None:
        self.holding = holding
        self.own_nonce_on_owners = False
        self.restore: Restore | None = None
        self.found: dict[tuple[str, int], RunEnded] = {}  # reports that came while the partition was not held
        self.live: dict[str, int] = {}  # task -> epoch given to the runners and not reported ended
        self.stopped_for_handover = False
        self.draining_since_s = 0.0
        self.release_sent_s: float | None = None
        self.trigger_start = -1
        self.control_start = -1
        self.trigger_end = self.control_end = -1  # where the logs ended when it was acquired
        self.restore_began_s = 0.0
        self.renewed: tuple[str, int] | None = None  # the last renewal of this lane that named it
        self.clear()

    def clear(self) -> None:
        """Forget what was restored."""
        self.tasks: dict[str, Task] = {}
        self.definitions: dict[str, Definition] = {}
        self.unreadable: set[str] = set()  # state of a version this worker cannot read: never touched
        self.waits: dict[str, float] = {}  # task found RUNNING -> boot time until which its lease is waited for
        self.triggers: deque[Message] = deque()
        self.control: deque[Message] = deque()
        self.changes: deque[Message] = deque()
        self.triggers_offset = -1  # everything below was read back: what is committed
        self.control_offset = -1
        self.triggers_taken = self.control_taken = -1  # read back; ahead of these while dead letters wait
        self.control_committed = -1
        self.triggers_committed = -1
        self.adopted: list[tuple[str, int]] = []  # runs of this process that go on under the new nonce
        self.undefined: deque[tuple[str, Definition | None]] = deque()  # restored tasks still without definition
        self.misplaced: list[tuple[bytes, bytes]] = []  # definitions found here that belong on another partition
        self.found_running: set[str] = set()  # tasks that were RUNNING when restored: first in `undefined`
        self.look_ups: dict[tuple[str, bool], LookUp] = {}  # by topic, and whether it is for shards
        self.without_handler: set[str] = set()
        # Tasks that broadcast as soon as it is known who is there; those of the round before, and of this one.
        self.looked: dict[str, Look | None] = {}
        self.looking: dict[str, Look | None] = {}
        self.floor = 0  # epochs of IDs nothing is known of start above it
        self.to_look_at: deque[str] = deque()  # IDs that may be idle for long enough to be forgotten
        self.look_at_s = 0.0
        self._timers = Timers()  # of tasks that can start when their time comes
        self._timers_running = Timers()  # of tasks with a run on: their overlap policy cannot wait for a free runner
        self._line = Line()

    @property
    def number(self) -> int:
        return self.holding.partition

    @property
    def nonce(self) -> str:
        return self.holding.nonce

    @property
    def served(self) -> bool:
        """Whether records may be written for it under its nonce."""
        return self.holding.phase in (Phase.HELD, Phase.DRAINING, Phase.RELEASING)

    @property
    def starts(self) -> bool:
        """Whether new runs may start."""
        return self.holding.phase is Phase.HELD

    @property
    def offsets_trail(self) -> bool:
        """Whether something was read back that is not committed yet."""
        return self.triggers_offset != self.triggers_committed or self.control_offset > self.control_committed

    def task(self, task_id: str) -> Task:
        known = self.tasks.get(task_id)
        return known if known is not None else new_task(task_id, self.floor)

    def put(self, task_id: str, task: Task, now_ms: int) -> None:
        """Keep the task and plan when it needs attention next."""
        self.tasks[task_id] = task
        running = task.state.status is RUNNING
        if not running and startable(task, now_ms):
            self.make_ready(task_id, task, now_ms)
        wake_ms = wake_at_ms(task, now_ms)
        if running or task.group is not None:  # what it grants may be for others to start
            self._timers.set(task_id, None)
            self._timers_running.set(task_id, wake_ms)
        else:
            self._timers_running.set(task_id, None)
            self._timers.set(task_id, wake_ms)

    def forget(self, task_id: str) -> None:
        """The task is idle and its state goes; the floor keeps its epoch, and how many requests it had."""
        self.floor = max(self.floor, floor_of(self.tasks.pop(task_id)))
        self._timers.set(task_id, None)
        self._timers_running.set(task_id, None)

    def make_ready(self, task_id: str, task: Task, now_ms: int) -> None:
        """Put it in line, or further ahead if something more urgent waits for it than did before."""
        if task_id in self.waits or task_id in self.without_handler:
            return
        self._line.add(task_id, task, now_ms)

    def next_ready(self, now_ms: int) -> str | None:
        """The task to start next; taken from the queue."""
        while (task_id := self._line.take()) is not None:
            task = self.tasks.get(task_id)
            if task is not None and startable(task, now_ms):
                return task_id
            if task is not None:
                self.put(task_id, task, now_ms)  # the clock was put back since: it needs its timer again
        return None

    def look_again(self, now_ms: int) -> None:
        """Those that look around are in line again: owners may have been read far enough by now."""
        if self.looking or self.looked:
            self.looked, self.looking = self.looking, {}
            for task_id in self.looked:
                self.put(task_id, self.tasks[task_id], now_ms)

    @property
    def ready(self) -> int:
        return len(self._line)

    def due(self, now_ms: int, limit: int, *, running: bool) -> list[str]:
        """Tasks whose time has come, with a run on or without; each is planned again by `put`."""
        return list((self._timers_running if running else self._timers).due(now_ms, limit))

    def next_due_ms(self) -> int | None:
        times = [at_ms for at_ms in (self._timers.next_ms(), self._timers_running.next_ms()) if at_ms is not None]
        return min(times, default=None)

    def running(self) -> Iterator[Task]:
        """Tasks whose state says RUNNING."""
        return (task for task in self.tasks.values() if task.state.status is RUNNING)

"""Processes that runs share: who takes which run, and how many there are.

A process takes runs only under leases that the guard has confirmed for it, so that the guard need not hear of each run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from fencepost.core.task import Handler, HttpHandler, PythonHandler
from fencepost.worker.guard import control, linux, wire
from fencepost.worker.guard.control import Kind, ToGuard
from fencepost.worker.guard.deadlines import END_EARLY_S
from fencepost.worker.guard.leases import Lease
from fencepost.worker.guard.pricing import BUDGET_S, MOST_AHEAD, REFILL_S, Prices
from fencepost.worker.guard.process import Binding, Run, RunnerProcess
from fencepost.worker.guard.settings import RunnerSettings
from fencepost.worker.orders import more_for_context

GROW_AFTER_S = 0.01
_SYNC = Kind.SYNC  # asked for at each run; found quicker by a name
_UNBIND_IDLE_S = 0.5
_END_IDLE_S = 30.0
_TRY_AGAIN_S = 1.0
_SHORTEST_S = 0.001  # of time limits: zero would mean none
_LIMIT_SLACK_S = 0.25  # the runner ends such a run itself; the guard does it if that fails


class Pool:
    """Sync processes with one queue before them, one process for all coroutines, one for all HTTP requests.

    They are forked when first needed.

    `spawn` forks a process; `send` writes to one.
    """

    def __init__(
        self,
        settings: RunnerSettings,
        channel: control.Channel,
        spawn: Callable[[Kind], RunnerProcess],
        send: Callable[[RunnerProcess, Any], None],
        keeps_some: bool,
    ) -> None:
        self._settings = settings
        self._channel = channel
        self._spawn = spawn
        self._send = send
        self._fewest = min(settings.shared_processes, settings.slots) if keeps_some else 0
        self._queue: deque[Run] = deque()
        self._sync: list[RunnerProcess] = []
        self._many: dict[Kind, RunnerProcess] = {}  # those that take many runs at a time
        self._grown_at = 0.0
        self._not_before = 0.0  # no fork until then: the last one failed
        self.prices = Prices()

    @property
    def waiting(self) -> bool:
        """Whether runs wait for a process."""
        return bool(self._queue)

    def room(self, in_flight: int) -> int:
        """How many more runs may be given out, of the price that runs usually have."""
        return min(MOST_AHEAD - in_flight, self.prices.room(len(self._sync)))

    def add(self, run: Run, kind: Kind) -> None:
        """A run that may share a process. `feed` hands it out."""
        if kind is not _SYNC:
            self._add_to_many(run, kind)
            return
        assert isinstance(run.order.handler, PythonHandler)
        run.cost_s = self.prices.of(run.order.handler.function)
        self.prices.given(run.cost_s)
        self._queue.append(run)

    def _add_to_many(self, run: Run, kind: Kind) -> None:
        if kind not in self._many:
            self._many[kind] = self._spawn(kind)
        self._assign(run, self._many[kind])

    def withdraw(self, run: Run) -> None:
        """It was not sent to a process: it shall not be."""
        if run.process is None:
            self._queue.remove(run)
        else:
            run.process.bindings[run.lease.number, run.life_s].waiting.remove(run)

    def feed(self) -> None:
        """Hand waiting runs out, to each process as much as takes little time, and send what was handed out."""
        fed: dict[int, RunnerProcess] = {}
        queue = self._queue
        while queue:
            process = min(self._sync, key=_load, default=None)
            if process is None:
                break
            if process.runs and (process.load_s > REFILL_S or process.load_s + queue[0].cost_s > BUDGET_S):
                break
            while queue and (not process.runs or process.load_s + queue[0].cost_s <= BUDGET_S):
                self._assign(queue.popleft(), process)
            fed[process.number] = process
        for process in fed.values():
            self._send_assigned(process)
        for process in self._many.values():
            self._send_assigned(process)
        if self._grows():
            self.feed()

    def _grows(self) -> bool:
        """Fork one more process if there are too few, or if runs wait and every process has long been at one."""
        if len(self._sync) < self._fewest or (self._queue and not self._sync):
            if time.monotonic() < self._not_before:
                return False
        else:
            if not self._queue or len(self._sync) >= self._settings.slots:
                return False
            now = time.monotonic()
            if now < self._grown_at + GROW_AFTER_S or not all(process.stuck(now) for process in self._sync):
                return False
            self._grown_at = now
        self._sync.append(self._spawn(Kind.SYNC))
        return True

    def _assign(self, run: Run, process: RunnerProcess) -> None:
        run.process = process
        if not process.runs:
            process.progress_at = time.monotonic()
        process.runs[run.token] = run
        process.load_s += run.cost_s
        key = run.lease.number, run.life_s
        binding = process.bindings.get(key)
        if binding is None:
            binding = process.bindings[key] = Binding(run.lease, run.life_s)
            run.lease.users += 1
            self._channel.send(control.bind(ToGuard.BIND, process.number, *key))
        binding.runs += 1
        binding.waiting.append(run)

    def _send_assigned(self, process: RunnerProcess) -> None:
        """Send what is assigned under leases that the guard has confirmed."""
        batch: list[Run] = []
        for binding in process.bindings.values():
            if binding.bound and binding.waiting:
                batch += binding.waiting
                binding.waiting = []
        if not batch:
            return
        runs = []
        for run in batch:
            run.sent = True
            self.have_limited(process, run)
            runs.append(as_sent(run, target_of(run.order.handler)))
        self._send(process, (wire.RUNS, runs))

    def have_limited(self, process: RunnerProcess, run: Run) -> None:
        """Have the guard enforce the run's time limit, if it has one, counted from its start."""
        if run.order.timeout_s is None:
            return
        limit_s = max(_SHORTEST_S, run.order.timeout_s + run.order.grace_s)
        process.timed += 1
        if process.kind is not _SYNC:
            at = linux.boot_s() + limit_s + _LIMIT_SLACK_S
            self._channel.send(control.limit(process.number, run.token, at))
        elif not process.watched_s or limit_s < process.watched_s:
            process.watched_s = limit_s
            self._channel.send(control.watch(process.number, limit_s))

    def confirmed(self, process: RunnerProcess, key: tuple[int, float]) -> None:
        """The guard holds the process to this lease now."""
        binding = process.bindings.get(key)
        if binding is not None:
            binding.bound = True
            self._send_assigned(process)

    def not_confirmed(self, process: RunnerProcess, key: tuple[int, float]) -> list[Run]:
        """No time is left on the lease: the runs that must be refused. Or the process is ending: others take them."""
        binding = process.bindings.get(key)
        if binding is None or binding.bound:
            return []
        del process.bindings[key]
        binding.lease.users -= 1
        for run in binding.waiting:
            self._take_out(process, run)
        if linux.boot_s() >= binding.lease.began + binding.life_s - END_EARLY_S:
            return binding.waiting
        self.leaves(process)
        for run in reversed(binding.waiting):
            self._take_again(run, process.kind)
        return []

    def take_back(self, process: RunnerProcess, run: Run) -> None:
        """It was not sent to the process, which is gone: another one can have it."""
        self._take_out(process, run)
        self._take_again(run, process.kind)

    def _take_out(self, process: RunnerProcess, run: Run) -> None:
        del process.runs[run.token]
        process.load_s -= run.cost_s
        run.process = None

    def _take_again(self, run: Run, kind: Kind) -> None:
        if kind is _SYNC:
            self._queue.appendleft(run)
        else:
            self._add_to_many(run, kind)

    def could_not_start(self) -> None:
        """A process could not be forked, or ended before it did anything: the next one is tried later."""
        self._not_before = time.monotonic() + _TRY_AGAIN_S

    def leaves(self, process: RunnerProcess) -> None:
        """The process gets nothing more."""
        process.leaving = True
        if process in self._sync:
            self._sync.remove(process)
        if self._many.get(process.kind) is process:
            del self._many[process.kind]

    def ended(self, process: RunnerProcess, run: Run, took_us: int) -> None:
        """A run in a shared process is over; the process goes on."""
        if process.kind is _SYNC:
            assert isinstance(run.order.handler, PythonHandler)
            self.prices.learn(run.order.handler.function, took_us)
        elif run.order.timeout_s is not None or run.stop_reason is not None:
            self._channel.send(control.clear(process.number, run.token))
        if run.order.timeout_s is not None:
            process.timed -= 1
        process.leave(run)

    def tidy(self, now: float) -> None:
        """Let go of leases without runs before they end, and of processes that have long had nothing to do."""
        for process in (*self._sync, *self._many.values()):
            for key, binding in list(process.bindings.items()):
                if binding.bound and not binding.runs and now - binding.idle_since >= _UNBIND_IDLE_S:
                    del process.bindings[key]
                    binding.lease.users -= 1
                    self._channel.send(control.bind(ToGuard.UNBIND, process.number, *key))
            if process.watched_s and not process.timed:
                process.watched_s = 0.0
                self._channel.send(control.watch(process.number, 0.0))
        idle = [process for process in self._sync if not process.runs and now - process.idle_since >= _END_IDLE_S]
        for process in idle[: max(0, len(self._sync) - self._fewest)]:
            self.leaves(process)
            process.close_input()


def rebind(process: RunnerProcess, old: Lease, new: Lease) -> None:
    """What the process holds under the old lease goes on under the new one, joined with what it holds of that."""
    for number, life_s in [key for key in process.bindings if key[0] == old.number]:
        moved = process.bindings.pop((number, life_s))
        moved.lease = new
        present = process.bindings.setdefault((new.number, life_s), moved)
        if present is not moved:
            new.users -= 1
            present.runs += moved.runs
            present.waiting += moved.waiting
            present.bound = present.bound or moved.bound


def target_of(handler: Handler) -> Any:
    """What a runner is told to run: a function's name, or a request as `http_calls` reads it."""
    if isinstance(handler, HttpHandler):
        return [getattr(handler, name) for name in HttpHandler.__slots__]
    assert isinstance(handler, PythonHandler)
    return handler.function


def as_sent(run: Run, target: Any) -> tuple[Any, ...]:
    """The run as its runner gets it: see `wire.Field`."""
    order = run.order
    return (
        run.token,
        order.task,
        order.epoch,
        order.attempt,
        target,
        order.payload,
        order.headers,
        order.scheduled_for_ms,
        order.idempotency_key,
        order.checkpoint,
        order.timeout_s,
        order.grace_s,
        run.lease.slots[0],
        run.life_s,
        order.heartbeat_s is not None,
        more_for_context(order),
    )


def _load(process: RunnerProcess) -> float:
    return process.load_s

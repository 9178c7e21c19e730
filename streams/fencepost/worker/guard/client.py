"""The guard and its runners, as a lane sees them: the `Runners` protocol over real processes."""

from __future__ import annotations

import itertools
import os
import select
import shutil
import signal
import subprocess
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from fencepost.core.task import Cause, CommandHandler, Isolation, Outcome, PythonHandler
from fencepost.worker.guard import control, linux, wire
from fencepost.worker.guard.control import Kind, NotSpawned, ToGuard, ToWorker, Why
from fencepost.worker.guard.deadlines import DIE_EARLY_S, END_EARLY_S
from fencepost.worker.guard.leases import Leases
from fencepost.worker.guard.mechanism import Mechanism, frozen_by_cgroup_v1
from fencepost.worker.guard.pricing import BUDGET_S, MOST_AHEAD, REFILL_S, Prices
from fencepost.worker.guard.process import Binding, Run, RunnerProcess
from fencepost.worker.guard.settings import RunnerSettings
from fencepost.worker.guard.start import start
from fencepost.worker.orders import Refused, RunCheckpoint, RunEnded, RunOrder, RunOutput, RunReport

REMEMBERED_TASKS = 200_000
_TICK_S = 0.25
_UNBIND_IDLE_S = 0.5
_END_IDLE_S = 30.0
_GROW_AFTER_S = 0.01
_LIMIT_SLACK_S = 0.25  # the runner ends such a run itself; the guard does it if that fails
_GUARD_GONE_WAIT_S = 1.0
_STREAMS = ("out", "err", "log")

_STOP_OUTCOMES = {
    "cancelled": Outcome.CANCELLED,
    "timed_out": Outcome.TIMED_OUT,
    "interrupted": Outcome.INTERRUPTED,
}


class GuardLost(RuntimeError):
    """The guard is gone, and its runners with it. Nothing can be run any more: the worker must end."""


class GuardedRunners:
    """Starts guard and zygote; see `fencepost.worker.orders.Runners` for what each method promises.

    To be made before any Kafka client exists in this process. Raises GuardError, or AppNotImported if the app cannot be
    imported. Not thread-safe: one lane's thread uses it.
    """

    def __init__(self, settings: RunnerSettings) -> None:
        self._settings = settings
        self._commands = _resolve(settings.commands)
        started = start(settings)
        self.capacity = settings.slots
        self.mechanism: Mechanism = started.mechanism
        self.declared: list[dict[str, Any]] = started.declared
        self.handlers: set[str] = set(started.functions)
        self._functions = started.functions
        self._guard = started.process
        self._channel = started.channel
        self._table = started.table
        self._leases = Leases(started.channel, started.table)
        self._strict = frozen_by_cgroup_v1() if settings.strict_stop is None else settings.strict_stop
        self._tokens = itertools.count(1)
        self._numbers = itertools.count(1)
        self._runs: dict[tuple[str, int], Run] = {}
        self._queue: deque[Run] = deque()  # for shared processes
        self._shared: list[RunnerProcess] = []
        self._async: RunnerProcess | None = None
        self._processes: dict[int, RunnerProcess] = {}
        self._had: OrderedDict[str, int] = OrderedDict()
        self._prices = Prices()
        self._reports: list[RunReport] = []
        self._by_fd: dict[int, RunnerProcess] = {}
        self._epoll = select.epoll()
        self._epoll.register(self._channel.fileno(), select.EPOLLIN)
        self._lost: str | None = None
        self._closed = False
        self._next_tick = 0.0
        self._next_beat = 0.0
        self._grown_at = 0.0
        if settings.app is not None and "sync" in self._functions.values():
            while len(self._shared) < settings.shared_processes:
                self._shared.append(self._spawn_shared(Kind.SYNC))

    def __enter__(self) -> GuardedRunners:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(self._settings.grace_s if kind is None else 0.0)

    def fileno(self) -> int:
        """A descriptor that is readable when `take` may have something, for the lane's own poll."""
        return self._epoll.fileno()

    @property
    def guard_pid(self) -> int:
        return self._guard.pid

    @property
    def lost(self) -> bool:
        """Whether the guard is gone."""
        return self._lost is not None

    # --- leases

    def lease(self, partition: int, nonce: str, began_boot_s: float) -> None:
        with _Guarded(self):
            self._leases.renew(partition, nonce, began_boot_s)

    def rebind(self, partition: int, old_nonce: str, new_nonce: str) -> None:
        with _Guarded(self):
            moved = self._leases.rebind(partition, old_nonce, new_nonce)
        if moved is None:
            return
        old, new = moved
        new.users += old.users
        for run in self._runs.values():
            if run.lease is old:
                run.lease = new
        for process in self._processes.values():
            for key in [key for key in process.bindings if key[0] == old.number]:
                _merge(process, process.bindings.pop(key), (new.number, key[1]), new)

    def beat(self) -> None:
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + self._settings.beat_ttl_s / 8
            with _Guarded(self):
                self._channel.send(bytes([ToGuard.BEAT]))

    # --- runs

    def launch(self, orders: Sequence[RunOrder]) -> None:
        if self._lost is not None:
            raise GuardLost(self._lost)
        now = linux.boot_s()
        margin_s = self._settings.margin_s
        for order in orders:
            if self._had.get(order.task, 0) >= order.epoch:
                self._reports.append(Refused(order.task, order.epoch, True))
                continue
            lease = self._leases.find(order.partition, order.nonce)
            life_s = order.lease_ttl_s - margin_s
            if lease is None or now >= lease.began + life_s - END_EARLY_S:
                self._reports.append(Refused(order.task, order.epoch, False))
                continue
            self._remember(order)
            run = Run(next(self._tokens), order, lease, life_s)
            lease.users += 1
            self._runs[order.task, order.epoch] = run
            self._route(run)
        with _Guarded(self):
            self._feed()

    def _remember(self, order: RunOrder) -> None:
        self._had[order.task] = order.epoch
        if len(self._had) > REMEMBERED_TASKS:
            task, epoch = self._had.popitem(last=False)
            if (task, epoch) in self._runs:
                self._had[task] = epoch

    def _route(self, run: Run) -> None:
        handler = run.order.handler
        if isinstance(handler, CommandHandler):
            executable = self._commands.get(handler.argv[0])
            if executable is None:
                self._finish(run, _failed(run, self._not_allowed(handler.argv[0])))
                return
            target = (handler.argv, executable, dict(handler.env), handler.cwd)
            self._start_own(run, Kind.COMMAND, target)
            return
        kind = self._functions.get(handler.function)
        if kind is None:
            error = f"handler.function: {handler.function!r} is not one of this worker's app ({self._settings.app})"
            self._finish(run, _failed(run, error))
        elif run.order.isolation is Isolation.OWN or (run.order.strict_stop and not self._strict):
            self._start_own(run, Kind.ASYNC if kind == "async" else Kind.SYNC, handler.function)
        elif kind == "async":
            if self._async is None:
                self._async = self._spawn_shared(Kind.ASYNC)
            self._assign(run, self._async)
        else:
            run.cost_s = self._prices.of(handler.function)
            self._prices.given(run.cost_s)
            self._queue.append(run)

    def _not_allowed(self, command: str) -> str:
        allowed = ", ".join(sorted(self._commands)) or "none"
        return f"handler.argv[0]: {command!r} is not on this worker's list of commands (allowed: {allowed})"

    def _feed(self) -> None:
        """Hand waiting runs to shared processes, each as much as takes little time, and send what was handed out."""
        fed: dict[int, RunnerProcess] = {}
        queue = self._queue
        while queue:
            process = min(self._shared, key=_load, default=None)
            if process is None:
                break
            if process.runs and (process.load_s > REFILL_S or process.load_s + queue[0].cost_s > BUDGET_S):
                break
            while queue and (not process.runs or process.load_s + queue[0].cost_s <= BUDGET_S):
                self._assign(queue.popleft(), process)
            fed[process.number] = process
        self._grow()
        for process in fed.values():
            self._send_assigned(process)
        if self._async is not None:
            self._send_assigned(self._async)

    def _grow(self) -> None:
        """Fork one more shared process if runs wait and every process has long been at one."""
        if not self._queue or len(self._shared) >= self._settings.slots:
            return
        now = time.monotonic()
        soon = now < self._grown_at + _GROW_AFTER_S
        enough = len(self._shared) >= self._settings.shared_processes
        if enough and (soon or not all(process.stuck(now) for process in self._shared)):
            return
        self._grown_at = now
        self._shared.append(self._spawn_shared(Kind.SYNC))
        self._feed()

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
        batch = []
        for binding in process.bindings.values():
            if binding.bound and binding.waiting:
                batch += binding.waiting
                binding.waiting = []
        if batch:
            self._send(process, batch)

    def _send(self, process: RunnerProcess, batch: list[Run]) -> None:
        runs = []
        for run in batch:
            run.sent = True
            order = run.order
            assert isinstance(order.handler, PythonHandler)
            if order.timeout_s is not None:
                self._limit_sent(process, run, order.timeout_s + order.grace_s)
            runs.append(_as_sent(run, order.handler.function))
        if not process.send((wire.RUNS, runs)):
            self._want_out(process)

    def _limit_sent(self, process: RunnerProcess, run: Run, limit_s: float) -> None:
        """Have the guard enforce a run's time limit, counted from its start."""
        process.timed += 1
        if process.kind is Kind.SYNC:
            if not process.watched_s or limit_s < process.watched_s:
                process.watched_s = limit_s
                self._channel.send(control.watch(process.number, limit_s))
        else:
            at = linux.boot_s() + limit_s + _LIMIT_SLACK_S
            self._channel.send(control.limit(process.number, run.token, at))

    def _start_own(self, run: Run, kind: Kind, target: Any) -> None:
        process = self._new_process(kind, own=True)
        run.process = process
        run.sent = True
        process.runs[run.token] = run
        order = run.order
        flags = control.OWN | (control.STRICT if self._strict or order.strict_stop else 0)
        packet = control.spawn_own(process.number, kind, flags, run.lease.number, run.life_s, order.epoch, order.task)
        with _Guarded(self):
            self._channel.send(packet, tuple(process.given))
            if order.timeout_s is not None:
                self._limit_sent(process, run, order.timeout_s + order.grace_s)
            if not process.send((wire.RUNS, [_as_sent(run, target)])):
                self._want_out(process)

    def _spawn_shared(self, kind: Kind) -> RunnerProcess:
        process = self._new_process(kind, own=False)
        flags = control.STRICT if self._strict else 0
        self._channel.send(control.spawn_shared(process.number, kind, flags), tuple(process.given))
        return process

    def _new_process(self, kind: Kind, own: bool) -> RunnerProcess:
        process = RunnerProcess(next(self._numbers), kind, own)
        process.idle_since = time.monotonic()
        self._processes[process.number] = process
        for fd in (process.out.fd, *process.printed):
            self._by_fd[fd] = process
            self._epoll.register(fd, select.EPOLLIN)
        return process

    def _want_out(self, process: RunnerProcess) -> None:
        if process.in_fd not in self._by_fd:
            self._by_fd[process.in_fd] = process
            self._epoll.register(process.in_fd, select.EPOLLOUT)

    def stop(self, task: str, epoch: int, reason: str, cause: Cause | None, grace_s: float) -> None:
        if reason not in _STOP_OUTCOMES:
            raise ValueError(f"reason: {reason!r} is not one of {', '.join(_STOP_OUTCOMES)}")
        run = self._runs.get((task, epoch))
        if run is None:
            return
        if run.stop_reason is None:
            run.stop_reason, run.stop_cause = reason, cause
        if not run.sent:
            self._withdraw(run)
            return
        process = run.process
        assert process is not None
        with _Guarded(self):
            self._channel.send(control.limit(process.number, run.token, linux.boot_s() + grace_s))
            if not process.send_stop(run.token):
                self._want_out(process)

    def _withdraw(self, run: Run) -> None:
        """It was not sent to a process: nothing of it ran."""
        if run.process is None:
            self._queue.remove(run)
        else:
            run.process.bindings[run.lease.number, run.life_s].waiting.remove(run)
        self._finish(run, self._stopped(run))

    def holds(self, task: str, epoch: int) -> bool:
        return (task, epoch) in self._runs

    def in_flight(self) -> int:
        return len(self._runs)

    def room(self) -> int:
        free = max(0, self._settings.slots - len(self._runs))
        ahead = min(MOST_AHEAD - len(self._runs), self._prices.room(len(self._shared)))
        return max(free, ahead)

    # --- reports

    def wait(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        self._pump(0.0)
        while not self._reports and self._lost is None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            if self._queue:
                left_s = min(left_s, _GROW_AFTER_S)
            self._pump(min(left_s, _TICK_S))
        return True

    def take(self) -> list[RunReport]:
        self._pump(0.0)
        reports, self._reports = self._reports, []
        if not reports and self._lost is not None:
            raise GuardLost(self._lost)
        return reports

    def _pump(self, timeout_s: float) -> None:
        if self._closed or self._lost is not None:
            return
        with _Guarded(self):
            for fd, event in self._epoll.poll(timeout_s):
                if fd == self._channel.fileno():
                    self._read_guard()
                    continue
                process = self._by_fd.get(fd)
                if process is None:
                    continue
                if event & select.EPOLLOUT or fd == process.in_fd:
                    if process.flush():
                        self._epoll.unregister(fd)
                        del self._by_fd[fd]
                else:
                    self._read_process(process, fd)
            self._channel.flush()
            self._feed()
            now = time.monotonic()
            if now >= self._next_tick:
                self._next_tick = now + _TICK_S
                self._tidy(now)

    def _read_guard(self) -> None:
        while (received := self._channel.receive()) is not None:
            packet, _ = received
            if not packet:
                raise BrokenPipeError
            code = packet[0]
            if code == ToWorker.BOUND:
                self._on_bound(*control.read_bind(packet), bound=True)
            elif code == ToWorker.NOT_BOUND:
                self._on_bound(*control.read_bind(packet), bound=False)
            elif code == ToWorker.GONE:
                self._on_gone(*control.read_gone(packet))
            elif code == ToWorker.NOT_SPAWNED:
                self._on_not_spawned(*control.read_small(packet))

    def _on_bound(self, number: int, lease: int, life_s: float, *, bound: bool) -> None:
        process = self._processes.get(number)
        binding = process.bindings.get((lease, life_s)) if process is not None else None
        if process is None or binding is None:
            return
        if bound:
            binding.bound = True
            self._send_assigned(process)
            return
        if process.leaving or binding.bound:
            return  # its end is on its way
        del process.bindings[lease, life_s]
        binding.lease.users -= 1
        waiting, binding.waiting = binding.waiting, []
        for run in waiting:
            order = run.order
            del process.runs[run.token]
            process.load_s -= run.cost_s
            run.process = None
            self._finish(run, Refused(order.task, order.epoch, False))

    def _read_process(self, process: RunnerProcess, fd: int) -> None:
        if fd in process.printed:
            self._read_printed(process, fd)
            return
        process.progress_at = time.monotonic()
        for items in process.out.read():
            for item in items:
                run = process.runs.get(item[1])
                if run is None:
                    continue
                if item[0] == wire.ENDED:
                    self._on_ended(process, run, item)
                elif item[0] == wire.OUTPUT:
                    self._reports.append(RunOutput(run.order.task, run.order.epoch, item[2], item[3]))
                else:
                    self._reports.append(RunCheckpoint(run.order.task, run.order.epoch, item[2]))
        if process.out.ended and process.out.fd in self._by_fd:
            self._epoll.unregister(process.out.fd)
            del self._by_fd[process.out.fd]

    def _read_printed(self, process: RunnerProcess, fd: int) -> None:
        text, ended = process.read_printed(fd)
        if text:
            for run in process.runs.values():
                stream = process.printed[fd]
                self._reports.append(RunOutput(run.order.task, run.order.epoch, stream, text))
        if ended and fd in self._by_fd:
            self._epoll.unregister(fd)
            del self._by_fd[fd]

    def _on_ended(self, process: RunnerProcess, run: Run, item: Any) -> None:
        if process.own:
            run.ended = item  # reported when the process is gone
            return
        order = run.order
        if process.kind is Kind.SYNC:
            self._prices.learn(order.handler.function, item[5])  # type: ignore[union-attr]
        elif order.timeout_s is not None or run.stop_reason is not None:
            self._channel.send(control.clear(process.number, run.token))
        if order.timeout_s is not None:
            process.timed -= 1
        self._leave(process, run)
        self._finish(run, self._judge(run, item))

    def _leave(self, process: RunnerProcess, run: Run) -> None:
        del process.runs[run.token]
        process.load_s -= run.cost_s
        binding = process.bindings.get((run.lease.number, run.life_s))
        if binding is not None:
            binding.runs -= 1
            if not binding.runs:
                binding.idle_since = time.monotonic()
        if not process.runs:
            process.load_s = 0.0
            process.idle_since = time.monotonic()

    def _finish(self, run: Run, report: RunReport) -> None:
        order = run.order
        if run.process is not None and run.token in run.process.runs:
            self._leave(run.process, run)
        if run.cost_s:
            self._prices.ended(run.cost_s)
        run.lease.users -= 1
        del self._runs[order.task, order.epoch]
        self._reports.append(report)

    def _judge(self, run: Run, item: Any) -> RunReport:
        """What a run's own end means. One that was asked to stop never succeeded, whatever it says."""
        _, _, code, result, error, _, exit_code = item
        task, epoch = run.order.task, run.order.epoch
        if code == wire.SUCCEEDED and run.stop_reason is None:
            return RunEnded(task, epoch, Outcome.SUCCEEDED, None, result, None, exit_code)
        if code == wire.REFUSED and run.stop_reason is None:
            return Refused(task, epoch, False)
        if run.stop_reason is not None:
            return self._stopped(run, error, exit_code)
        if code == wire.FENCED:
            return RunEnded(task, epoch, Outcome.INTERRUPTED, Cause.FENCED, None, error, exit_code)
        if code == wire.TIMED_OUT:
            text = error or f"time limit of {run.order.timeout_s:g} s"
            return RunEnded(task, epoch, Outcome.TIMED_OUT, None, None, text, exit_code)
        if error is None and exit_code is not None:
            error = _exit_text(exit_code, run.process.tail if run.process is not None else b"")
        return RunEnded(task, epoch, Outcome.FAILED, None, None, error, exit_code)

    def _stopped(self, run: Run, error: str | None = None, exit_code: int | None = None) -> RunEnded:
        outcome = _STOP_OUTCOMES[run.stop_reason or "interrupted"]
        cause = (run.stop_cause or Cause.STOPPED) if outcome is Outcome.INTERRUPTED else None
        return RunEnded(run.order.task, run.order.epoch, outcome, cause, None, error, exit_code)

    # --- ends of processes

    def _on_not_spawned(self, number: int, why: int) -> None:
        process = self._processes[number]
        for run in list(process.runs.values()):
            order = run.order
            report: RunReport = Refused(order.task, order.epoch, why == NotSpawned.REPEATED)
            if why == NotSpawned.FAILED:
                report = _failed(run, "no process could be forked for it")
            if not process.own:
                self._take_back(process, run)
                continue
            self._finish(run, report)
        self._drop(process)

    def _on_gone(self, number: int, why: Why, token: int, status: int, expired: list[tuple[int, float]]) -> None:
        process = self._processes[number]
        process.leaving = True
        for fd in (process.out.fd, *process.printed):
            self._read_process(process, fd)  # what it said before it ended counts
        current = process.page.current() if process.kind is Kind.SYNC and not process.own else 0
        for run in list(process.runs.values()):
            if not run.sent:
                self._take_back(process, run)
            elif run.ended is not None:
                self._finish(run, self._judge(run, run.ended))
            else:
                self._finish(run, self._killed(run, process, why, token, status, expired, current))
        self._drop(process)

    def _take_back(self, process: RunnerProcess, run: Run) -> None:
        """It was not sent, so another process can have it."""
        del process.runs[run.token]
        run.process = None
        if process.kind is Kind.SYNC:
            self._queue.appendleft(run)
        else:
            if self._async is process or self._async is None:
                self._async = self._spawn_shared(Kind.ASYNC)
            self._assign(run, self._async)

    def _killed(
        self,
        run: Run,
        process: RunnerProcess,
        why: Why,
        token: int,
        status: int,
        expired: list[tuple[int, float]],
        current: int,
    ) -> RunEnded:
        """How a run ended whose process is gone without a word about it."""
        task, epoch = run.order.task, run.order.epoch
        if why is Why.FENCED and (run.lease.number, run.life_s) in expired:
            return RunEnded(task, epoch, Outcome.INTERRUPTED, Cause.FENCED)
        if run.stop_reason is not None:
            return self._stopped(run)
        if why is Why.LIMITED and run.token == token:
            return RunEnded(
                task, epoch, Outcome.TIMED_OUT, error=f"time limit of {run.order.timeout_s:g} s: killed after its grace"
            )
        if why is Why.ENDED and (process.own or process.kind is Kind.ASYNC or run.token == current):
            return _failed(run, _status_text(status, len(process.runs)))
        cause = Cause.STOPPED if why is Why.KILLED else Cause.NEIGHBOUR
        return RunEnded(task, epoch, Outcome.INTERRUPTED, cause)

    def _drop(self, process: RunnerProcess) -> None:
        for binding in process.bindings.values():
            binding.lease.users -= 1
        for fd in (process.out.fd, process.in_fd, *process.printed):
            if self._by_fd.pop(fd, None) is not None:
                self._epoll.unregister(fd)
        process.close()
        del self._processes[process.number]
        if process in self._shared:
            self._shared.remove(process)
        if self._async is process:
            self._async = None

    def _tidy(self, now: float) -> None:
        """Let go of leases without runs before they end, and of processes that have long had nothing to do."""
        for process in list(self._processes.values()):
            if process.own or process.leaving:
                continue
            for key, binding in list(process.bindings.items()):
                if binding.bound and not binding.runs and now - binding.idle_since >= _UNBIND_IDLE_S:
                    del process.bindings[key]
                    binding.lease.users -= 1
                    self._channel.send(control.bind(ToGuard.UNBIND, process.number, *key))
            if process.watched_s and not process.timed:
                process.watched_s = 0.0
                self._channel.send(control.watch(process.number, 0.0))
        surplus = len(self._shared) - self._settings.shared_processes
        for process in [item for item in self._shared if not item.runs and now - item.idle_since >= _END_IDLE_S]:
            if surplus > 0:
                surplus -= 1
                process.leaving = True
                self._shared.remove(process)
                process.close_input()
        missing = self._settings.shared_processes - len(self._shared)
        if missing > 0 and "sync" in self._functions.values():
            self._shared.append(self._spawn_shared(Kind.SYNC))

    # --- the end

    def _on_lost(self) -> None:
        """The guard is gone. Runs whose pipes have ended are gone too; of others nothing is claimed."""
        code = self._guard.wait()
        now = linux.boot_s()
        until = time.monotonic() + _GUARD_GONE_WAIT_S
        poll = select.poll()
        for process in self._processes.values():
            poll.register(process.out.fd, select.POLLIN)
        waiting = {process.out.fd: process for process in self._processes.values()}
        while waiting and (left_s := until - time.monotonic()) > 0:
            for fd, _ in poll.poll(left_s * 1000):
                self._read_process(waiting[fd], fd)
                if waiting[fd].out.ended:
                    poll.unregister(fd)
                    del waiting[fd]
        for run in list(self._runs.values()):
            if run.process is not None and run.process.out.fd in waiting:
                continue
            if run.ended is not None:
                self._finish(run, self._judge(run, run.ended))
            else:
                late = now >= run.lease.began + run.life_s - DIE_EARLY_S
                run.stop_reason = run.stop_reason or "interrupted"
                run.stop_cause = run.stop_cause or (Cause.FENCED if late else Cause.STOPPED)
                self._finish(run, self._stopped(run, "the guard is gone"))
        left = "" if not waiting else f"; {len(waiting)} runner(s) could not be seen to end"
        self._lost = f"the guard is gone ({_exit_text(code, b'') if code else 'exit code 0'}){left}"

    def close(self, grace_s: float) -> None:
        """Ends everything; what is left to report can be taken afterwards."""
        if self._closed:
            return
        if self._lost is None:
            for run in list(self._runs.values()):
                self.stop(run.order.task, run.order.epoch, "interrupted", Cause.STOPPED, grace_s)
            until = time.monotonic() + grace_s + 1.0
            while self._runs and not self.lost and time.monotonic() < until:
                self._pump(min(_TICK_S, max(0.0, until - time.monotonic())))
        self._channel.close()  # the guard ends everything and exits
        try:
            self._guard.wait(5.0)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        for process in list(self._processes.values()):
            for fd in (process.out.fd, *process.printed):
                if self._lost is None:
                    self._read_process(process, fd)
        for run in list(self._runs.values()):
            self._finish(run, self._judge(run, run.ended) if run.ended is not None else self._stopped(run))
        for process in list(self._processes.values()):
            self._drop(process)
        self._epoll.close()
        self._table.close()
        self._closed = True


class _Guarded:
    """Turns a broken channel into the end of the guard."""

    def __init__(self, runners: GuardedRunners) -> None:
        self._runners = runners

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, BrokenPipeError | ConnectionResetError):
            if self._runners._lost is None:
                self._runners._on_lost()
            return True
        return False


def _failed(run: Run, error: str) -> RunEnded:
    return RunEnded(run.order.task, run.order.epoch, Outcome.FAILED, error=error)


def _load(process: RunnerProcess) -> float:
    return process.load_s


def _as_sent(run: Run, target: Any) -> tuple[Any, ...]:
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
    )


def _merge(process: RunnerProcess, moved: Binding, key: tuple[int, float], lease: Any) -> None:
    """A binding goes on under another lease, joined with what the process already holds of that."""
    moved.lease = lease
    present = process.bindings.get(key)
    if present is None:
        process.bindings[key] = moved
        return
    lease.users -= 1
    present.runs += moved.runs
    present.waiting += moved.waiting
    present.bound = present.bound or moved.bound


def _resolve(commands: tuple[str, ...]) -> dict[str, str]:
    """What argv[0] may be, and the file that is meant. A name that is not found is left out: it cannot be run."""
    found = {}
    for command in commands:
        path = command if command.startswith("/") else shutil.which(command)
        if path is not None:
            found[command] = path
    return found


def _exit_text(exit_code: int, tail: bytes) -> str:
    number = -exit_code if exit_code < 0 else exit_code - 128
    name = _signal_name(number)
    text = f"exit code {exit_code}" if name is None else f"ended by {name}"
    said = tail.decode("utf-8", "replace").strip()
    return f"{text}: {said}" if said else text


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _status_text(status: int, runs: int) -> str:
    if status == -1:
        text = "its process ended"
    else:
        text = f"its process ended ({_exit_text(os.waitstatus_to_exitcode(status), b'')})"
    return text if runs == 1 else f"{text} with {runs} runs in it"

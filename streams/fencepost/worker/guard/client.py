"""The guard and its runners, as a lane sees them: the `Runners` protocol over real processes."""

from __future__ import annotations

import itertools
import select
import subprocess
import time
from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from fencepost.core.task import Cause, CommandHandler, HttpHandler, Isolation
from fencepost.worker.guard import control, linux, verdict, wire
from fencepost.worker.guard.commands import AllowedCommands
from fencepost.worker.guard.control import Kind, NotSpawned, ToGuard, ToWorker, Why
from fencepost.worker.guard.deadlines import DIE_EARLY_S, END_EARLY_S
from fencepost.worker.guard.hosts import AllowedHosts
from fencepost.worker.guard.leases import Leases
from fencepost.worker.guard.mechanism import Mechanism, frozen_by_cgroup_v1
from fencepost.worker.guard.pool import GROW_AFTER_S, Pool, as_sent, rebind, target_of
from fencepost.worker.guard.process import Run, RunnerProcess
from fencepost.worker.guard.settings import CallSettings, RunnerSettings
from fencepost.worker.guard.start import GuardError, start
from fencepost.worker.guard.verdict import Death
from fencepost.worker.orders import Refused, RunCheckpoint, RunOrder, RunOutput, RunReport

REMEMBERED_TASKS = 200_000
_TICK_S = 0.25
_GUARD_GONE_WAIT_S = 1.0
_NO_PROCESS = "no process could be started for it"
_OWN = Isolation.OWN
_KINDS = {"sync": Kind.SYNC, "async": Kind.ASYNC}


def _require_tls(calls: CallSettings) -> None:
    """At the start, and not in the first run that needs it. Raises GuardError."""
    from fencepost.worker.guard.tls import tls_context  # OpenSSL is for workers that make calls

    try:
        tls_context(calls)
    except ValueError as error:
        raise GuardError(str(error)) from error


class GuardLost(RuntimeError):
    """The guard is gone, and its runners with it. Nothing can be run any more: the worker must end."""


class GuardedRunners:
    """Starts guard and zygote; see `fencepost.worker.orders.Runners` for what each method promises.

    To be made before any Kafka client exists in this process. Raises GuardError, or AppNotImported if the app cannot be
    imported. Not thread-safe: one lane's thread uses it.
    """

    def __init__(self, settings: RunnerSettings) -> None:
        self._settings = settings
        self._commands = AllowedCommands(settings.commands)
        self._hosts = AllowedHosts(settings.calls.hosts)
        if settings.calls.hosts:
            _require_tls(settings.calls)
        started = start(settings)
        self.capacity = settings.slots
        self.mechanism: Mechanism = started.mechanism
        self.declared: list[dict[str, Any]] = started.declared
        self.handlers: set[str] = set(started.functions)
        self._functions = {name: _KINDS[kind] for name, kind in started.functions.items()}
        self._guard = started.process
        self._channel = started.channel
        self._table = started.table
        self._leases = Leases(started.channel, started.table)
        self._strict = frozen_by_cgroup_v1() if settings.strict_stop is None else settings.strict_stop
        self._tokens = itertools.count(1)
        self._numbers = itertools.count(1)
        self._runs: dict[tuple[str, int], Run] = {}
        self._processes: dict[int, RunnerProcess] = {}
        self._beating: dict[int, Run] = {}  # by token: runs that must say something now and then
        self._had: OrderedDict[str, int] = OrderedDict()
        self._reports: list[RunReport] = []
        self._by_fd: dict[int, RunnerProcess] = {}
        self._epoll = select.epoll()
        self._epoll.register(self._channel.fileno(), select.EPOLLIN)
        self._lost: str | None = None
        self._closed = False
        self._next_tick = 0.0
        self._next_beat = 0.0
        keeps_some = Kind.SYNC in self._functions.values()
        self._pool = Pool(settings, started.channel, self._spawn_shared, self._send, keeps_some)
        self._pool.feed()

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
            rebind(process, old, new)

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
        with _Guarded(self):
            for order in orders:
                self._launch(order, now)
            self._pool.feed()

    def _launch(self, order: RunOrder, now: float) -> None:
        if self._had.get(order.task, 0) >= order.epoch:
            self._reports.append(Refused(order.task, order.epoch, True))
            return
        lease = self._leases.find(order.partition, order.nonce)
        life_s = order.lease_ttl_s - self._settings.margin_s
        if lease is None or now >= lease.began + life_s - END_EARLY_S:
            self._reports.append(Refused(order.task, order.epoch, False))
            return
        self._remember(order)
        run = Run(next(self._tokens), order, lease, life_s)
        lease.users += 1
        self._runs[order.task, order.epoch] = run
        self._route(run)

    def _remember(self, order: RunOrder) -> None:
        self._had[order.task] = order.epoch
        if len(self._had) > REMEMBERED_TASKS:
            task, epoch = self._had.popitem(last=False)
            if (task, epoch) in self._runs:
                self._had[task] = epoch

    def _route(self, run: Run) -> None:
        handler = run.order.handler
        if isinstance(handler, CommandHandler):
            executable = self._commands.find(handler.argv[0])
            if executable is None:
                self._finish(run, verdict.failed(run, self._commands.refusal(handler.argv[0])))
                return
            target = (handler.argv, executable, dict(handler.env), handler.cwd)
            self._start_own(run, Kind.COMMAND, target)
            return
        kind: Kind | None
        if isinstance(handler, HttpHandler):
            kind, refusal = Kind.HTTP, self._hosts.refusal_of(handler.url)
        else:
            kind, refusal = self._functions.get(handler.function), None
            if kind is None:
                refusal = f"handler.function: {handler.function!r} is not one of this worker's app"
                refusal += f" ({self._settings.app})"
        if refusal is not None or kind is None:
            self._finish(run, verdict.failed(run, refusal or ""))
        elif run.order.isolation is _OWN or (run.order.strict_stop and not self._strict):
            self._start_own(run, kind, target_of(handler))
        else:
            self._pool.add(run, kind)

    def _start_own(self, run: Run, kind: Kind, target: Any) -> None:
        process = self._new_process(kind, own=True)
        run.process = process
        run.sent = True
        process.runs[run.token] = run
        order = run.order
        flags = control.OWN | (control.STRICT if self._strict or order.strict_stop else 0)
        packet = control.spawn_own(process.number, kind, flags, run.lease.number, run.life_s, order.epoch, order.task)
        self._channel.send(packet, tuple(process.given))
        self._pool.have_limited(process, run)
        self._send(process, (wire.RUNS, [as_sent(run, target)]))

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

    def _send(self, process: RunnerProcess, message: Any) -> None:
        if not process.send(message):
            self._want_out(process)

    def _want_out(self, process: RunnerProcess) -> None:
        if process.in_fd not in self._by_fd:
            self._by_fd[process.in_fd] = process
            self._epoll.register(process.in_fd, select.EPOLLOUT)

    def stop(self, task: str, epoch: int, reason: str, cause: Cause | None, grace_s: float) -> None:
        if reason not in verdict.STOP_OUTCOMES:
            raise ValueError(f"reason: {reason!r} is not one of {', '.join(verdict.STOP_OUTCOMES)}")
        run = self._runs.get((task, epoch))
        if run is None:
            return
        if run.stop_reason is None and run.ended is None:
            run.stop_reason, run.stop_cause = reason, cause
        if not run.sent:
            self._pool.withdraw(run)
            self._finish(run, verdict.stopped(run))
            return
        process = run.process
        assert process is not None
        with _Guarded(self):
            self._channel.send(control.limit(process.number, run.token, linux.boot_s() + grace_s))
            if not process.send_stop(run.token):
                self._want_out(process)

    def holds(self, task: str, epoch: int) -> bool:
        return (task, epoch) in self._runs

    def in_flight(self) -> int:
        return len(self._runs)

    def room(self) -> int:
        if self._lost is not None:
            return 0  # `take` says so once it has told how the runs ended; until then nothing more may be decided
        free = max(0, self._settings.slots - len(self._runs))
        return max(free, self._pool.room(len(self._runs)))

    # --- reports

    def wait(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        self._pump(0.0)
        while not self._reports and self._lost is None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            if self._pool.waiting:
                left_s = min(left_s, GROW_AFTER_S)
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
            self._pool.feed()
            now = time.monotonic()
            if now >= self._next_tick:
                self._next_tick = now + _TICK_S
                self._pool.tidy(now)
                if self._beating:
                    self._stop_silent(now)

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
        if process is None:
            return
        if bound:
            self._pool.confirmed(process, (lease, life_s))
            return
        for run in self._pool.not_confirmed(process, (lease, life_s)):
            self._finish(run, Refused(run.order.task, run.order.epoch, False))

    def _read_process(self, process: RunnerProcess, fd: int) -> None:
        if fd in process.printed:
            self._read_printed(process, fd)
            return
        process.progress_at = time.monotonic()
        for items in process.out.read():
            process.worked = True
            for item in items:
                run = process.runs.get(item[1])
                if run is None:
                    continue
                if item[0] == wire.ENDED:
                    self._on_ended(process, run, item)
                    continue
                if run.order.heartbeat_s is not None:
                    self._heard(run)
                if item[0] == wire.BEAT:
                    continue
                if item[0] == wire.OUTPUT:
                    self._reports.append(RunOutput(run.order.task, run.order.epoch, item[2], item[3]))
                else:
                    self._reports.append(RunCheckpoint(run.order.task, run.order.epoch, item[2]))
        if process.out.ended and process.out.fd in self._by_fd:
            self._epoll.unregister(process.out.fd)
            del self._by_fd[process.out.fd]

    def _read_printed(self, process: RunnerProcess, fd: int) -> None:
        text, ended = process.read_printed(fd)
        for run in process.runs.values():
            if run.heard_s is not None and not ended:
                self._heard(run)  # also where it printed more than is kept
        if text:
            for run in process.runs.values():
                stream = process.printed[fd]
                self._reports.append(RunOutput(run.order.task, run.order.epoch, stream, text))
        if ended and fd in self._by_fd:
            self._epoll.unregister(fd)
            del self._by_fd[fd]

    def _heard(self, run: Run) -> None:
        """The run said something. Its first word is its start, as it may have stood in line before."""
        run.heard_s = time.monotonic()
        self._beating[run.token] = run

    def _stop_silent(self, now: float) -> None:
        for run in list(self._beating.values()):
            heartbeat_s = run.order.heartbeat_s
            if heartbeat_s is None or run.heard_s is None or now - run.heard_s < heartbeat_s:
                continue
            del self._beating[run.token]
            if run.stop_reason is None and run.ended is None:
                run.limit = "heartbeat"
                self.stop(run.order.task, run.order.epoch, "timed_out", None, run.order.grace_s)

    def _on_ended(self, process: RunnerProcess, run: Run, item: Any) -> None:
        if process.own:
            run.ended = item  # reported when the process is gone
            return
        self._pool.ended(process, run, item[5])
        self._finish(run, verdict.said(run, item))

    def _finish(self, run: Run, report: RunReport) -> None:
        order = run.order
        if run.process is not None and run.token in run.process.runs:
            run.process.leave(run)
        if run.cost_s:
            self._pool.prices.ended(run.cost_s)
        run.lease.users -= 1
        self._beating.pop(run.token, None)
        del self._runs[order.task, order.epoch]
        self._reports.append(report)

    # --- ends of processes

    def _on_not_spawned(self, number: int, why: int) -> None:
        process = self._processes[number]
        if not process.own:
            self._could_not_start(process)
        for run in list(process.runs.values()):
            if why == NotSpawned.FAILED:
                self._finish(run, verdict.failed(run, _NO_PROCESS))
            else:
                self._finish(run, Refused(run.order.task, run.order.epoch, why == NotSpawned.REPEATED))
        self._drop(process)

    def _could_not_start(self, process: RunnerProcess) -> None:
        """What waits for a process that takes runs one by one may wait for another; coroutines fail."""
        self._pool.leaves(process)
        self._pool.could_not_start()
        for run in list(process.runs.values()):
            if run.sent:
                continue
            if process.kind is Kind.SYNC:
                self._pool.take_back(process, run)
            else:
                self._finish(run, verdict.failed(run, _NO_PROCESS))

    def _on_gone(self, number: int, why: Why, token: int, status: int, expired: list[tuple[int, float]]) -> None:
        process = self._processes[number]
        self._pool.leaves(process)
        for fd in (process.out.fd, *process.printed):
            self._read_process(process, fd)  # what it said before it ended counts
        if why is Why.ENDED and not process.worked and not process.own:
            self._could_not_start(process)
        death = Death(why, token, status, tuple(expired), process.page.current())
        for run in list(process.runs.values()):
            if not run.sent:
                self._pool.take_back(process, run)
            elif run.ended is not None:
                self._finish(run, verdict.said(run, run.ended))
            else:
                self._finish(run, verdict.killed(run, process, death))
        self._drop(process)

    def _drop(self, process: RunnerProcess) -> None:
        for binding in process.bindings.values():
            binding.lease.users -= 1
        for fd in (process.out.fd, process.in_fd, *process.printed):
            if self._by_fd.pop(fd, None) is not None:
                self._epoll.unregister(fd)
        process.close()
        del self._processes[process.number]

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
                self._finish(run, verdict.said(run, run.ended))
            else:
                late = now >= run.lease.began + run.life_s - DIE_EARLY_S
                run.stop_reason = run.stop_reason or "interrupted"
                run.stop_cause = run.stop_cause or (Cause.FENCED if late else Cause.STOPPED)
                self._finish(run, verdict.stopped(run, "the guard is gone"))
        left = "" if not waiting else f"; {len(waiting)} runner(s) could not be seen to end"
        self._lost = f"the guard is gone ({verdict.exit_text(code)}){left}"

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
            self._finish(run, verdict.said(run, run.ended) if run.ended is not None else verdict.stopped(run))
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

"""The guard's loop: one thread, no task code, nothing but the standard library.

It ends a runner when a lease that the runner is bound to ends, when a run has passed its limit, when the worker asks
for it, and ends everything when the worker is gone. Before it confirms anything that lets a run start, its own kernel
timer stands at the earliest deadline: if the guard itself is frozen, it dies before its next instruction, and its
runners with it.
"""

from __future__ import annotations

import heapq
import json
import os
import select
import signal
import socket
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NoReturn

from fencepost.worker.guard import control, house, linux, orphans
from fencepost.worker.guard.control import FromZygote, Kind, NotSpawned, ToGuard, ToWorker, Why
from fencepost.worker.guard.deadlines import DIE_EARLY_S, Deadlines, Key
from fencepost.worker.guard.house import House, say
from fencepost.worker.guard.init import ENDED
from fencepost.worker.guard.page import Page

REMEMBERED_TASKS = 50_000
_LOOK_EVERY_S = 0.01  # at most so often, however short a time limit is


@dataclass(slots=True)
class _Runner:
    number: int
    kind: int
    own: bool
    page: Page
    pidfd: int = -1  # -1: not forked yet
    pid: int = -1  # as the guard sees it
    limits: dict[int, float] = field(default_factory=dict)
    shortest_s: float = 0.0  # of the time limits of its runs; 0: none has one
    why: Why | None = None  # set once it is being ended
    token: int = 0
    expired: list[Key] = field(default_factory=list)
    status: int = -1


class Guard:
    def __init__(self, worker: socket.socket, zygote: socket.socket, home: House, beat_ttl_s: float) -> None:
        self._worker = control.Channel(worker)
        self._zygote = control.Channel(zygote)
        self._house = home
        self._beat_ttl_s = beat_ttl_s
        self._beat_at: float | None = None
        self._worker_pidfd = os.pidfd_open(os.getppid())
        self._zygote_session = home.zygote  # it made a session of its own before anything else
        self._deadlines = Deadlines()
        self._timer = linux.KillTimer()
        self._wake = linux.WakeTimer()
        self._runners: dict[int, _Runner] = {}
        self._by_pid: dict[int, _Runner] = {}  # by the PID the zygote sees
        self._known: set[int] = {home.zygote}
        self._told: dict[int, int] = {}  # who ended since the last look, with the status
        self._dead: list[_Runner] = []  # ended, but what they left behind is not yet
        self._looks: list[tuple[float, int, int]] = []  # heap: when, runner, token (0: look at its page)
        self._had: OrderedDict[bytes, int] = OrderedDict()
        self._epoll = select.epoll()
        for fd in (self._zygote.fileno(), home.ended_fd, self._wake.fd, self._worker_pidfd):
            self._epoll.register(fd, select.EPOLLIN)
        self._worker_wants = 0
        self._hastens = False

    def run(self) -> NoReturn:
        while True:
            self._await_worker()
            self._wake.set(self._next_look())
            for fd, _ in self._epoll.poll():
                if fd == self._worker_pidfd:
                    self.leave(0)
                if fd == self._wake.fd:
                    self._wake.fired()
            self._flush()
            self._read_worker()
            self._read_deaths()
            self._enforce(linux.boot_s())
            self._settle()
            self._arm()

    # --- messages

    def _await_worker(self) -> None:
        wants = select.EPOLLIN | (select.EPOLLOUT if self._worker.backed_up else 0)
        if wants != self._worker_wants:
            change = self._epoll.modify if self._worker_wants else self._epoll.register
            change(self._worker.fileno(), wants)
            self._worker_wants = wants

    def _flush(self) -> None:
        self._zygote.flush()
        self._tell(b"")

    def _tell(self, packet: bytes) -> None:
        try:
            if packet:
                self._worker.send(packet)
            else:
                self._worker.flush()
        except OSError:
            self.leave(0)

    def _read_worker(self) -> None:
        while (received := self._worker.receive()) is not None:
            packet, fds = received
            if not packet:
                self.leave(0)
            self._obey(packet, fds)

    def _obey(self, packet: bytes, fds: list[int]) -> None:
        code = packet[0]
        if code == ToGuard.LEASE:
            self._deadlines.renew(*control.read_lease(packet))
        elif code == ToGuard.BEAT:
            self._beat_at = linux.boot_s()
        elif code == ToGuard.BIND:
            self._bind(*control.read_bind(packet))
        elif code == ToGuard.UNBIND:
            runner, lease, life_s = control.read_bind(packet)
            self._deadlines.unbind(runner, (lease, life_s))
        elif code == ToGuard.LIMIT:
            self._limit(*control.read_limit(packet))
        elif code == ToGuard.CLEAR:
            self._clear(*control.read_clear(packet))
        elif code == ToGuard.WATCH:
            self._watch(*control.read_watch(packet))
        elif code == ToGuard.SPAWN_SHARED:
            self._fork(*control.read_fork(packet), fds)
        elif code == ToGuard.SPAWN_OWN:
            self._spawn_own(packet, fds)
        elif code == ToGuard.KILL:
            self._kill(control.read_one(packet))
        elif code == ToGuard.REBIND:
            self._deadlines.rebind(*control.read_pair(packet))
        elif code == ToGuard.FORGET:
            self._deadlines.forget(control.read_one(packet))
        elif code == ToGuard.CLOSE:
            self.leave(0)

    def _bind(self, number: int, lease: int, life_s: float) -> None:
        runner = self._runners.get(number)
        alive = runner is not None and runner.why is None and runner.status == -1
        if alive and self._deadlines.bind(number, (lease, life_s), linux.boot_s()):
            self._arm()
            self._tell(control.bind(ToWorker.BOUND, number, lease, life_s))
        else:
            self._tell(control.bind(ToWorker.NOT_BOUND, number, lease, life_s))

    def _spawn_own(self, packet: bytes, fds: list[int]) -> None:
        number, kind, flags, lease, life_s, epoch, task = control.read_spawn_own(packet)
        refused = None
        if self._had.get(task, 0) >= epoch:
            refused = NotSpawned.REPEATED
        elif not self._deadlines.bind(number, (lease, life_s), linux.boot_s()):
            refused = NotSpawned.LATE
        if refused is not None:
            for fd in fds:
                os.close(fd)
            self._tell(control.small(ToWorker.NOT_SPAWNED, number, refused))
            return
        self._had[task] = epoch
        self._had.move_to_end(task)
        if len(self._had) > REMEMBERED_TASKS:
            self._had.popitem(last=False)
        self._arm()
        self._fork(number, kind, flags, fds)

    def _fork(self, number: int, kind: int, flags: int, fds: list[int]) -> None:
        page = Page(fds[2])  # order of the descriptors: in, out, page, and for own ones stdout, stderr
        self._runners[number] = _Runner(number, kind, bool(flags & control.OWN), page)
        self._zygote.send(control.fork(number, kind, flags), tuple(fds))

    # --- deaths

    def _read_deaths(self) -> None:
        ended = self._ended_by_init() if self._house.init is not None else self._reap()
        self._told = dict(ended)
        self._read_zygote()  # after that, so that whoever ended is known by now
        for pid, status in ended:
            runner = self._by_pid.pop(pid, None)
            if runner is not None:
                self._ended(runner, status)

    def _ended_by_init(self) -> list[tuple[int, int]]:
        try:
            data = os.read(self._house.ended_fd, ENDED.size * 512)
        except BlockingIOError:
            return []
        if not data:
            self.leave(1, "the runners' PID 1 is gone")
        ended = list(ENDED.iter_unpack(data))
        if any(pid == _ZYGOTE_INSIDE for pid, _ in ended):
            self.leave(1, "the zygote is gone")
        return ended

    def _reap(self) -> list[tuple[int, int]]:
        try:
            os.read(self._house.ended_fd, 4096)
        except BlockingIOError:
            return []
        ended = []
        while (found := _reap_one()) is not None:
            if found[0] == self._house.zygote:
                self.leave(1, "the zygote is gone")
            ended.append(found)
        return ended

    def _read_zygote(self) -> None:
        while (received := self._zygote.receive()) is not None:
            packet, fds = received
            if not packet:
                self.leave(1, "the zygote is gone")
            number, value = control.read_small(packet)
            runner = self._runners[number]
            if packet[0] == FromZygote.NOT_FORKED:
                del self._runners[number]
                self._deadlines.drop(number)
                self._tell(control.small(ToWorker.NOT_SPAWNED, number, NotSpawned.FAILED))
                continue
            runner.pidfd = fds[0]
            runner.pid = orphans.pid_of(runner.pidfd)
            self._by_pid[value] = runner
            self._known.add(runner.pid)
            self._tell(control.one(ToWorker.SPAWNED, number))
            if runner.pid == -1:  # gone already: told by now, or killed by somebody before it was let go
                del self._by_pid[value]
                self._ended(runner, self._told.get(value, -1))
            elif runner.why is not None:
                self._kill_now(runner)

    def _ended(self, runner: _Runner, status: int) -> None:
        runner.status = status
        runner.why = runner.why or Why.ENDED
        self._known.discard(runner.pid)
        os.close(runner.pidfd)
        runner.pidfd = -1
        self._dead.append(runner)

    def _settle(self) -> None:
        """Report dead runners once nothing is left of them: what a dead runner leaves becomes a child of the reaper."""
        if not self._dead:
            return
        children = orphans.children(self._house.reaper)
        self._read_zygote()
        left = [pid for pid in children if pid not in self._known and orphans.is_orphan(pid, self._zygote_session)]
        for pid in left:
            orphans.kill_child(pid, self._house.reaper)
        if left:
            return  # their deaths wake the loop
        for runner in self._dead:
            self._deadlines.drop(runner.number)
            del self._runners[runner.number]
            runner.page.close()
            why = runner.why or Why.ENDED
            self._tell(control.gone(runner.number, why, runner.token, runner.status, runner.expired))
        self._dead.clear()

    # --- time

    def _enforce(self, now: float) -> None:
        for number, keys in self._deadlines.expired(now).items():
            for key in keys:
                self._deadlines.told(key)
            self._runners[number].expired = self._runners[number].expired or keys
            self._end(self._runners[number], Why.FENCED)
        for number in self._deadlines.to_ask(now):
            runner = self._runners[number]
            if runner.pidfd != -1 and runner.why is None:
                orphans.kill_pidfd(runner.pidfd, signal.SIGTERM)
        while self._looks and self._looks[0][0] <= now:
            _, number, token = heapq.heappop(self._looks)
            if number in self._runners:
                self._look(self._runners[number], token, now)
        if self._beat_at is not None and now >= self._beat_at + self._beat_ttl_s:
            orphans.kill_pidfd(self._worker_pidfd)
            self.leave(1, f"the worker's loop has not beaten for {self._beat_ttl_s:g} s: worker ended")

    def _limit(self, number: int, token: int, at: float) -> None:
        runner = self._runners.get(number)
        if runner is not None and at < runner.limits.get(token, float("inf")):
            runner.limits[token] = at
            heapq.heappush(self._looks, (at, number, token))

    def _kill(self, number: int) -> None:
        if number in self._runners:
            self._end(self._runners[number], Why.KILLED)

    def _clear(self, number: int, token: int) -> None:
        if number in self._runners:
            self._runners[number].limits.pop(token, None)

    def _watch(self, number: int, shortest_s: float) -> None:
        runner = self._runners.get(number)
        if runner is None:
            return
        if shortest_s and (not runner.shortest_s or shortest_s < runner.shortest_s):
            heapq.heappush(self._looks, (linux.boot_s() + shortest_s, number, 0))
        runner.shortest_s = shortest_s

    def _look(self, runner: _Runner, token: int, now: float) -> None:
        if token:
            at = runner.limits.get(token)
            if at is not None and at <= now:
                del runner.limits[token]
                one_at_a_time = runner.kind == Kind.SYNC and not runner.own
                if not one_at_a_time or runner.page.current() == token:
                    self._end(runner, Why.LIMITED, token)
            return
        if not runner.shortest_s:
            return
        current, kill_at = runner.page.limit()
        if current and kill_at <= now:
            self._end(runner, Why.LIMITED, current)
            return
        # A run that starts after this look cannot pass its limit before the shortest limit has gone by.
        again = now + max(_LOOK_EVERY_S, runner.shortest_s)
        heapq.heappush(self._looks, (min(again, kill_at) if current else again, runner.number, 0))

    def _end(self, runner: _Runner, why: Why, token: int = 0) -> None:
        if runner.why is None:
            runner.why, runner.token = why, token
            if runner.pidfd != -1:
                self._kill_now(runner)

    def _kill_now(self, runner: _Runner) -> None:
        orphans.kill_pidfd(runner.pidfd)
        if self._hastens and orphans.pid_of(runner.pidfd) == runner.pid:
            linux.hasten(runner.pid)

    def _next_look(self) -> float | None:
        times = [self._deadlines.next_look(), self._looks[0][0] if self._looks else None]
        if self._beat_at is not None:
            times.append(self._beat_at + self._beat_ttl_s)
        return min((time for time in times if time is not None), default=None)

    def _arm(self) -> None:
        first = self._deadlines.first()
        if first is None:
            self._timer.disarm()
        else:
            self._timer.arm(first - DIE_EARLY_S)

    def ready(self) -> None:
        notes = list(self._house.notes)
        scheduling = linux.raise_priority()
        self._hastens = scheduling == "fifo"
        about = {"containment": self._house.containment, "scheduling": scheduling, "notes": notes}
        self._tell(bytes([ToWorker.READY]) + json.dumps(about).encode())

    # --- the end

    def leave(self, code: int, reason: str = "") -> NoReturn:
        """End everything, wait until it is gone, exit."""
        if reason:
            say(reason)
        if self._house.init is not None:
            # Unreaped, so the number is its own. Its end is complete when everything in its namespace is gone.
            os.kill(self._house.init, signal.SIGKILL)
            os.waitpid(self._house.init, 0)
        else:
            for runner in self._runners.values():
                if runner.pidfd != -1:
                    orphans.kill_pidfd(runner.pidfd)
            house.end_children()
        os._exit(code)


_ZYGOTE_INSIDE = 2  # the second process of a PID namespace


def _reap_one() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def main(argv: list[str]) -> NoReturn:
    """argv: worker's socket, configuration, hello pipe, lease table, beat_ttl_s, containment, python, start file."""
    worker_fd, config_fd, hello_fd, table_fd = (int(text) for text in argv[:4])
    beat_ttl_s, wanted, python, start_file = float(argv[4]), argv[5], argv[6], argv[7]
    for fd in (worker_fd, config_fd, hello_fd, table_fd):
        os.set_inheritable(fd, False)  # the zygote gets only what it is given
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the worker's end is its end, nothing else
    linux.set_name("fencepost-guard")
    linux.become_subreaper()
    ours, zygotes = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life_read, life_write = os.pipe2(os.O_CLOEXEC)
    keep = (zygotes.fileno(), config_fd, hello_fd, table_fd, life_read)
    zygote_argv = [python, start_file, *(str(fd) for fd in keep)]
    built = house.build(wanted, zygote_argv, keep, life_read)
    for fd in (config_fd, hello_fd, table_fd, life_read):
        os.close(fd)
    zygotes.close()
    worker = socket.socket(fileno=worker_fd)
    guard = Guard(worker, ours, built, beat_ttl_s)
    guard.ready()
    del life_write  # stays open as long as this process lives
    try:
        guard.run()
    except BaseException as error:  # noqa: BLE001 - whatever went wrong, nothing may outlive the guard
        guard.leave(1, f"{type(error).__name__}: {error}")
    sys.exit(1)

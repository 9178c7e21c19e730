"""Functions, one at a time. The process goes on to the next run, or ends after its only one."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from fencepost.run_context import RunContext
from fencepost.worker.guard import linux, results, wire
from fencepost.worker.guard.deadlines import END_EARLY_S, ask_early_s
from fencepost.worker.guard.page import LeaseTable, Page
from fencepost.worker.guard.sender import RunStream, Sender
from fencepost.worker.guard.strict import StrictStop
from fencepost.worker.guard.wire import Field

_FLUSH_AFTER_S = 0.002  # results wait for company at most so long
_REAP_EVERY_S = 1.0


class SyncRunner:
    def __init__(
        self,
        functions: Mapping[str, Callable[[RunContext], Any]],
        in_fd: int,
        out_fd: int,
        page: Page,
        table: LeaseTable,
        own: bool,
        strict: bool,
    ) -> None:
        self._functions = functions
        self._in = wire.Reader(in_fd)
        self._sender = Sender(out_fd)
        self._page = page
        self._table = table
        self._own = own
        self._strict = StrictStop(table) if strict else None
        self._queue: deque[Any] = deque()
        self._stopped: set[int] = set()
        self._seen_stops = 0
        self._token = 0  # of the run that is on
        self._lease: tuple[int, float] | None = None  # its slot and life_s
        self._ask_at = 0.0  # when its time limit is reached; 0: it has none
        self._asked = False  # its lease is about to end
        self._heeded = False  # and it has been told so
        self._names: tuple[str, ...] = ()  # of the exception that the run ended with

    def serve(self) -> None:
        """Returns when the worker closed the pipe, or after the only run."""
        signal.signal(signal.SIGTERM, self._on_ask)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # held back since the fork, see zygote.py
        sys.stdout = RunStream("out", 1, self._current, self._sender)
        sys.stderr = RunStream("err", 2, self._current, self._sender)
        poll = select.poll()
        poll.register(self._in.fd, select.POLLIN)
        while True:
            if not self._queue:
                self._page.end()
                self._sender.flush()
                self._hold()
                # Children of past runs may be there, ended or not: look again now and then.
                while not poll.poll(_REAP_EVERY_S * 1000 if _reap_left_behind() else None):
                    continue
                self._read()
                if self._in.ended:
                    return
            last_flush = time.perf_counter()
            while self._queue:
                last_flush = self._next(last_flush)
                if self._own:
                    self._sender.flush()
                    return

    def _read(self) -> None:
        for message in self._in.read():
            if message[0] == wire.RUNS:
                self._queue.extend(message[1])
            else:
                self._stopped.add(message[1])
        self._hold()

    def _hold(self) -> None:
        if self._strict is not None:
            leases = {(run[Field.SLOT], run[Field.LIFE_S]) for run in self._queue}
            if self._lease is not None:
                leases.add(self._lease)
            self._strict.hold(leases)

    def _next(self, last_flush: float) -> float:
        run = self._queue.popleft()
        began = time.perf_counter()
        code, result, error = self._start(run)
        ended = time.perf_counter()
        token = run[Field.TOKEN]
        names = self._names if code == wire.FAILED else ()
        self._sender.ended(token, code, result, error, int((ended - began) * 1e6), None, names)
        self._token = 0
        self._lease = None
        if ended - last_flush > _FLUSH_AFTER_S:
            self._sender.flush()
            return ended
        return last_flush

    def _start(self, run: Any) -> tuple[int, Any, str | None]:
        token, task, epoch, attempt, target, payload, headers, scheduled_for_ms, key, checkpoint = run[:10]
        timeout_s, grace_s, slot, life_s, beats, more = run[10:]
        now = linux.boot_s()
        self._lease = slot, life_s
        self._look_for_stops()
        if token in self._stopped:
            self._stopped.discard(token)
            return wire.STOPPED, None, None
        if now >= self._table.get(slot) + life_s - END_EARLY_S:
            return wire.REFUSED, None, None
        self._ask_at = now + timeout_s if timeout_s is not None else 0.0
        self._asked = self._heeded = False
        self._token = token
        self._page.begin(token, self._ask_at + grace_s if timeout_s is not None else 0.0)
        limit = self._ask_at or None
        context = RunContext(
            task, epoch, attempt, payload, headers, scheduled_for_ms, key, checkpoint, limit, self, token,
            **(more or {}),
        )  # fmt: skip
        error = result = None
        self._names = ()
        if beats:
            self._sender.beat(token)
        try:
            result = self._functions[target](context)
            error = None if result is None else results.unfit(result)
        except BaseException as raised:  # noqa: BLE001 - also SystemExit: the run failed, the runner goes on
            error = results.describe(raised)
            self._names = results.names_of(raised)
        return self._judge(token, result, error)

    def _judge(self, token: int, result: Any, error: str | None) -> tuple[int, Any, str | None]:
        self._look_for_stops()
        if token in self._stopped:
            self._stopped.discard(token)
            return wire.STOPPED, None, error
        if self._ask_at and linux.boot_s() >= self._ask_at:
            return wire.TIMED_OUT, None, error
        if self._heeded:
            return wire.FENCED, None, error
        if error is not None:
            return wire.FAILED, None, error
        return wire.SUCCEEDED, result, None

    def _look_for_stops(self) -> None:
        stops = self._page.stops()
        if stops != self._seen_stops:
            self._seen_stops = stops
            self._read()

    def _on_ask(self, _number: int, _frame: FrameType | None) -> None:
        """The guard says that a lease is about to end."""
        if self._lease is None:
            return
        slot, life_s = self._lease
        if linux.boot_s() >= self._table.get(slot) + life_s - ask_early_s(life_s):
            self._asked = True

    def _current(self) -> int:
        return self._token

    # --- RunLink

    def cancelled(self, token: int) -> bool:
        if token != self._token:
            return True  # a thread that outlived its run
        self._look_for_stops()
        if token in self._stopped or (self._ask_at and linux.boot_s() >= self._ask_at):
            return True
        self._heeded = self._heeded or self._asked
        return self._asked

    def checkpoint(self, token: int, data: Any) -> None:
        if token == self._token:
            self._sender.checkpoint(token, data)

    def heartbeat(self, token: int) -> None:
        if token == self._token:
            self._sender.beat(token)

    def log(self, token: int, text: str) -> None:
        if token == self._token:
            self._sender.printed(token, "log", text if text.endswith("\n") else text + "\n")


def _reap_left_behind() -> bool:
    """Reap children that ended and that nobody will wait for, or runs that fork and forget would pile up zombies here.

    Returns whether there are children at all.

    A child that a live Popen object stands for is left to it; asking for one would make it report a wrong exit code.
    """
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return True
    except ChildProcessError:
        return False
    awaited = {
        item.pid
        for item in gc.get_objects()
        if isinstance(item, subprocess.Popen) or type(item).__module__.startswith("multiprocessing.popen")
    }
    for pid in _children():
        if pid not in awaited:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
    return True


def _children() -> list[int]:
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/children", "rb") as file:
            found += [int(text) for text in file.read().split()]
    return found

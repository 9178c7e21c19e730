"""Coroutines, many at a time in one process: an event loop. Whoever does not heed its cancellation ends the process."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from fencepost.run_context import RunContext
from fencepost.worker.guard import linux, results, wire
from fencepost.worker.guard.deadlines import END_EARLY_S, ask_early_s
from fencepost.worker.guard.page import LeaseTable
from fencepost.worker.guard.sender import RunStream, Sender
from fencepost.worker.guard.strict import StrictStop
from fencepost.worker.guard.wire import Field

_TOKEN: contextvars.ContextVar[int] = contextvars.ContextVar("fencepost_token", default=0)


class AsyncRunner:
    def __init__(
        self,
        function_of: Callable[[Any], Callable[[RunContext], Any]],
        in_fd: int,
        out_fd: int,
        table: LeaseTable,
        own: bool,
        strict: bool,
    ) -> None:
        self._function_of = function_of
        self._in = wire.Reader(in_fd)
        self._sender = Sender(out_fd)
        self._table = table
        self._own = own
        self._strict = StrictStop(table) if strict else None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._leases: dict[int, tuple[int, float]] = {}
        self._why: dict[int, int] = {}  # runs that were asked to stop
        self._flushing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None

    def serve(self) -> None:
        """Returns when the worker closed the pipe, or after the only run."""
        sys.stdout = RunStream("out", 1, _TOKEN.get, self._sender)
        sys.stderr = RunStream("err", 2, _TOKEN.get, self._sender)
        asyncio.run(self._serve())
        self._sender.flush()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._loop.add_signal_handler(signal.SIGTERM, self._on_ask)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # held back since the fork, see zygote.py
        self._loop.add_reader(self._in.fd, self._read)
        await self._over.wait()
        self._loop.remove_reader(self._in.fd)

    def _read(self) -> None:
        assert self._over is not None
        for message in self._in.read():
            if message[0] == wire.RUNS:
                for run in message[1]:
                    self._begin(run)
            else:
                self._cancel(message[1], wire.STOPPED)
        if self._in.ended:
            self._over.set()

    def _begin(self, run: Any) -> None:
        assert self._loop is not None
        token, slot, life_s = run[Field.TOKEN], run[Field.SLOT], run[Field.LIFE_S]
        if linux.boot_s() >= self._table.get(slot) + life_s - END_EARLY_S:
            self._end(token, wire.REFUSED, None, None, 0)
            return
        self._leases[token] = slot, life_s
        self._hold()
        self._tasks[token] = self._loop.create_task(self._run(run), name=f"{run[Field.TASK]}#{run[Field.EPOCH]}")

    async def _run(self, run: Any) -> None:
        assert self._loop is not None
        token, task, epoch, attempt, target, payload, headers, scheduled_for_ms, key, checkpoint = run[:10]
        timeout_s = run[Field.TIMEOUT_S]
        _TOKEN.set(token)
        began = time.perf_counter()
        limit = None if timeout_s is None else linux.boot_s() + timeout_s
        clock = None
        if timeout_s is not None:
            clock = self._loop.call_later(timeout_s, self._cancel, token, wire.TIMED_OUT)
        context = RunContext(
            task, epoch, attempt, payload, headers, scheduled_for_ms, key, checkpoint, limit, self, token,
            **(run[Field.MORE] or {}),
        )  # fmt: skip
        error = result = None
        names: tuple[str, ...] = ()
        if run[Field.BEATS]:
            self._sender.beat(token)
        failed = wire.FAILED
        try:
            result = await self._function_of(target)(context)
            error = results.unfit(result)
        except results.Failed as raised:
            error, failed, names = str(raised), wire.FINAL if raised.final else wire.FAILED, raised.names
        except BaseException as raised:  # noqa: BLE001 - also its cancellation: the run ends here, the runner goes on
            error = results.describe(raised)
            names = results.names_of(raised)
        if clock is not None:
            clock.cancel()
        code = self._why.pop(token, failed if error is not None else wire.SUCCEEDED)
        took_us = int((time.perf_counter() - began) * 1e6)
        self._end(token, code, result if code == wire.SUCCEEDED else None, error, took_us, names)

    def _end(
        self, token: int, code: int, result: Any, error: str | None, took_us: int, names: tuple[str, ...] = ()
    ) -> None:
        assert self._loop is not None
        assert self._over is not None
        self._tasks.pop(token, None)
        self._leases.pop(token, None)
        self._hold()
        self._sender.ended(token, code, result, error, took_us, None, names if code == wire.FAILED else ())
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        if self._own:
            self._over.set()

    def _hold(self) -> None:
        if self._strict is not None:
            self._strict.hold(set(self._leases.values()))

    def _flush(self) -> None:
        self._flushing = False
        self._sender.flush()

    def _cancel(self, token: int, why: int) -> None:
        task = self._tasks.get(token)
        if task is not None and token not in self._why:
            self._why[token] = why
            task.cancel()

    def _on_ask(self) -> None:
        """The guard says that a lease is about to end: the runs under it are cancelled."""
        now = linux.boot_s()
        for token, (slot, life_s) in list(self._leases.items()):
            if now >= self._table.get(slot) + life_s - ask_early_s(life_s):
                self._cancel(token, wire.FENCED)

    # --- RunLink

    def cancelled(self, token: int) -> bool:
        return token in self._why or token not in self._tasks

    def checkpoint(self, token: int, data: Any) -> None:
        if token in self._tasks:
            self._sender.checkpoint(token, data)

    def heartbeat(self, token: int) -> None:
        if token in self._tasks:
            self._sender.beat(token)

    def log(self, token: int, text: str) -> None:
        if token in self._tasks:
            self._sender.printed(token, "log", text if text.endswith("\n") else text + "\n")

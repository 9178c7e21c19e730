"""Imports the user's app once and forks runners from it. It is never the runners' parent: a fat parent dies slowly."""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from fencepost import codec
from fencepost.run_context import belong_to
from fencepost.worker.guard import control, linux, runner
from fencepost.worker.guard.control import FromZygote
from fencepost.worker.guard.page import LeaseTable
from fencepost.worker.guard.settings import CallSettings

_PID = struct.Struct("<i")


def main(fds: list[int], config: bytes) -> NoReturn:
    """fds: the guard's socket, (configuration, read already), hello pipe, lease table, life pipe."""
    guard_fd, _, hello_fd, table_fd, life_fd = fds
    settings = codec.loads_own(config)
    linux.set_name("fencepost-zygot")
    for fd in (guard_fd, hello_fd, table_fd, life_fd):
        os.set_inheritable(fd, False)
    table = LeaseTable(table_fd)
    os.close(table_fd)
    belong_to(settings["namespace"])
    functions, hello = _load(settings["app"])
    refused = runner.refused_privileges(settings["uid"], settings["gid"])
    if refused:
        hello = {"error": refused}
    _say_hello(hello_fd, hello)
    while "error" in hello:
        signal.pause()  # the worker says what was wrong and ends everything
    calls = CallSettings(**{**settings["calls"], "hosts": tuple(settings["calls"]["hosts"])})
    around = runner.Surroundings(
        functions, table, life_fd, settings["uid"], settings["gid"], tuple(settings["keep_env"]), calls
    )
    gc.collect()
    gc.freeze()  # what is there now is shared by all runners and never collected by one
    _serve(socket.socket(fileno=guard_fd), around)
    os._exit(0)


def _load(app: str | None) -> tuple[dict[str, Callable[..., Any]], dict[str, Any]]:
    """The app's functions, and what the worker is told: declarations and kinds of functions, or what went wrong."""
    if app is None:
        return {}, {"functions": {}, "declared": [], "notes": []}
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    module, _, name = app.partition(":")
    try:
        found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
        functions = dict(found.handlers())
        declared = list(found.declared())
    except BaseException:  # noqa: BLE001 - also SystemExit at import: the worker is told and stops
        return {}, {"error": traceback.format_exc()}
    kinds = {key: "async" if _is_async(function) else "sync" for key, function in functions.items()}
    notes = []
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        notes.append(f"importing {app} started {threads - 1} thread(s): those and clients are dead in runners")
    return functions, {"functions": kinds, "declared": declared, "notes": notes}


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _say_hello(fd: int, hello: dict[str, Any]) -> None:
    try:
        data = memoryview(codec.dumps(hello))
    except codec.NotEncodable as error:
        data = memoryview(codec.dumps({"error": f"the app's declarations: {error}"}))
    while data:
        data = data[os.write(fd, data) :]
    os.close(fd)


def _serve(guard: socket.socket, around: runner.Surroundings) -> None:
    """Fork what the guard asks for, until it is gone."""
    while True:
        packet, fds, _, _ = socket.recv_fds(guard, control.MAX_PACKET, 8, socket.MSG_CMSG_CLOEXEC)
        if not packet:
            return
        number, kind, flags = control.read_fork(packet)
        try:
            pid, go = _fork(guard, around, kind, flags, fds)
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            guard.send(control.small(FromZygote.NOT_FORKED, number, error.errno or 0))
            continue
        finally:
            for fd in fds:
                os.close(fd)
        socket.send_fds(guard, [control.small(FromZygote.FORKED, number, pid)], [pidfd])
        os.close(pidfd)
        _let_go(go)


def _let_go(go: int) -> None:
    """Only once the guard was told of the runner: it knows it before it runs anything."""
    try:
        os.write(go, b"g")
    except BrokenPipeError:
        return  # the guard has ended it already
    finally:
        os.close(go)


def _fork(guard: socket.socket, around: runner.Surroundings, kind: int, flags: int, fds: list[int]) -> tuple[int, int]:
    """Fork twice, so that the guard (or init) becomes the parent. PID, and a pipe to let it go once that is so."""
    go_read, go_write = os.pipe2(os.O_CLOEXEC)
    pid_read, pid_write = os.pipe2(os.O_CLOEXEC)
    try:
        # The guard may ask a runner to stop while that still starts: SIGTERM waits until the runner has its handler.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            between = os.fork()
            if between == 0:
                _between(guard, around, kind, flags, fds, go_read, pid_write, (go_write, pid_read))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        # Its end completes the hand-over: the runner has its new parent.
        os.waitpid(between, 0)
        os.close(pid_write)
        pid_write = -1
        told = os.read(pid_read, _PID.size)
    except OSError:
        os.close(go_write)
        raise
    finally:
        for fd in (go_read, pid_read, pid_write):
            if fd != -1:
                os.close(fd)
    if not told:
        os.close(go_write)
        raise OSError(11, "fork")
    return _PID.unpack(told)[0], go_write


def _between(
    guard: socket.socket,
    around: runner.Surroundings,
    kind: int,
    flags: int,
    fds: list[int],
    go_read: int,
    pid_write: int,
    not_ours: tuple[int, ...],
) -> NoReturn:
    try:
        pid = os.fork()
        if pid == 0:
            for fd in (*not_ours, pid_write):
                os.close(fd)
            guard.close()
            if os.read(go_read, 1) != b"g":
                os._exit(1)
            os.close(go_read)
            runner.become(around, kind, flags, fds)
        os.write(pid_write, _PID.pack(pid))
    finally:
        os._exit(0)

"""How a forked process becomes a runner. The order of the steps makes it certain that it dies with its guard."""

from __future__ import annotations

import fcntl
import os
import pwd
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from fencepost.run_context import RunContext
from fencepost.worker.guard import control, linux
from fencepost.worker.guard.async_runner import AsyncRunner
from fencepost.worker.guard.command_stub import CommandStub
from fencepost.worker.guard.control import Kind
from fencepost.worker.guard.init import ended
from fencepost.worker.guard.page import LeaseTable, Page
from fencepost.worker.guard.sync_runner import SyncRunner


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all runners of a zygote share."""

    functions: Mapping[str, Callable[[RunContext], Any]]
    table: LeaseTable
    life_fd: int  # a pipe that ends with the guard
    uid: int | None
    gid: int | None
    keep_env: tuple[str, ...]


def become(around: Surroundings, kind: int, flags: int, fds: list[int]) -> NoReturn:
    """fds: in, out, page and, for a process of its own, stdout and stderr. Never returns."""
    status = 1
    try:
        os.setsid()
        _die_as_a_group(around.life_fd)
        _drop_privileges(around.uid, around.gid)
        # After that: changing the user clears the death signal.
        linux.die_with_parent()
        if ended(around.life_fd):
            os._exit(1)  # the guard died before the death signal was in place
        if flags & control.OWN:
            linux.become_subreaper()  # what the run leaves behind stays with it until it ends
        linux.set_name("fencepost-run")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.set_blocking(fds[0], False)
        page = Page(fds[2])
        os.close(fds[2])
        if len(fds) > 3:
            os.dup2(fds[3], 1)
            os.dup2(fds[4], 2)
            os.close(fds[3])
            os.close(fds[4])
        _serve(around, kind, flags, fds, page)
        status = 0
    except BaseException:  # noqa: BLE001 - told on stderr, and the worker sees the exit
        import traceback

        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        os._exit(status)


def _serve(around: Surroundings, kind: int, flags: int, fds: list[int], page: Page) -> None:
    own, strict = bool(flags & control.OWN), bool(flags & control.STRICT)
    if kind == Kind.COMMAND:
        CommandStub(fds[0], fds[1], around.table, strict, around.keep_env).serve()
    elif kind == Kind.ASYNC:
        AsyncRunner(around.functions, fds[0], fds[1], around.table, own, strict).serve()
    else:
        SyncRunner(around.functions, fds[0], fds[1], page, around.table, own, strict).serve()


def _die_as_a_group(life_fd: int) -> None:
    """When the guard's pipe ends the kernel kills the whole process group, not only the guard's children.

    The setting belongs to an open file, so the pipe is opened anew. It stays open for as long as this process lives.
    """
    own_fd = os.open(f"/proc/self/fd/{life_fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.fcntl(own_fd, fcntl.F_SETOWN, -os.getpid())
    fcntl.fcntl(own_fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(own_fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)


def _drop_privileges(uid: int | None, gid: int | None) -> None:
    if gid is not None or uid is not None:
        try:
            entry = pwd.getpwuid(uid if uid is not None else os.getuid())
            groups = os.getgrouplist(entry.pw_name, gid if gid is not None else entry.pw_gid)
        except KeyError:
            groups = []
        os.setgroups(groups)
    if gid is not None:
        os.setresgid(gid, gid, gid)
    if uid is not None:
        os.setresuid(uid, uid, uid)

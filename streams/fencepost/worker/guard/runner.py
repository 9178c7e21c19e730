"""How a forked process becomes a runner. The order of the steps makes it certain that it dies with its guard."""

from __future__ import annotations

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
from fencepost.worker.guard.group_death import GroupDeath
from fencepost.worker.guard.init import ended
from fencepost.worker.guard.page import LeaseTable, Page
from fencepost.worker.guard.settings import CallSettings
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
    calls: CallSettings


def become(around: Surroundings, kind: int, flags: int, fds: list[int]) -> NoReturn:
    """fds: in, out, page and, for a process of its own, stdout and stderr. Never returns."""
    status = 1
    try:
        os.setsid()
        groups = GroupDeath(around.life_fd)
        groups.cover(os.getpid())
        _drop_privileges(around.uid, around.gid)
        # After that: changing the user clears the death signal.
        linux.die_with_parent()
        if ended(around.life_fd):
            os._exit(1)  # the guard died before the death signal was in place
        if flags & control.OWN:
            linux.become_subreaper()  # what the run leaves behind stays with it until it ends
        linux.set_name("fencepost-run")
        _leave_sigterm_to_us()
        os.set_blocking(fds[0], False)
        page = Page(fds[2])
        os.close(fds[2])
        if len(fds) > 3:
            os.dup2(fds[3], 1)
            os.dup2(fds[4], 2)
            os.close(fds[3])
            os.close(fds[4])
        _serve(around, kind, flags, fds, page, groups)
        status = 0
    except BaseException:  # noqa: BLE001 - told on stderr, and the worker sees the exit
        import traceback

        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        os._exit(status)


def _serve(around: Surroundings, kind: int, flags: int, fds: list[int], page: Page, groups: GroupDeath) -> None:
    own, strict = bool(flags & control.OWN), bool(flags & control.STRICT)
    if kind == Kind.COMMAND:
        CommandStub(fds[0], fds[1], around.table, strict, around.keep_env, groups).serve()
    elif kind == Kind.ASYNC:
        AsyncRunner(around.functions.__getitem__, fds[0], fds[1], around.table, own, strict).serve()
    elif kind == Kind.HTTP:
        from fencepost.worker.guard.http_calls import HttpCalls  # its library is for this kind of process alone

        calls = HttpCalls(around.calls)
        AsyncRunner(calls.of, fds[0], fds[1], around.table, own, strict).serve()
    else:
        SyncRunner(around.functions, fds[0], fds[1], page, around.table, own, strict).serve()


def _leave_sigterm_to_us() -> None:
    """For what a run forks: SIGTERM ends it, as everywhere, and does not reach the runner through a pipe they share.

    It is held back across the fork: one that came before the child had forgotten the runner's handler would be lost.
    """

    def forget() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    os.register_at_fork(
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}),
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM}),
        after_in_child=forget,
    )


def refused_privileges(uid: int | None, gid: int | None) -> str | None:
    """Why runners could not become this user; None if they can. Tried in a child: it cannot be taken back."""
    pid = os.fork()
    if pid == 0:
        number = 1
        try:
            _drop_privileges(uid, gid)
            number = 0
        except OSError as error:
            number = error.errno or 1
        finally:
            os._exit(number)
    number = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return None if number == 0 else f"uid {uid}, gid {gid}: runs cannot become this user: {os.strerror(number)}"


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

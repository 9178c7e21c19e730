"""Where the runners live: how they are held together, who reaps them, how to end them all. Standard library only."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from dataclasses import dataclass

from fencepost.worker.guard import init, linux, orphans
from fencepost.worker.guard.init import ENDED


@dataclass(frozen=True, slots=True)
class House:
    """Where the runners live."""

    containment: str
    reaper: int  # whose children orphans become
    zygote: int
    init: int | None
    ended_fd: int  # init tells here who ended; without a namespace: wakes at SIGCHLD
    notes: tuple[str, ...]


def end_children() -> None:
    """Kill all children and what becomes a child by that, until there is none."""
    while children := orphans.children(os.getpid()):
        for pid in children:
            orphans.kill_child(pid, os.getpid())
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def say(text: str) -> None:
    """One line to stderr, unless that would block."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    if any(event & select.POLLOUT for _, event in poll.poll(0)):
        os.write(2, f"fencepost guard: {text}\n".encode()[:512])


def _isolate(wanted: str) -> tuple[str, list[str]]:
    """How runners can be held together, strongest first: containment and what to say about it."""
    notes: list[str] = []
    if wanted != "process-groups":
        try:
            linux.unshare_pids()
            return "pid-namespace", notes
        except OSError as error:
            notes.append(f"no PID namespace: {error.strerror}")
        number = _tried_elsewhere(linux.unshare_user_and_pids)
        if number == 0:
            linux.unshare_user_and_pids()
            return "user-pid-namespace", notes
        notes.append(f"no user namespace: {os.strerror(number)}")
    notes.append("processes that leave their session would outlive a guard that is killed")
    return "process-groups", notes


def _tried_elsewhere(step: Callable[[], None]) -> int:
    """The errno that this fails with in a child, or 0: what fails half-way cannot be taken back."""
    pid = os.fork()
    if pid == 0:
        number = 1
        try:
            step()
            number = 0
        except OSError as error:
            number = error.errno or 1
        finally:
            os._exit(number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def build(wanted: str, zygote_argv: list[str], keep: tuple[int, ...], life_fd: int) -> House:
    containment, notes = _isolate(wanted)
    if containment == "process-groups":
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        zygote = init.start_zygote(keep, zygote_argv)
        return House(containment, os.getpid(), zygote, None, wake_read, tuple(notes))
    ended_read, ended_write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            init.run(ended_write, life_fd, keep, zygote_argv)
        finally:
            os._exit(1)
    os.close(ended_write)
    first = os.read(ended_read, ENDED.size)
    if not first:
        say("the runners' PID 1 did not start")
        os._exit(1)
    mount_errno = ENDED.unpack(first)[1]
    if mount_errno:
        notes.append(f"runners see the outer /proc: {os.strerror(mount_errno)}")
    os.set_blocking(ended_read, False)
    return House(containment, pid, orphans.children(pid)[0], pid, ended_read, tuple(notes))

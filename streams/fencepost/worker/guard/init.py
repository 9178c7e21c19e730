"""PID 1 of the runners' namespace. It starts the zygote, reaps, says who ended, and nothing else.

When it dies everything in the namespace dies, whatever session or group it is in. It is forked from the guard and dies
with it.
"""

from __future__ import annotations

import os
import select
import signal
import struct
from typing import NoReturn

from fencepost.worker.guard import linux

ENDED = struct.Struct("<ii")  # pid inside the namespace, wait status


def run(ended_fd: int, life_fd: int, keep: tuple[int, ...], zygote_argv: list[str]) -> NoReturn:
    """`keep`: descriptors that the zygote gets. `life_fd`: a pipe that ends with the guard.

    The first record told is (0, errno of mounting the namespace's own /proc, or 0), once the zygote is started.
    """
    linux.set_name("fencepost-init")
    linux.die_with_parent()
    if ended(life_fd):
        os._exit(1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mount_errno = 0
    try:
        linux.mount_own_proc()
    except OSError as error:
        mount_errno = error.errno or -1
    start_zygote(keep, zygote_argv)
    linux.raise_priority()  # a runner counts as gone once it was reaped here
    _close_all_but((ended_fd, 2))
    os.write(ended_fd, ENDED.pack(0, mount_errno))
    while True:
        # Looked at first and reaped after it was told, so that a number is told before it can be used again.
        try:
            info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            os._exit(0)  # even the zygote is gone
        if info is None:
            continue
        status = info.si_status << 8 if info.si_code == os.CLD_EXITED else info.si_status
        try:
            os.write(ended_fd, ENDED.pack(info.si_pid, status))
        except BrokenPipeError:
            os._exit(1)  # the guard is gone
        os.waitpid(info.si_pid, 0)


def ended(life_fd: int) -> bool:
    """Whether the other end of this pipe is gone."""
    poll = select.poll()
    poll.register(life_fd, 0)
    return bool(poll.poll(0))


def start_zygote(keep: tuple[int, ...], argv: list[str]) -> int:
    """Fork and exec the zygote with these descriptors; its PID."""
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        os.setsid()  # runners are in the zygote's session until they are let go: that tells them from orphans
        linux.die_with_parent()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        for fd in keep:
            os.set_inheritable(fd, True)
        os.execv(argv[0], argv)
    finally:
        os._exit(127)


def _close_all_but(keep: tuple[int, ...]) -> None:
    last = 0
    for fd in sorted(keep):
        os.closerange(last, fd)
        last = fd + 1
    os.closerange(last, os.sysconf("SC_OPEN_MAX"))

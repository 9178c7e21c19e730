"""Process groups that the kernel kills when the guard's pipe ends, not only the processes the guard is parent of."""

from __future__ import annotations

import fcntl
import os
import signal


class GroupDeath:
    """Made before privileges are dropped: the pipe belongs to whoever started the guard.

    The owner of a signal is a property of an open file, so each group needs the pipe opened anew. The files stay open
    for as long as this process lives, which is when the kernel looks at them.
    """

    def __init__(self, life_fd: int) -> None:
        path = f"/proc/self/fd/{life_fd}"
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        self._files = [os.open(path, flags) for _ in range(2)]  # the runner's group, and that of its command

    def cover(self, group: int) -> None:
        fd = self._files.pop()
        fcntl.fcntl(fd, fcntl.F_SETOWN, -group)
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)

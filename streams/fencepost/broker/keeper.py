"""Ends a program's brokers when the program ends, however it ends.

The keeper is a small process at the other end of a pipe. It is told the brokers' process IDs; when the pipe closes,
because the program closed it or died, it kills those that still run. It holds a handle (pidfd) of each: an ID
used again is no danger.
"""

from __future__ import annotations

import subprocess
import sys
from typing import IO

# Stands alone, so that the keeper is an interpreter without any package: 7 MB, started in 15 ms.
_KEEPER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
handles = []
for line in sys.stdin:
    handles.append(os.pidfd_open(int(line)))
    os.write(1, b"k")
for handle in handles:
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        continue  # ended already
"""


class Keeper:
    """The program's side. The keeper runs in a session of its own: Ctrl-C in the terminal does not reach it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _KEEPER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def keep(self, pid: int) -> None:
        """From now on the broker ends with this program. It must be a child not yet reaped: its ID is still its own."""
        self._pipe(self._process.stdin).write(f"{pid}\n".encode())
        self._pipe(self._process.stdin).flush()
        if self._pipe(self._process.stdout).read(1) != b"k":
            raise ChildProcessError(f"the keeper of the embedded Kafka ended (code {self._process.wait()})")

    def close(self) -> None:
        """Has the keeper kill what still runs and waits until it is done."""
        self._pipe(self._process.stdin).close()
        self._process.wait()
        self._pipe(self._process.stdout).close()

    @staticmethod
    def _pipe(end: IO[bytes] | None) -> IO[bytes]:
        assert end is not None  # both were asked for
        return end

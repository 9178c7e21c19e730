"""A process told apart from all others for good: by its ID *and* the moment it started.

A process ID is used again by the kernel; a signal sent by ID alone may strike a stranger.
"""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path

import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Process:
    """`started` is opaque: on Linux the boot's ID and the start in ticks since boot, which no clock step changes."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Process:
        """Raises ProcessLookupError if there is no such process."""
        return cls(pid, _started(pid))

    def alive(self) -> bool:
        """Whether this very process still runs; one that ended and was not yet reaped does not."""
        try:
            return _started(self.pid) == self.started
        except ProcessLookupError:
            return False

    def signal(self, number: signal.Signals) -> bool:
        """Sends the signal if this very process still runs; tells whether it did."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The handle was opened before the look: if the start agrees, it is the handle of the process meant.
            if not self.alive():
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    def wait(self, timeout_s: float) -> bool:
        """Waits until the process has ended; tells whether it has."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.alive():
                return True
            waiting = select.poll()
            waiting.register(handle, select.POLLIN)
            return bool(waiting.poll(timeout_s * 1000))
        finally:
            os.close(handle)


def _started(pid: int) -> str:
    if not _BOOT_ID.exists():
        return _started_elsewhere(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    state, start_ticks = fields[0], fields[19]
    if state in "ZX":
        raise ProcessLookupError(pid)
    return f"{_BOOT_ID.read_text().strip()}/{start_ticks}"


def _started_elsewhere(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            raise ProcessLookupError(pid)
        return f"{process.create_time():.2f}"
    except psutil.NoSuchProcess:
        raise ProcessLookupError(pid) from None

"""Where tasks under measurement leave a trace: one fixed-size record a run, appended to a file in one system call.

Standard library only: the peers' workers import this as well. An append of a record this small is not split, so any
number of processes and threads may write, and the file's size says how many runs there were without disturbing them.
CLOCK_MONOTONIC is one clock for all processes of a machine.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "BENCH_SINK"
WORKER_VARIABLE = "BENCH_WORKER"
_RECORD = struct.Struct("<qqqq8s")


@dataclass(frozen=True, slots=True)
class Trace:
    """One run. `index` is the number its trigger carried."""

    index: int
    epoch: int
    monotonic_ns: int
    wall_ns: int
    worker: str


class Sink:
    """The writing end, opened when first used: what opened it before a fork would do as well."""

    def __init__(self) -> None:
        self._file = -1
        self._worker = os.environ.get(WORKER_VARIABLE, "").encode()[:8]

    def write(self, index: int, epoch: int = 0) -> None:
        """Called as the first line of a task."""
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if self._file < 0:
            self._file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(self._file, _RECORD.pack(index, epoch, now_ns, time.time_ns(), self._worker))


def count(path: Path) -> int:
    """How many traces there are."""
    try:
        return path.stat().st_size // _RECORD.size
    except FileNotFoundError:
        return 0


def read(path: Path, start: int = 0) -> list[Trace]:
    """The traces from number `start` on, in the order in which they were written."""
    try:
        data = path.read_bytes()[start * _RECORD.size :]
    except FileNotFoundError:
        return []
    whole = len(data) - len(data) % _RECORD.size
    return [
        Trace(index, epoch, monotonic_ns, wall_ns, worker.rstrip(b"\0").decode())
        for index, epoch, monotonic_ns, wall_ns, worker in _RECORD.iter_unpack(data[:whole])
    ]

"""One page of memory per sync runner, and one table of leases for all runners of a worker. Standard library only.

The page says which run is on, so that the guard need not be told of every run:

    0   u64  token of the run that is on; 0: none          written by the runner
    8   f64  when that run must be killed; 0: no limit     written by the runner
    16  u64  how many stops were sent: look into the pipe  written by the worker

The table holds one f64 per lease slot: when the lease's last proven renewal began. Written by the worker, read by
runners. Eight aligned bytes are written at once on the machines Linux runs on, so a reader never sees half a value.
"""

from __future__ import annotations

import mmap
import os
import struct

PAGE_BYTES = 4096
TABLE_SLOTS = 16 * 1024

_U64 = struct.Struct("<Q")
_F64 = struct.Struct("<d")
_CURRENT, _KILL_AT, _STOPS = 0, 8, 16


class Page:
    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, PAGE_BYTES)

    def begin(self, token: int, kill_at: float) -> None:
        """A run starts. The limit of the one before is taken away first: a limit never stands beside a later token."""
        _F64.pack_into(self._map, _KILL_AT, 0.0)
        _U64.pack_into(self._map, _CURRENT, token)
        if kill_at:
            _F64.pack_into(self._map, _KILL_AT, kill_at)

    def end(self) -> None:
        _F64.pack_into(self._map, _KILL_AT, 0.0)
        _U64.pack_into(self._map, _CURRENT, 0)

    def current(self) -> int:
        return int(_U64.unpack_from(self._map, _CURRENT)[0])

    def limit(self) -> tuple[int, float]:
        """Token of the run that is on and when it must be killed; (0, 0.0) where there is no limit."""
        token = self.current()
        kill_at = float(_F64.unpack_from(self._map, _KILL_AT)[0])
        if token == 0 or kill_at == 0.0 or self.current() != token:
            return 0, 0.0
        return token, kill_at

    def stops(self) -> int:
        return int(_U64.unpack_from(self._map, _STOPS)[0])

    def count_stop(self) -> None:
        _U64.pack_into(self._map, _STOPS, self.stops() + 1)

    def close(self) -> None:
        self._map.close()


class LeaseTable:
    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, TABLE_SLOTS * 8)

    def set(self, slot: int, began: float) -> None:
        _F64.pack_into(self._map, slot * 8, began)

    def get(self, slot: int) -> float:
        return float(_F64.unpack_from(self._map, slot * 8)[0])

    def close(self) -> None:
        self._map.close()


def new_memory(name: str, size: int) -> int:
    """A descriptor of shared memory (close-on-exec)."""
    fd = os.memfd_create(name)
    os.ftruncate(fd, size)
    return fd

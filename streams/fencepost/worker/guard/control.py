"""What worker, guard and zygote say to each other: small packets with fixed layouts. Standard library only.

One message is one packet on a SOCK_SEQPACKET pair; descriptors travel with it. Leases and runners are small numbers
that the worker chose: a lease number stands for one (partition, nonce), a runner number for one process, never used
twice. Times are seconds on CLOCK_BOOTTIME. `life_s` is a run's lease_ttl_s - margin: its deadline is the lease's
`began` + `life_s`.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from enum import IntEnum

MAX_PACKET = 32 * 1024


class ToGuard(IntEnum):
    LEASE = 1  # lease, began: a proven renewal
    REBIND = 2  # old lease, new lease: what was bound to the old one goes on under the new one
    FORGET = 3  # lease
    SPAWN_SHARED = 4  # runner, kind, flags | + fds
    SPAWN_OWN = 5  # runner, kind, flags, lease, life_s, epoch, task | + fds
    BIND = 6  # runner, lease, life_s: answered by BOUND or NOT_BOUND
    UNBIND = 7  # runner, lease, life_s
    LIMIT = 8  # runner, token, at: kill the runner then, if that run is still on
    CLEAR = 9  # runner, token: that run has ended
    WATCH = 10  # runner, shortest_s: runs with time limits go there, none shorter than this
    KILL = 11  # runner
    BEAT = 12
    CLOSE = 13


class ToWorker(IntEnum):
    READY = 1  # what holds the runs, as JSON text
    SPAWNED = 2  # runner
    NOT_SPAWNED = 3  # runner, why (NotSpawned)
    BOUND = 4  # runner, lease, life_s
    NOT_BOUND = 5  # runner, lease, life_s: no time left
    GONE = 6  # runner, why (Why), token, wait status, expired leases


class ToZygote(IntEnum):
    FORK = 1  # runner, kind, flags | + fds


class FromZygote(IntEnum):
    FORKED = 1  # runner, pid as the zygote sees it | + pidfd
    NOT_FORKED = 2  # runner, errno


class Kind(IntEnum):
    SYNC = 1  # functions, one at a time
    ASYNC = 2  # coroutines, many at a time
    COMMAND = 3  # a stub that starts one command
    HTTP = 4  # HTTP requests, many at a time


class NotSpawned(IntEnum):
    REPEATED = 1  # this epoch of the task, or a later one, was had before
    LATE = 2  # no time left on the lease
    FAILED = 3  # the fork failed


class Why(IntEnum):
    ENDED = 1  # by itself
    FENCED = 2  # its lease ended
    LIMITED = 3  # the run `token` had passed a limit
    KILLED = 4  # the worker asked for it


OWN = 1  # flag of FORK: one run, then the process ends
STRICT = 2  # flag of FORK: the runner holds a kernel timer of its own

_LEASE = struct.Struct("<BId")
_PAIR = struct.Struct("<BII")
_ONE = struct.Struct("<BI")
_SHARED = struct.Struct("<BIBB")
_OWN = struct.Struct("<BIBBIdQ")
_BIND = struct.Struct("<BIId")
_LIMIT = struct.Struct("<BIQd")
_CLEAR = struct.Struct("<BIQ")
_WATCH = struct.Struct("<BId")
_SMALL = struct.Struct("<BIi")
_GONE = struct.Struct("<BIBQi")
_EXPIRED = struct.Struct("<Id")


def lease(number: int, began: float) -> bytes:
    return _LEASE.pack(ToGuard.LEASE, number, began)


def read_lease(packet: bytes) -> tuple[int, float]:
    _, number, began = _LEASE.unpack(packet)
    return number, began


def rebind(old: int, new: int) -> bytes:
    return _PAIR.pack(ToGuard.REBIND, old, new)


def read_pair(packet: bytes) -> tuple[int, int]:
    _, old, new = _PAIR.unpack(packet)
    return old, new


def one(code: ToGuard | ToWorker, number: int) -> bytes:
    """A message that names one runner or lease: FORGET, KILL, SPAWNED."""
    return _ONE.pack(code, number)


def read_one(packet: bytes) -> int:
    return int(_ONE.unpack(packet)[1])


def spawn_shared(runner: int, kind: Kind, flags: int) -> bytes:
    return _SHARED.pack(ToGuard.SPAWN_SHARED, runner, kind, flags)


def fork(runner: int, kind: int, flags: int) -> bytes:
    return _SHARED.pack(ToZygote.FORK, runner, kind, flags)


def read_fork(packet: bytes) -> tuple[int, int, int]:
    """SPAWN_SHARED or FORK: runner, kind, flags."""
    _, runner, kind, flags = _SHARED.unpack(packet)
    return runner, kind, flags


def spawn_own(runner: int, kind: Kind, flags: int, lease_number: int, life_s: float, epoch: int, task: str) -> bytes:
    fixed = _OWN.pack(ToGuard.SPAWN_OWN, runner, kind, flags, lease_number, life_s, epoch)
    return fixed + task.encode("utf-8")


def read_spawn_own(packet: bytes) -> tuple[int, int, int, int, float, int, bytes]:
    """Runner, kind, flags, lease, life_s, epoch, task as bytes."""
    _, runner, kind, flags, number, life_s, epoch = _OWN.unpack_from(packet)
    return runner, kind, flags, number, life_s, epoch, packet[_OWN.size :]


def bind(code: ToGuard | ToWorker, runner: int, lease_number: int, life_s: float) -> bytes:
    """BIND, UNBIND, BOUND or NOT_BOUND."""
    return _BIND.pack(code, runner, lease_number, life_s)


def read_bind(packet: bytes) -> tuple[int, int, float]:
    _, runner, number, life_s = _BIND.unpack(packet)
    return runner, number, life_s


def limit(runner: int, token: int, at: float) -> bytes:
    return _LIMIT.pack(ToGuard.LIMIT, runner, token, at)


def read_limit(packet: bytes) -> tuple[int, int, float]:
    _, runner, token, at = _LIMIT.unpack(packet)
    return runner, token, at


def clear(runner: int, token: int) -> bytes:
    return _CLEAR.pack(ToGuard.CLEAR, runner, token)


def read_clear(packet: bytes) -> tuple[int, int]:
    _, runner, token = _CLEAR.unpack(packet)
    return runner, token


def watch(runner: int, shortest_s: float) -> bytes:
    return _WATCH.pack(ToGuard.WATCH, runner, shortest_s)


def read_watch(packet: bytes) -> tuple[int, float]:
    _, runner, shortest_s = _WATCH.unpack(packet)
    return runner, shortest_s


def small(code: ToWorker | FromZygote, runner: int, number: int) -> bytes:
    """NOT_SPAWNED, FORKED or NOT_FORKED."""
    return _SMALL.pack(code, runner, number)


def read_small(packet: bytes) -> tuple[int, int]:
    _, runner, number = _SMALL.unpack(packet)
    return runner, number


def gone(runner: int, why: Why, token: int, status: int, expired: list[tuple[int, float]]) -> bytes:
    """`status` is a wait status, or -1 where it is not known."""
    body = b"".join(_EXPIRED.pack(number, life_s) for number, life_s in expired)
    return _GONE.pack(ToWorker.GONE, runner, why, token, status) + body


def read_gone(packet: bytes) -> tuple[int, Why, int, int, list[tuple[int, float]]]:
    _, runner, why, token, status = _GONE.unpack_from(packet)
    return runner, Why(why), token, status, [(n, s) for n, s in _EXPIRED.iter_unpack(packet[_GONE.size :])]


class Channel:
    """One end of a packet pair that never blocks: what the other side does not take now is kept."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._waiting: deque[tuple[bytes, tuple[int, ...]]] = deque()

    def fileno(self) -> int:
        return self._end.fileno()

    @property
    def backed_up(self) -> bool:
        return bool(self._waiting)

    def send(self, packet: bytes, fds: tuple[int, ...] = ()) -> None:
        """Send or keep. The descriptors belong to the channel from now on: they are closed once they are sent.

        Raises OSError (BrokenPipeError, ConnectionResetError) if the other side is gone.
        """
        try:
            if self._waiting or not self._try(packet, fds):
                self._waiting.append((packet, fds))
        except OSError:
            for fd in fds:
                os.close(fd)
            raise

    def flush(self) -> None:
        """Send what was kept, as far as it goes."""
        while self._waiting and self._try(*self._waiting[0]):
            self._waiting.popleft()

    def _try(self, packet: bytes, fds: tuple[int, ...]) -> bool:
        try:
            if fds:
                socket.send_fds(self._end, [packet], list(fds))
            else:
                self._end.send(packet)
        except BlockingIOError:
            return False
        for fd in fds:
            os.close(fd)
        return True

    def receive(self) -> tuple[bytes, list[int]] | None:
        """The next packet with its descriptors; None: there is none now; an empty packet: the other side is gone."""
        try:
            packet, fds, _, _ = socket.recv_fds(self._end, MAX_PACKET, 8, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return b"", []
        return packet, fds

    def close(self) -> None:
        for _, fds in self._waiting:
            for fd in fds:
                os.close(fd)
        self._waiting.clear()
        self._end.close()

"""The few Linux calls that Python 3.11 has no function for. Standard library only: the guard imports this."""

from __future__ import annotations

import ctypes
import os
import signal
import time

CLOCK_BOOTTIME = time.CLOCK_BOOTTIME

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_SIGEV_SIGNAL = 0
_TIMER_ABSTIME = 1
_TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_MS_REC_PRIVATE = 0x4000 | (1 << 18)
_NICE = -15

_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class _Sigevent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("pad", ctypes.c_byte * 64),
    )


def boot_s() -> float:
    """Seconds since boot, suspended time included. The one clock of leases."""
    return time.clock_gettime(CLOCK_BOOTTIME)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _itimerspec(at_boot_s: float) -> _Itimerspec:
    # A value of zero would disarm the timer; the smallest time in the past fires at once.
    whole_ns = max(1, int(at_boot_s * 1e9))
    return _Itimerspec(_Timespec(0, 0), _Timespec(whole_ns // 1_000_000_000, whole_ns % 1_000_000_000))


class KillTimer:
    """A kernel timer that kills this process at a time on CLOCK_BOOTTIME, also while it is stopped.

    It belongs to the process: a fork does not inherit it, an exec deletes it. PID 1 of a namespace ignores it.
    """

    def __init__(self) -> None:
        event = _Sigevent(None, signal.SIGKILL, _SIGEV_SIGNAL)
        self._id = ctypes.c_void_p()
        _check(_libc.timer_create(CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._id)), "timer_create")
        self.at_boot_s: float | None = None

    def arm(self, at_boot_s: float) -> None:
        """Die at this time; a time that has passed kills at once."""
        if at_boot_s != self.at_boot_s:
            spec = _itimerspec(at_boot_s)
            _check(_libc.timer_settime(self._id, _TIMER_ABSTIME, ctypes.byref(spec), None), "timer_settime")
            self.at_boot_s = at_boot_s

    def disarm(self) -> None:
        if self.at_boot_s is not None:
            spec = _Itimerspec()
            _check(_libc.timer_settime(self._id, 0, ctypes.byref(spec), None), "timer_settime")
            self.at_boot_s = None


class WakeTimer:
    """A descriptor that becomes readable at a time on CLOCK_BOOTTIME. (An epoll timeout stands still in suspension.)"""

    def __init__(self) -> None:
        self.fd = _libc.timerfd_create(CLOCK_BOOTTIME, _TFD_NONBLOCK_CLOEXEC)
        if self.fd < 0:
            _check(-1, "timerfd_create")
        self._at_boot_s: float | None = None

    def set(self, at_boot_s: float | None) -> None:
        if at_boot_s != self._at_boot_s:
            spec = _Itimerspec() if at_boot_s is None else _itimerspec(at_boot_s)
            _check(_libc.timerfd_settime(self.fd, _TIMER_ABSTIME, ctypes.byref(spec), None), "timerfd_settime")
            self._at_boot_s = at_boot_s

    def fired(self) -> None:
        """To be called when the descriptor was readable: the time set is used up."""
        self._at_boot_s = None
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return  # set anew since


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """This process gets the signal when the *thread* that is its parent ends.

    Cleared by setuid, setgid and the exec of a set-id binary: to be called after those.
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def become_subreaper() -> None:
    """Orphaned descendants become children of this process instead of PID 1."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def set_name(name: str) -> None:
    """The name in process lists (15 bytes)."""
    _check(_libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0), "prctl(PR_SET_NAME)")


def unshare_pids() -> None:
    """The next children live in a PID namespace of their own, the first as its PID 1. Raises OSError."""
    _check(_libc.unshare(_CLONE_NEWPID), "unshare(CLONE_NEWPID)")


def unshare_user_and_pids() -> None:
    """The same without being root, where user namespaces are permitted; the user keeps its number. Raises OSError."""
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID), "unshare(CLONE_NEWUSER|CLONE_NEWPID)")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def mount_own_proc() -> None:
    """A /proc that shows the own PID namespace, seen by this process and its children only. Raises OSError."""
    _check(_libc.unshare(_CLONE_NEWNS), "unshare(CLONE_NEWNS)")
    _check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None), "mount(private)")
    flags = ctypes.c_ulong(_MS_NOSUID_NODEV_NOEXEC)
    _check(_libc.mount(b"proc", b"/proc", b"proc", flags, None), "mount(proc)")


def raise_priority() -> str:
    """Go before others, if permitted: SCHED_FIFO, else a low nice value. Returns what was reached."""
    # Reset on fork, or every runner would go before everybody else's processes.
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        return "fifo"
    except OSError:
        return _raise_nice()


def _raise_nice() -> str:
    try:
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        return f"nice {os.nice(_NICE)}"
    except OSError:
        return "normal"


def hasten(pid: int) -> None:
    """Let a process that was killed go before others: even dying takes its turn on a processor."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setscheduler(int(thread), os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return  # gone already, or not permitted: it dies in its turn

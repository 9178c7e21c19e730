"""Finding what a dead runner left behind: processes that were handed to the reaper. Standard library only."""

from __future__ import annotations

import os
import signal


def children(pid: int) -> list[int]:
    """The children of a single-threaded process, zombies included; none if it is gone."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(text) for text in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return _scan(pid) if os.path.exists(f"/proc/{pid}") else []


def _scan(parent: int) -> list[int]:
    # A kernel without CONFIG_PROC_CHILDREN.
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if fields is not None and int(fields[1]) == parent:
                found.append(int(name))
    return found


def stat_fields(pid: int) -> list[bytes] | None:
    """/proc/PID/stat from the state on: state, parent, group, session, ...; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_orphan(pid: int, home_session: int) -> bool:
    """Whether this child of the reaper was handed to it and lives. Runners not let go yet are in `home_session`.

    A zombie is no life: its children were handed on before it became one. Unless only its first thread ended.
    """
    fields = stat_fields(pid)
    if fields is None or int(fields[3]) == home_session:
        return False
    return fields[0] not in (b"Z", b"X") or int(fields[17]) > 1


def kill_child(pid: int, parent: int) -> None:
    """Kill `pid` if it still is a child of `parent`: the descriptor is opened first, so no other process can be hit."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        fields = stat_fields(pid)
        if fields is not None and int(fields[1]) == parent:
            kill_pidfd(pidfd)
    finally:
        os.close(pidfd)


def kill_pidfd(pidfd: int, number: int = signal.SIGKILL) -> None:
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return  # it was gone already, which is what is wanted


def pid_of(pidfd: int) -> int:
    """The process behind a descriptor, as seen in this PID namespace; -1 if it is gone."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pid:"):
                return int(line.split()[1])
    return -1

"""Starting the guard from the worker, before any Kafka client exists: clients do not survive a fork."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fencepost import codec
from fencepost.worker.guard import control
from fencepost.worker.guard.control import ToWorker
from fencepost.worker.guard.mechanism import Mechanism
from fencepost.worker.guard.page import TABLE_SLOTS, LeaseTable, new_memory
from fencepost.worker.guard.settings import RunnerSettings

_HERE = Path(__file__).resolve().parent


class GuardError(RuntimeError):
    """The guard did not start. The message says why."""


class AppNotImported(GuardError):
    """The user's app cannot be imported. The message holds the traceback."""


@dataclass(frozen=True, slots=True)
class Started:
    process: subprocess.Popen[bytes]
    channel: control.Channel
    table: LeaseTable
    mechanism: Mechanism
    functions: dict[str, str]  # name -> "sync" or "async"
    declared: list[dict[str, Any]]


def start(settings: RunnerSettings) -> Started:
    """Start guard and zygote and import the app. Raises AppNotImported or GuardError; nothing is left running then."""
    if sys.platform != "linux":
        raise GuardError(f"runs can be stopped for certain on Linux only; this is {sys.platform}")
    ours, guards = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    hello_read, hello_write = os.pipe2(os.O_CLOEXEC)
    config_fd = _config(settings)
    table_fd = new_memory("fencepost-leases", TABLE_SLOTS * 8)
    given = (guards.fileno(), config_fd, hello_write, table_fd)
    numbers = [str(fd) for fd in given]
    files = [str(_HERE / "start_guard.py"), str(_HERE / "start_zygote.py")]
    argv = [sys.executable, "-I", "-S", files[0], *numbers, repr(settings.beat_ttl_s), settings.containment]
    argv += [sys.executable, files[1]]
    # Output of the app's import belongs to the worker's stderr: its stdout may be read by a program.
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=2, close_fds=True, pass_fds=given, start_new_session=True
    )
    guards.close()
    os.close(config_fd)
    os.close(hello_write)
    table = LeaseTable(table_fd)
    os.close(table_fd)
    channel = control.Channel(ours)
    try:
        hello = _hello(hello_read, settings)
        about = _ready(channel, process)
    except BaseException:
        channel.close()
        table.close()
        process.wait()  # it sees the end of the channel
        raise
    finally:
        os.close(hello_read)
    notes = (*about["notes"], *hello["notes"])
    mechanism = Mechanism(about["containment"], about["scheduling"], notes)
    return Started(process, channel, table, mechanism, hello["functions"], hello["declared"])


def _config(settings: RunnerSettings) -> int:
    """A descriptor to read from: the import path, then a zero byte, then what the zygote is told as JSON."""
    names = ("app", "namespace", "uid", "gid", "keep_env")
    told = {name: getattr(settings, name) for name in names} | {"calls": asdict(settings.calls)}
    fd = os.memfd_create("fencepost-config")
    os.write(fd, "\n".join(sys.path).encode() + b"\0" + codec.dumps(told))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _hello(fd: int, settings: RunnerSettings) -> dict[str, Any]:
    until = time.monotonic() + settings.start_timeout_s
    data = bytearray()
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while True:
        left_s = until - time.monotonic()
        if left_s <= 0 or not poll.poll(left_s * 1000):
            raise AppNotImported(f"app: importing {settings.app} took longer than {settings.start_timeout_s:g} s")
        more = os.read(fd, 65536)
        if not more:
            break
        data += more
    if not data:
        raise GuardError("the guard ended before it was ready; what it said stands above")
    hello: dict[str, Any] = codec.loads_own(bytes(data))
    if "error" in hello:
        error = hello["error"].rstrip()
        if error.startswith("uid "):
            raise GuardError(error)
        raise AppNotImported(f"app: {settings.app} cannot be imported\n{error}")
    return hello


def _ready(channel: control.Channel, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    poll.poll(10_000)
    received = channel.receive()
    if received is None or not received[0] or received[0][0] != ToWorker.READY:
        raise GuardError(f"the guard did not become ready (exit code {process.poll()})")
    about: dict[str, Any] = codec.loads_own(received[0][1:])
    return about

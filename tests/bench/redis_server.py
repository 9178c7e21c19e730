"""A Redis of our own: Debian's redis-server on a free port of loopback, nothing written to disk."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.processes import BenchError, Processes, running, wait_until


def find_redis() -> str:
    """The redis-server on PATH, installed from the system's packages if it is missing. Raises BenchError."""
    found = shutil.which("redis-server")
    if found is None:
        _install()
        found = shutil.which("redis-server")
    if found is None:
        raise BenchError("redis-server is missing: as root, apt-get install redis-server")
    return found


def version(server: str) -> str:
    text = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
    return next((word[2:] for word in text.split() if word.startswith("v=")), text.strip())


@contextmanager
def redis(processes: Processes, folder: Path) -> Iterator[str]:
    """A running server; its URL."""
    server, port = find_redis(), _free_port()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no", "--daemonize", "no"]
    program = processes.start("redis", [server, *options, "--dir", folder])
    with running(program):
        wait_until(lambda: _answers(port), 10.0, "redis-server to answer", programs=[program])
        yield f"redis://127.0.0.1:{port}/0"


def flush(url: str) -> None:
    """Empty it: a new round starts from nothing."""
    if _ask(int(url.rpartition(":")[2].partition("/")[0]), b"FLUSHALL\r\n") != b"+OK\r\n":
        raise BenchError("redis-server refused FLUSHALL")


def _install() -> None:
    if shutil.which("apt-get") is None:
        raise BenchError("redis-server is missing: install it with your system's package manager")
    print("redis-server is missing; installing it", file=sys.stderr)
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    for command in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", "redis-server"]):
        done = subprocess.run(
            [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BenchError(f"redis-server could not be installed ({done.stderr.strip()[-300:]}): install it as root")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        return _ask(port, b"PING\r\n") == b"+PONG\r\n"
    except OSError:
        return False


def _ask(port: int, command: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
        link.sendall(command)
        return link.recv(4096)

"""Servers of a test's own: Debian's PostgreSQL and Redis, in a folder of their own, reached through a Unix socket only.

Nobody else's server is touched, no port of the network is used, and nothing is left. PostgreSQL refuses to run as root;
then it runs as the user that its package made.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencepost.broker.keeper import Keeper

LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server. `env` is all that a client of it needs, by the variables that libpq reads."""

    folder: Path

    @property
    def dsn(self) -> str:
        return f"host={self.folder} port=5432 user=fencepost dbname=postgres"

    @property
    def env(self) -> dict[str, str]:
        return {"PGHOST": str(self.folder), "PGPORT": "5432", "PGUSER": "fencepost", "PGDATABASE": "postgres"}


@contextmanager
def postgres() -> Iterator[Postgres]:
    binaries = find_postgres()
    with _own_folder("postgres") as (folder, as_user):
        data = folder / "data"
        made = subprocess.run(
            [binaries / "initdb", "--pgdata", data, "--username", "fencepost", "--auth", "trust", "--no-sync",
             "--encoding", "UTF8", "--no-locale"],
            capture_output=True, text=True, check=False, cwd=folder, **as_user,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        options = {"listen_addresses": "", "unix_socket_directories": folder, "fsync": "off", "max_connections": 30}
        command = [binaries / "postgres", "-D", data, *(f"--{name}={value}" for name, value in options.items())]
        with _running(command, folder, as_user, signal.SIGINT):
            _wait(lambda: _accepts(binaries, folder), folder)
            yield Postgres(folder)


def find_postgres() -> Path:
    """The folder with initdb and postgres: the newest that Debian's package installed, or that of PATH."""
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = str(packaged[-1]) if packaged else shutil.which("initdb")
    assert found, "PostgreSQL is missing: .ci/prepare-machine postgres"
    return Path(found).parent


@contextmanager
def redis() -> Iterator[list[str]]:
    """The command line of a client that speaks to the server."""
    server, client = shutil.which("redis-server"), shutil.which("redis-cli")
    assert server, "Redis is missing: .ci/prepare-machine redis"
    assert client, "Redis is missing: .ci/prepare-machine redis"
    with _own_folder("redis") as (folder, as_user):
        socket = folder / "socket"
        command = [server, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder]
        with _running(command, folder, as_user, signal.SIGTERM):
            ask = [client, "-s", str(socket)]
            ping = [*ask, "PING"]
            _wait(lambda: subprocess.run(ping, capture_output=True, check=False).stdout == b"PONG\n", folder)
            yield ask


def _accepts(binaries: Path, folder: Path) -> bool:
    ask = [binaries / "pg_isready", "-q", "-h", folder, "-p", "5432"]
    return subprocess.run(ask, check=False).returncode == 0


@contextmanager
def _own_folder(name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A folder and the options of `subprocess` to run as the user that owns it. Short: a socket's path is."""
    folder = Path(tempfile.mkdtemp(prefix=f"fencepost-{name}-"))
    as_user: dict[str, Any] = {}
    try:
        if os.geteuid() == 0:
            user = _unprivileged()
            os.chown(folder, user.pw_uid, user.pw_gid)
            as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        yield folder, as_user
    finally:
        shutil.rmtree(folder)


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("neither a user postgres nor a user nobody")


@contextmanager
def _running(command: list[Any], folder: Path, as_user: dict[str, Any], end: signal.Signals) -> Iterator[None]:
    keeper = Keeper()  # ends it even if these tests are killed
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **as_user
        )
    try:
        keeper.keep(process.pid)
        yield
    finally:
        process.send_signal(end)
        try:
            process.wait(LIMIT_S)
        finally:
            keeper.close()
            process.wait()


def _wait(condition: Any, folder: Path) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until_s, (folder / "log").read_text(errors="replace")
        time.sleep(0.02)  # between two looks

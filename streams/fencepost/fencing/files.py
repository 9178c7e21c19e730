"""Files on a local disk: a lock by the kernel, and the highest epochs in a file beside them.

    files.write("/var/reports/today.csv", data, ctx)

The lock (`flock`) is held from the look at the epochs to the rename, so that no stale run comes in between; it goes
with the process that holds it, however that dies. A run that is frozen with the lock in its hands holds up the next one
until its guard has ended it. The epoch is written down, and is on disk, before the data: if the machine dies between
the two, the old data stays, and the old run still cannot write. For a network file system this is only as good as its
`flock`.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fencepost.codec import BadRecord, dumps, loads
from fencepost.fencing.stale import StaleEpoch
from fencepost.fencing.token import Run, Token, token_of

SUFFIX = ".epochs"


class BadSidecar(Exception):
    """The file of epochs holds something else. Nobody is let in until somebody has looked at it."""


class FileStore:
    """The highest epochs in a file that processes of one machine share; see `EpochStore`. With a lock file beside it.

    Good for everything that belongs to one machine: a file, a folder, a device, a server with one host.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @contextmanager
    def admit(self, token: Token, /) -> Iterator[None]:
        # A file of its own for the lock: the one with the epochs is replaced, and a lock belongs to the old one.
        with open(self.path.with_name(self.path.name + ".lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            epochs = self._read()
            key = f"{token.namespace}/{token.task_id}"
            newest = epochs.get(key, 0)
            if token.epoch < newest:
                raise StaleEpoch(token.task_id, token.epoch, newest)
            if token.epoch > newest:
                replace(self.path, dumps({**epochs, key: token.epoch}), 0o644)
            yield

    def _read(self) -> dict[str, int]:
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            found = loads(raw)
        except BadRecord as error:
            raise BadSidecar(f"{self.path} holds no epochs: {error}") from error
        if not isinstance(found, dict) or not all(type(epoch) is int for epoch in found.values()):
            raise BadSidecar(f"{self.path} holds no epochs: {raw[:80]!r}")
        return found


def write(path: str | os.PathLike[str], data: bytes, run: Run, *, mode: int = 0o644) -> None:
    """Replace the file as a whole. Epochs are kept in `PATH.epochs`. Raises StaleEpoch, OSError, BadSidecar."""
    with guarded(path, run) as target:
        replace(target, data, mode)


@contextmanager
def guarded(path: str | os.PathLike[str], run: Run) -> Iterator[Path]:
    """Do anything with the file (append, say) while no other run can. Raises StaleEpoch, OSError, BadSidecar."""
    target = Path(path)
    with FileStore(target.with_name(target.name + SUFFIX)).admit(token_of(run)):
        yield target


def replace(target: Path, data: bytes, mode: int) -> None:
    """All of it or nothing, and on disk when it returns."""
    fd, made = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, target)
    except BaseException:
        os.unlink(made)
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

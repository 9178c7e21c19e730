"""Control groups for processes under test: frozen and thawed by version 1 or 2, and short of memory by version 1."""

from __future__ import annotations

import os
import time
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
V1, V2, MEMORY = _ROOT / "freezer", _ROOT / "unified", _ROOT / "memory"
LIMIT_S = 10.0


def why_not(root: Path) -> str | None:
    """Why no group can be made below `root`; None if one can."""
    if os.geteuid() != 0:
        return "control groups need root"
    if not (root / "cgroup.procs").exists():
        return f"{root} is not mounted"
    return None


class Group:
    """A group made for somebody; `remove` it when the processes are gone."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.path = root / f"fencepost-{os.getpid()}-{name}"
        self.path.mkdir(exist_ok=True)

    @property
    def procs(self) -> Path:
        """A process joins by writing its ID here."""
        return self.path / "cgroup.procs"

    def pids(self) -> list[int]:
        return [int(text) for text in self.procs.read_text().split()]

    def freeze(self) -> None:
        """Returns when all stand still. Raises TimeoutError."""
        if self.root == V1:
            self._write("freezer.state", "FROZEN")
            self._await("frozen", lambda: (self.path / "freezer.state").read_text().strip() == "FROZEN")
        else:
            self._write("cgroup.freeze", "1")
            self._await("frozen", lambda: "frozen 1" in (self.path / "cgroup.events").read_text())

    def thaw(self) -> None:
        if self.root == V1:
            self._write("freezer.state", "THAWED")
        else:
            self._write("cgroup.freeze", "0")

    def limit_memory(self, size_bytes: int) -> None:
        self._write("memory.limit_in_bytes", str(size_bytes))

    def oom_kills(self) -> int:
        for line in (self.path / "memory.oom_control").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def remove(self) -> None:
        """Raises TimeoutError if processes stay in it."""
        self._await("empty", lambda: not self.pids())
        self.path.rmdir()

    def _write(self, file: str, text: str) -> None:
        (self.path / file).write_text(text)

    def _await(self, what: str, condition: object) -> None:
        until_s = time.monotonic() + LIMIT_S
        while not condition():  # type: ignore[operator]
            if time.monotonic() > until_s:
                raise TimeoutError(f"{self.path} is not {what} after {LIMIT_S:g} s")
            time.sleep(0.005)  # between two looks

"""A network of its own: a bridge, and a place (network namespace) on it for each worker and broker.

The bridge lives in a namespace too, where no rule of the machine's own firewall reaches. Places have addresses of
198.18.N.0/24 (set aside for tests of networks); this process is on it as well. A place is cut off by rules in its own
namespace, one way or both, from some addresses or from all.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

_NAMES = Path("/var/run/netns")
_HOST = 254
TO, FROM = "to", "from"


def why_not() -> str | None:
    """Why this machine can have no such network; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "iptables", "nsenter"):
        if shutil.which(tool) is None:
            return f"`{tool}` is not installed"
    return None


class Place:
    """One namespace with one address."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address

    @property
    def prefix(self) -> list[str]:
        """Becomes the command after it, there. Not `ip netns exec`, which would hide the control groups."""
        return ["nsenter", f"--net={_NAMES / self.name}", "--"]

    def cut(self, way: str, addresses: Iterable[str], reset: bool = False) -> None:
        """Drop what goes TO these addresses, or comes FROM them. `reset`: refuse it loudly."""
        for address in addresses:
            rule = ["-I", "OUTPUT", "-d", address] if way == TO else ["-I", "INPUT", "-s", address]
            how = ["-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"] if reset else ["-j", "DROP"]
            run(*self.prefix, "iptables", "-w", *rule, *how)

    def mend(self) -> None:
        run(*self.prefix, "iptables", "-w", "-F")


class Network:
    """A context; leaves no namespace and no interface behind, nor do those of processes that are gone."""

    def __init__(self) -> None:
        self._mark = f"fp{os.getpid()}"
        self._places: dict[str, Place] = {}
        self._subnet = 0

    @property
    def host(self) -> str:
        """This process's own address."""
        return f"198.18.{self._subnet}.{_HOST}"

    def __enter__(self) -> Self:
        with open(Path(tempfile.gettempdir()) / "fencepost-faults.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # campaigns side by side choose one after the other
            self._make()
        return self

    def _make(self) -> None:
        _sweep()
        used = run("ip", "-4", "-o", "addr")
        self._subnet = next(number for number in range(1, 250) if f"198.18.{number}." not in used)
        switch = f"{self._mark}sw"
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "br0", "up")
        run("ip", "link", "add", f"{self._mark}h", "type", "veth", "peer", "name", "host", "netns", switch)
        run("ip", "-n", switch, "link", "set", "host", "master", "br0", "up")
        run("ip", "addr", "add", f"{self.host}/24", "dev", f"{self._mark}h")
        run("ip", "link", "set", f"{self._mark}h", "up")

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for name in [*(place.name for place in self._places.values()), f"{self._mark}sw"]:
            if (_NAMES / name).exists():
                run("ip", "netns", "del", name)
        # The kernel takes a namespace down when the last process in it is gone, in its own time; our end goes now.
        subprocess.run(["ip", "link", "del", f"{self._mark}h"], capture_output=True, check=False)

    def place(self, name: str, number: int) -> Place:
        """The place of this name, made when first asked for; `number` is the last byte of its address."""
        if name not in self._places:
            place = Place(f"{self._mark}{name}", f"198.18.{self._subnet}.{number}")
            switch = f"{self._mark}sw"
            run("ip", "netns", "add", place.name)
            run("ip", "-n", place.name, "link", "set", "lo", "up")
            run("ip", "-n", switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", place.name)
            run("ip", "-n", switch, "link", "set", name, "master", "br0", "up")
            run("ip", "-n", place.name, "addr", "add", f"{place.address}/24", "dev", "eth0")
            run("ip", "-n", place.name, "link", "set", "eth0", "up")
            self._places[name] = place
        return self._places[name]


def _sweep() -> None:
    """Namespaces (fpPIDplace) of programs that were killed before they could tidy up."""
    for entry in _NAMES.iterdir() if _NAMES.exists() else ():
        made_by = re.match(r"fp(\d+)[a-z]", entry.name)
        if made_by and not Path(f"/proc/{made_by[1]}").exists():
            run("ip", "netns", "del", entry.name)


def run(*command: str) -> str:
    """What it printed. Raises RuntimeError with its own words."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout

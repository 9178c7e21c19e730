"""`up`, `down` and `status`: an embedded Kafka that outlives the command that started it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .cluster import Cluster, default_addresses
from .errors import BrokerError
from .identity import read_identity
from .settings import Ports

DEFAULT_PORT = 9092


def default_folder() -> Path:
    """Where `up` keeps its cluster: `${XDG_DATA_HOME:-~/.local/share}/fencepost/kafka`."""
    base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "fencepost" / "kafka"


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node; `pid` is None if it does not run."""

    node_id: int
    address: str
    port: int
    pid: int | None
    log_file: Path


@dataclass(frozen=True, slots=True)
class Status:
    """A cluster as its folder and processes show it. `nodes` is empty if the folder holds none."""

    folder: Path
    kafka_version: str | None
    bootstrap: str | None
    nodes: tuple[NodeStatus, ...]

    @property
    def running(self) -> bool:
        """Whether every node runs."""
        return bool(self.nodes) and all(node.pid is not None for node in self.nodes)


def up(folder: Path | None = None, *, nodes: int | None = None, port: int | None = None, heap_mb: int = 256) -> Status:
    """Starts the cluster, or what of it does not run, and waits until it serves.

    nodes  1 or 3; by default what the folder holds, for a new folder 1
    port   clients' port, the next one is the controllers'; by default the folder's, for a new folder 9092

    Raises BrokerError.
    """
    folder = (folder or default_folder()).absolute()
    identity = read_identity(folder)
    if port is not None and not 1 <= port <= 65534:
        raise BrokerError(f"port is {port}: give one from 1 to 65534")
    if port is None and identity is None:
        port = DEFAULT_PORT
    count = nodes or (len(identity.addresses) if identity else 1)
    ports = Ports(port, port + 1) if port is not None else None
    Cluster(folder, nodes=count, ports=ports, heap_mb=heap_mb, detached=True).start()
    return status(folder)


def down(folder: Path | None = None) -> Status:
    """Ends the cluster's own processes and nothing else; the data stays. Tells what was running before.

    Raises BrokerError if the folder holds no cluster.
    """
    before = status(folder)
    if not before.nodes:
        raise BrokerError(f"{before.folder} holds no cluster: name the folder that `up` was given")
    Cluster(before.folder, nodes=len(before.nodes), detached=True).stop()
    return before


def status(folder: Path | None = None) -> Status:
    """What the folder holds and which of its nodes run. Raises BrokerError if it is damaged."""
    folder = (folder or default_folder()).absolute()
    identity = read_identity(folder)
    if identity is None:
        return Status(folder, None, None, ())
    cluster = Cluster(folder, nodes=len(identity.addresses), detached=True)
    nodes = tuple(
        NodeStatus(n, address, identity.ports.client, cluster.pid(n), cluster.log_file(n))
        for n, address in enumerate(default_addresses(len(identity.addresses)), start=1)
    )
    return Status(folder, identity.kafka_version, cluster.bootstrap, nodes)

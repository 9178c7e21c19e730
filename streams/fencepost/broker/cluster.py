"""A Kafka cluster on this machine: formatted once, started, stopped, and broken on purpose.

    with Cluster(folder) as kafka:
        Producer({"bootstrap.servers": kafka.bootstrap})

Everything lies in `folder`: `cluster.json`, and for each node `node-N/` with its settings, log and data. Starting again
in the same folder keeps the data and the ports.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from .archive import find_archive
from .errors import BrokerError
from .identity import Identity, new_uuid, read_identity, read_meta, write_identity
from .jars import find_jars
from .java import find_java
from .keeper import Keeper
from .node import Node, Program, telling_line
from .ports import check_free, choose_ports
from .settings import NodeOptions, Ports, ProxyListener, as_properties, log_properties, server_properties
from .wire import serving_brokers

READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 20.0
_PORT_TRIES = 3


def default_addresses(nodes: int) -> tuple[str, ...]:
    """One node is 127.0.0.1; of several, node n is 127.0.0.1n, so that all may have the same ports."""
    if nodes == 1:
        return ("127.0.0.1",)
    return tuple(f"127.0.0.{10 + n}" for n in range(1, nodes + 1))


class Cluster:
    """One node, or three (replication 3, `min.insync.replicas` 2), each broker and controller in one.

    folder     its own folder; a cluster that is there already is started again with its data
    nodes      1 or 3
    ports      of every node; by default the folder's own, for a new folder free ones
    settings   Kafka broker settings over ours
    options    what is special about a node, by its number from 1
    proxy      adds a listener that names a proxy to its clients; see `ProxyListener`
    addresses  one per node, where loopback will not do (network namespaces)
    heap_mb    each broker's heap in MiB
    jvm_flags  after our own, so that they win
    detached   the brokers outlive this program
    archive    use the archive of Kafka's classes, if there is one
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        nodes: int = 1,
        ports: Ports | None = None,
        settings: Mapping[str, str] | None = None,
        options: Mapping[int, NodeOptions] | None = None,
        proxy: ProxyListener | None = None,
        addresses: Sequence[str] | None = None,
        heap_mb: int = 256,
        jvm_flags: Sequence[str] = (),
        detached: bool = False,
        archive: bool = True,
    ) -> None:
        if nodes not in (1, 3):
            raise BrokerError(f"nodes is {nodes}: give 1 or 3 (two cannot outvote a failure)")
        if addresses is not None and len(addresses) != nodes:
            raise BrokerError(f"{len(addresses)} addresses for {nodes} nodes: give one per node")
        self.folder = Path(folder).absolute()
        self.addresses = tuple(addresses or default_addresses(nodes))
        self._wanted_ports = ports
        self._settings = dict(settings or {})
        self._options = dict(options or {})
        self._proxy = proxy
        self._heap_mb = heap_mb
        self._jvm_flags = tuple(jvm_flags)
        self._detached = detached
        self._use_archive = archive
        self._nodes = {n: Node(self.folder, n, address) for n, address in enumerate(self.addresses, start=1)}
        self._keeper: Keeper | None = None
        self._identity: Identity | None = None
        self._program: Program | None = None

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(self._nodes)

    @property
    def ports(self) -> Ports:
        return self._known().ports

    @property
    def version(self) -> str:
        """The version of the Kafka that formatted or last started this cluster."""
        return self._known().kafka_version

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`: every node, host:port."""
        return ",".join(f"{address}:{self.ports.client}" for address in self.addresses)

    def proxy_target(self, node_id: int) -> tuple[str, int]:
        """Where the proxy forwards to: the address and port of the node's second listener."""
        if not self.ports.proxied:
            raise BrokerError("this cluster has no listener for a proxy: give Cluster(proxy=ProxyListener(...))")
        return self._node(node_id).address, self.ports.proxied

    def pid(self, node_id: int) -> int | None:
        """The process ID of a node that runs, else None."""
        process = self._node(node_id).process
        return process.pid if process else None

    def log_file(self, node_id: int = 1) -> Path:
        return self._node(node_id).log_file

    def data_dir(self, node_id: int = 1) -> Path:
        """The node's `log.dirs`. It may be made (or mounted) before the first start."""
        return self._node(node_id).data

    def running(self) -> tuple[int, ...]:
        """The nodes whose process runs (a frozen one does)."""
        return tuple(n for n, node in self._nodes.items() if node.process is not None)

    # --- start and stop ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts every node that does not run and waits until all serve. Raises BrokerError."""
        program = self._program = self._find_program()
        with self._locked():
            not_ours, keeper = self.running(), self._keeper
            for attempt in range(1, _PORT_TRIES + 1):
                chosen_by_us = self._take_up(program)
                try:
                    self._start_nodes(self.node_ids)
                    return
                except BrokerError as error:
                    self._end(set(self.node_ids) - set(not_ours), signal.SIGKILL, 0)
                    if keeper is None:
                        self._dismiss_keeper()
                    if not (chosen_by_us and "Address already in use" in str(error) and attempt < _PORT_TRIES):
                        raise
                    # Somebody took a port between our look and Kafka's bind: choose again.
                    write_identity(self.folder, replace(self._known(), ports=self._free_ports()))

    def stop(self) -> None:
        """Ends every node, cleanly if they manage in time; data stays. Does nothing where none runs."""
        self._end(self.node_ids, signal.SIGTERM, STOP_TIMEOUT_S)
        self._dismiss_keeper()

    def discard(self) -> None:
        """Ends every node at once, for a cluster whose data nobody will look at again."""
        self._end(self.node_ids, signal.SIGKILL, 0)
        self._dismiss_keeper()

    def start_node(self, node_id: int, *, wait: bool = True) -> None:
        """Starts one node again; with `wait` until it serves and the other running nodes know it."""
        if self._node(node_id).process is not None:
            raise BrokerError(f"node {node_id} of {self.folder} runs already: stop it first")
        self._start_nodes((node_id,), wait=wait)

    def stop_node(self, node_id: int, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ends one node with SIGTERM: it hands its leaderships over first. SIGKILL after the time limit."""
        node = self._node(node_id)
        node.signal(signal.SIGTERM)
        if not node.wait_ended(timeout_s):
            self.kill(node_id)

    def restart(self, node_id: int) -> None:
        """Stops the node if it runs, starts it, waits until it serves."""
        if self._node(node_id).process is not None:
            self.stop_node(node_id)
        self.start_node(node_id)

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Waits until every running node serves and knows of every other one that runs. Raises BrokerError."""
        self._wait_ready(self.running(), timeout_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- faults -----------------------------------------------------------------------------------------------------

    def kill(self, node_id: int = 1) -> None:
        """SIGKILL; returns when the process is gone."""
        node = self._node(node_id)
        node.signal(signal.SIGKILL)
        if not node.wait_ended(STOP_TIMEOUT_S):
            raise BrokerError(f"node {node_id} does not die: its process is stuck in the kernel")

    def freeze(self, node_id: int = 1) -> None:
        """SIGSTOP: the node keeps its connections and answers nothing."""
        self._node(node_id).signal(signal.SIGSTOP)

    def thaw(self, node_id: int = 1) -> None:
        """SIGCONT."""
        self._node(node_id).signal(signal.SIGCONT)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _node(self, node_id: int) -> Node:
        if node_id not in self._nodes:
            raise BrokerError(f"there is no node {node_id}: the nodes are {', '.join(map(str, self._nodes))}")
        return self._nodes[node_id]

    def _known(self) -> Identity:
        if self._identity is None:
            self._identity = read_identity(self.folder)
        if self._identity is None:
            raise BrokerError(f"{self.folder} holds no cluster yet: start it first")
        return self._identity

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Two programs must not start the same folder at once."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = open(self.folder / "lock", "w")  # noqa: SIM115 - closed below, which unlocks
        except OSError as error:
            raise BrokerError(f"{self.folder} cannot be written ({error.strerror}): choose another folder") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            lock.close()

    def _find_program(self) -> Program:
        java, jars = find_java(), find_jars()
        archive = find_archive(java, jars) if self._use_archive else None
        return Program(java, jars, self._heap_mb, self._jvm_flags, archive)

    def _take_up(self, program: Program) -> bool:
        """Makes the folder's identity and data folders, or checks them. True if the ports are our choice."""
        identity = read_identity(self.folder)
        if identity is None:
            ports = self._wanted_ports or self._free_ports()
            identity = Identity(new_uuid(), self.addresses, ports, program.jars.version, formatted=False)
            write_identity(self.folder, identity)
        if identity.addresses != self.addresses:
            theirs, ours = ", ".join(identity.addresses), ", ".join(self.addresses)
            raise BrokerError(f"{self.folder} holds another cluster (at {theirs}, not {ours}): choose another folder")
        running = self.running()
        if self._wanted_ports is not None and self._wanted_ports != identity.ports:
            if running:
                raise BrokerError(f"the cluster in {self.folder} runs on port {identity.ports.client}: stop it first")
            identity = replace(identity, ports=self._wanted_ports)
        if self._proxy is not None and not identity.ports.proxied:
            (proxied,) = choose_ports(self.addresses, 1)
            identity = replace(identity, ports=replace(identity.ports, proxied=proxied))
        if not identity.formatted:
            self._format(identity, program)
        self._check_data(identity)
        self._identity = replace(identity, formatted=True, kafka_version=program.jars.version)
        write_identity(self.folder, self._identity)
        return self._wanted_ports is None and not running

    def _free_ports(self) -> Ports:
        client, controller, proxied = choose_ports(self.addresses, 3)
        return Ports(client, controller, proxied if self._proxy else 0)

    def _format(self, identity: Identity, program: Program) -> None:
        """Formats every data folder. What an interrupted start left half-formatted is emptied: it never served."""
        for node in self._nodes.values():
            node.data.mkdir(parents=True, exist_ok=True)
            for entry in node.data.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        first = self._nodes[1]
        self._write_settings(first, identity.ports)
        command: list[str | Path] = [program.java, *program.quick_flags(), "-cp", program.jars.classpath]
        command += ["kafka.tools.StorageTool", "format", "--cluster-id", identity.cluster_id]
        command += ["--config", first.folder / "server.properties"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = telling_line(done.stderr + done.stdout) or "no reason told"
            raise BrokerError(f"Kafka could not format {first.data}: {reason}; mend that and start again")
        # The other nodes get the same feature levels and an ID of their own: one JVM less for each.
        for node in list(self._nodes.values())[1:]:
            shutil.copy(first.data / "bootstrap.checkpoint", node.data)
            meta = {"version": "1", "cluster.id": identity.cluster_id, "node.id": str(node.node_id)}
            (node.data / "meta.properties").write_text(as_properties({**meta, "directory.id": new_uuid()}))

    def _check_data(self, identity: Identity) -> None:
        cluster_id = read_meta(self._nodes[1].data).get("cluster.id", identity.cluster_id)
        for node in self._nodes.values():
            meta = read_meta(node.data)
            if identity.formatted and not meta:
                raise BrokerError(
                    f"{node.data} is half-written (no meta.properties): put it back, or delete {self.folder} to begin "
                    "anew"
                )
            expected = (identity.cluster_id, str(node.node_id))
            if (meta.get("cluster.id", cluster_id), meta.get("node.id")) != expected:
                raise BrokerError(
                    f"{node.data} belongs to node {meta.get('node.id')} of {meta.get('cluster.id')}, not to "
                    f"node {expected[1]} of {expected[0]}: put the right one back, or delete {self.folder}"
                )

    def _write_settings(self, node: Node, ports: Ports) -> None:
        special = self._options.get(node.node_id, NodeOptions())
        overrides = {**self._settings, **special.settings}
        settings = server_properties(node.node_id, self.addresses, ports, node.data, self._proxy, overrides)
        (node.folder / "server.properties").write_text(as_properties(settings))
        (node.folder / "log4j2.properties").write_text(log_properties(node.log_file))

    def _start_nodes(self, node_ids: Sequence[int], *, wait: bool = True) -> None:
        program = self._program = self._program or self._find_program()
        ports = self.ports
        stopped = [self._node(n) for n in node_ids if self._node(n).process is None]
        for node in stopped:
            if not self._options.get(node.node_id, NodeOptions()).prefix:  # else the ports are another namespace's
                self._check_ports(node, ports)
            self._write_settings(node, ports)
        for node in stopped:
            self._spawn(node, program)
        if wait:
            self._wait_ready(node_ids, READY_TIMEOUT_S)

    @staticmethod
    def _check_ports(node: Node, ports: Ports) -> None:
        for port in filter(None, (ports.client, ports.controller, ports.proxied)):
            check_free(node.address, port)

    def _spawn(self, node: Node, program: Program) -> None:
        special = self._options.get(node.node_id, NodeOptions())
        process = node.spawn(program, special.prefix, special.env)
        if not self._detached:
            self._keeper = self._keeper or Keeper()
            self._keeper.keep(process.pid)

    def _wait_ready(self, node_ids: Sequence[int], timeout_s: float) -> None:
        expected = frozenset(self.running())
        for node_id in node_ids:
            node = self._node(node_id)
            node.wait_until(lambda node=node: self._serves(node, expected), timeout_s)  # type: ignore[misc]

    def _serves(self, node: Node, expected: frozenset[int]) -> bool:
        try:
            return serving_brokers(node.address, self.ports.client) >= expected
        except (OSError, ValueError):
            return False

    def _end(self, node_ids: Iterable[int], number: signal.Signals, grace_s: float) -> None:
        processes = [(node, node.process) for node in map(self._node, node_ids)]
        for _, process in processes:
            if process is not None:
                process.signal(number)
                process.signal(signal.SIGCONT)  # a frozen one could not act on SIGTERM
        for node, process in processes:
            # Combined controllers that all go at once leave no quorum to say goodbye to: hence the limit.
            if process is not None and not node.wait_ended(grace_s):
                process.signal(signal.SIGKILL)
                node.wait_ended(STOP_TIMEOUT_S)

    def _dismiss_keeper(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

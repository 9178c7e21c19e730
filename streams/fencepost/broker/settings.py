"""What the embedded brokers are told: one node's `server.properties` and its log configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# A broker that dies or freezes is noticed in seconds, not in the stock dozen: with these a cluster of three stalls
# writes for 3-5 s instead of 9-17, which is what leases have to outlast.
SWIFT: Mapping[str, str] = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "300",
    "controller.quorum.request.timeout.ms": "1000",
    "controller.socket.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "3000",
    "replica.fetch.wait.max.ms": "200",
    "offsets.commit.timeout.ms": "3000",
}

# One node has nobody to hand over to: being declared dead for being slow would only do harm.
ONE_NODE: Mapping[str, str] = {"broker.session.timeout.ms": "4000"}

GROUPS: Mapping[str, str] = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
}

TRANSACTIONS: Mapping[str, str] = {
    # A dead owner's open transaction blocks committed readers until the coordinator has ended it.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.max.timeout.ms": "60000",
}

SAFETY: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "log.message.timestamp.type": "LogAppendTime",
}

# A few partitions and small buffers do for one machine: the cleaner's stock 128 MiB is half of our heap.
SMALL: Mapping[str, str] = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.num.partitions": "4",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "log.index.size.max.bytes": str(1 << 20),
}


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of every node; nodes differ by their address. `proxied` is 0 where there is no such listener."""

    client: int
    controller: int
    proxied: int = 0


@dataclass(frozen=True, slots=True)
class ProxyListener:
    """A second listener that names a proxy's port to its clients, so that everything they send passes the proxy.

    Clients bootstrap at the proxy, which forwards to `Cluster.proxy_target(node)`. Brokers talk to each other directly.
    """

    advertised_port: int
    advertised_host: str | None = None  # default: the node's own address


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What is special about one node: settings over the cluster's, environment, and a command to start it through.

    The prefix must become the program it starts (as `ip netns exec NAME` does), so that what is started is the broker.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()


def server_properties(
    node_id: int,
    addresses: Sequence[str],
    ports: Ports,
    data: Path,
    proxy: ProxyListener | None,
    overrides: Mapping[str, str],
) -> dict[str, str]:
    """One node's settings. `addresses[n - 1]` is node n's."""
    address = addresses[node_id - 1]
    copies = len(addresses)
    in_sync = 2 if copies >= 3 else 1
    listeners = f"INTERNAL://{address}:{ports.client},CONTROLLER://{address}:{ports.controller}"
    advertised = f"INTERNAL://{address}:{ports.client}"
    protocols = "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    if proxy is not None:
        listeners += f",PROXY://{address}:{ports.proxied}"
        advertised += f",PROXY://{proxy.advertised_host or address}:{proxy.advertised_port}"
        protocols += ",PROXY:PLAINTEXT"
    voters = ",".join(f"{n}@{a}:{ports.controller}" for n, a in enumerate(addresses, start=1))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listeners": listeners,
        "advertised.listeners": advertised,
        "listener.security.protocol.map": protocols,
        "log.dirs": str(data),
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        **SAFETY,
        **GROUPS,
        **TRANSACTIONS,
        **SWIFT,
        **(ONE_NODE if copies == 1 else {}),
        **SMALL,
        **overrides,
    }


def as_properties(settings: Mapping[str, str]) -> str:
    """The text of a Java properties file."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in sorted(settings.items()))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def log_properties(log_file: Path) -> str:
    """log4j2's configuration: one file, rolled at 20 MiB, two old ones kept."""
    return as_properties(
        {
            "status": "warn",
            "rootLogger.level": "info",
            "rootLogger.appenderRef.file.ref": "file",
            "appender.file.type": "RollingFile",
            "appender.file.name": "file",
            "appender.file.fileName": str(log_file),
            "appender.file.filePattern": f"{log_file}.%i",
            "appender.file.layout.type": "PatternLayout",
            "appender.file.layout.pattern": "%d{ISO8601} %p %m (%c)%n",
            "appender.file.policies.type": "Policies",
            "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
            "appender.file.policies.size.size": "20MB",
            "appender.file.strategy.type": "DefaultRolloverStrategy",
            "appender.file.strategy.max": "2",
        }
    )

"""Worlds for lanes: a namespace per test, on the shared broker or behind a proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.conftest import note_broker
from tests.faults.proxy import Proxy
from tests.kafka.lane.harness import PARTITIONS, PROTOCOLS, World, discard, make_world

if TYPE_CHECKING:
    from fencepost.broker import Cluster

MakeWorld = Callable[..., World]


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(kafka: Cluster, namespace: str, protocol: str) -> Iterator[World]:
    """A namespace of four partitions, once under each group protocol."""
    made = make_world(kafka.bootstrap, namespace, protocol)
    yield made
    discard(made)


@pytest.fixture
def classic_world(kafka: Cluster, namespace: str) -> Iterator[World]:
    """A namespace where the group protocol makes no difference."""
    made = make_world(kafka.bootstrap, namespace)
    yield made
    discard(made)


@dataclass(frozen=True, slots=True)
class Proxied:
    """A broker behind a proxy. `world` goes round it, `through` goes through it."""

    proxy: Proxy
    world: World

    @property
    def through(self) -> World:
        return self.world.through(self.proxy.bootstrap)


@pytest.fixture(scope="session")
def proxied_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, Cluster]]:
    from fencepost.broker import Cluster
    from fencepost.broker.settings import ProxyListener

    with Proxy() as proxy:
        listener = ProxyListener(proxy.port)
        quick_cleaner = {"log.cleaner.backoff.ms": "200"}  # a test of compacted logs cannot wait for the stock 15 s
        folder = tmp_path_factory.mktemp("kafka-proxied")
        with Cluster(folder, proxy=listener, settings=quick_cleaner) as cluster:
            note_broker(f"embedded Apache Kafka {cluster.version}, one node behind a proxy")
            proxy.forward_to(cluster.proxy_target(1))
            yield proxy, cluster


@pytest.fixture
def proxied(proxied_broker: tuple[Proxy, Cluster], namespace: str) -> Iterator[Proxied]:
    proxy, cluster = proxied_broker
    made = make_world(cluster.bootstrap, namespace, partitions=PARTITIONS)
    yield Proxied(proxy, made)
    proxy.clear()
    discard(made)

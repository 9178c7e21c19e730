"""Stages: one per test, on the shared broker or behind a proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import note_broker
from tests.faults.proxy import Proxy
from tests.scenarios.stage import Stage, on_stage

if TYPE_CHECKING:
    from fencepost.broker import Cluster


@pytest.fixture
def stage(kafka: Cluster, namespace: str, tmp_path: Path) -> Iterator[Stage]:
    """A namespace of four partitions; the test starts its workers."""
    with on_stage(kafka.bootstrap, namespace, tmp_path) as made:
        yield made


@pytest.fixture
def stage_of(kafka: Cluster, namespace: str, tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """Makes the stage with another number of partitions, or the other group protocol."""
    with ExitStack() as stack:

        def make(**options: object) -> Stage:
            return stack.enter_context(on_stage(kafka.bootstrap, namespace, tmp_path, **options))  # type: ignore[arg-type]

        yield make


@pytest.fixture(scope="session")
def proxied_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, Cluster]]:
    """A broker of its own with a proxy before it."""
    from fencepost.broker import Cluster
    from fencepost.broker.settings import ProxyListener

    with (
        Proxy() as proxy,
        Cluster(tmp_path_factory.mktemp("kafka-proxied"), proxy=ProxyListener(proxy.port)) as cluster,
    ):
        note_broker(f"embedded Apache Kafka {cluster.version}, one node behind a proxy")
        proxy.forward_to(cluster.proxy_target(1))
        yield proxy, cluster

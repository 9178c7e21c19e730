"""Kafka in a container, through testcontainers, under Kafka's own image name."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from fencepost.broker.jars import pinned_version
from fencepost.broker.ports import choose_ports
from fencepost.broker.settings import GROUPS, SAFETY, SMALL, TRANSACTIONS
from fencepost.broker.wire import serving_brokers
from tests.conftest import note_broker

COMPOSE = Path(__file__).resolve().parents[2] / "compose"
IN_CI = os.environ.get("CI") == "true"
READY_TIMEOUT_S = 90.0

# The reaper that testcontainers starts beside the containers needs an image of its own; the fixtures clean up
# themselves.
testcontainers_config.ryuk_disabled = True


@dataclass(frozen=True, slots=True)
class ContainerKafka:
    """A running broker: `bootstrap` for clients on this machine, and its container."""

    bootstrap: str
    container: DockerContainer
    image: str

    def serves(self) -> bool:
        host, port = self.bootstrap.split(":")
        try:
            return serving_brokers(host, int(port), timeout_s=1.0) == {1}
        except (OSError, ValueError):
            return False


def environment(settings: dict[str, str]) -> dict[str, str]:
    """Broker settings as the variables that Kafka's image understands."""
    escaped = {name.replace("_", "__").replace("-", "___").replace(".", "_"): v for name, v in settings.items()}
    return {f"KAFKA_{name.upper()}": value for name, value in escaped.items()}


def broker_settings(port: int) -> dict[str, str]:
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        # The broker reaches itself (to verify transactions) inside; clients reach it through the published port.
        "listeners": "CLIENTS://:9092,CONTROLLER://:9093,INTERNAL://localhost:9094",
        "advertised.listeners": f"CLIENTS://127.0.0.1:{port},INTERNAL://localhost:9094",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **SAFETY,
        **GROUPS,
        **TRANSACTIONS,
        **SMALL,
    }


def run(*command: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, env=env)


def cannot(reason: str) -> None:
    """Skips with the reason; in CI, where these tests must run, fails."""
    text = f"no Kafka in a container: {reason.strip()}"
    if IN_CI:
        pytest.fail(text)
    note_broker(f"(skipped) {text}")
    pytest.skip(text)


@pytest.fixture(scope="session")
def engine() -> Iterator[bool]:
    """A container engine. The value tells whether it is ours; then it is stopped at the end."""
    started = run(COMPOSE / "engine.sh", "start")
    if started.returncode != 0:
        cannot(started.stderr)
    ours = started.stdout.strip() == "started"
    yield ours
    if ours:
        stopped = run(COMPOSE / "engine.sh", "stop")
        assert stopped.returncode == 0, stopped.stderr


@pytest.fixture(scope="session")
def kafka_image(engine: bool) -> str:
    """Kafka's image. If missing it is made, but only in CI or on our own engine, not on somebody's."""
    image = f"apache/kafka:{pinned_version()}"
    if run("docker", "image", "inspect", image).returncode != 0:
        if not (IN_CI or engine):
            cannot(f"{image} is missing; docker pull {image}, or make one with compose/make-image.sh kafka")
        made = run(COMPOSE / "make-image.sh", "kafka")
        if made.returncode != 0:
            cannot(made.stderr)
    return image


@pytest.fixture(scope="session")
def container_kafka(kafka_image: str) -> Iterator[ContainerKafka]:
    """A running one-node Kafka in a container, shared by the session."""
    (port,) = choose_ports(("127.0.0.1",), 1)
    container = DockerContainer(kafka_image)
    container.ports["9092/tcp"] = ("127.0.0.1", port)  # on loopback only, which with_bind_ports cannot say
    for name, value in environment(broker_settings(port)).items():
        container.with_env(name, value)
    with container:
        kafka = ContainerKafka(f"127.0.0.1:{port}", container, kafka_image)
        give_up_at = time.monotonic() + READY_TIMEOUT_S
        while not kafka.serves():
            if time.monotonic() > give_up_at:
                out, err = container.get_logs()
                pytest.fail(
                    f"{kafka_image} did not serve within {READY_TIMEOUT_S:.0f} s: {(out + err)[-2000:].decode()}"
                )
            time.sleep(0.1)
        made = run("docker", "image", "inspect", "--format", '{{index .Config.Labels "fencepost.made"}}', kafka_image)
        origin = "made offline" if made.stdout.strip() == "offline" else "the public image"
        note_broker(f"{kafka_image} in a container ({origin}), through testcontainers")
        yield kafka

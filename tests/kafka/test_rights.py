"""The rights that docs/operations.md lists are enough for each role, and the ones that matter are needed.

On a broker of its own with an authorizer: each role has a user, and exactly the rights of the page's table.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from fencepost.broker import Cluster
from fencepost.broker.ports import choose_ports
from fencepost.broker.settings import Ports
from tests.conftest import note_broker
from tests.docs.test_readme_facts import ROOT, rows_of

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
PASSWORD = "secret-of-the-test"
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional ID": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
APP = """
from fencepost import App
app = App("rights")

@app.task("t")
def t(ctx):
    return ctx.epoch
"""


def rights() -> Iterator[tuple[str, AclBinding]]:
    """(role, right) from the table of the page."""
    for role, kind, names, operations in rows_of(PAGE, "role"):
        for name in re.findall(r"`([^`]+)`", names) or ["kafka-cluster"]:
            pattern = ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
            for operation in operations.split(", "):
                yield (
                    role,
                    AclBinding(
                        KINDS[kind], name.rstrip("*"), pattern, f"User:{role}", "*",
                        AclOperation[re.sub(r"(?<!^)(?=[A-Z])", "_", operation).upper()], AclPermissionType.ALLOW,
                    ),
                )  # fmt: skip


@dataclass(frozen=True)
class Guarded:
    """A broker that asks who comes."""

    bootstrap: str
    folder: Path

    def env(self, role: str) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
        return clean | {
            "FENCEPOST_BOOTSTRAP": self.bootstrap,
            "FENCEPOST_PROFILE": "quick",
            "FENCEPOST_KAFKA_CLIENT_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "FENCEPOST_KAFKA_CLIENT_SASL_MECHANISM": "PLAIN",
            "FENCEPOST_KAFKA_CLIENT_SASL_USERNAME": role,
            "FENCEPOST_KAFKA_CLIENT_SASL_PASSWORD": PASSWORD,
        }

    def may(self, role: str, *arguments: str) -> str:
        done = self._run(role, arguments)
        assert done.returncode == 0, f"{role}: {arguments}\n{done.stdout}\n{done.stderr}"
        assert PASSWORD not in done.stdout + done.stderr
        return done.stdout

    def may_not(self, role: str, *arguments: str) -> None:
        done = self._run(role, arguments)
        assert done.returncode == 1, f"{role} could: {arguments}\n{done.stdout}\n{done.stderr}"
        # The code of it, or the client library's words where it had made a fatal error of it meanwhile.
        assert re.search("authorization.failed", done.stderr, re.IGNORECASE), done.stderr
        assert "Traceback" not in done.stderr

    def _run(self, role: str, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fencepost.cli.main", *arguments]
        return subprocess.run(
            command, env=self.env(role), cwd=self.folder, capture_output=True, text=True, timeout=90, check=False
        )


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    client, controller, guarded = choose_ports(["127.0.0.1"], 3)
    users = " ".join(f'user_{role}="{PASSWORD}"' for role in sorted({role for role, _ in rights()}))
    settings = {
        "listeners": f"INTERNAL://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller},ASKS://127.0.0.1:{guarded}",
        "advertised.listeners": f"INTERNAL://127.0.0.1:{client},ASKS://127.0.0.1:{guarded}",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,ASKS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.asks.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # who comes through the other listeners: the test itself
    }
    with Cluster(tmp_path / "kafka", ports=Ports(client, controller), settings=settings) as cluster:
        note_broker(f"embedded Apache Kafka {cluster.version}, one node with an authorizer")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for made in admin.create_acls([right for _, right in rights()]).values():
            made.result()
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result()
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce("orders", b"{}", b"o-1")
        assert producer.flush(30) == 0
        (tmp_path / "app.py").write_text(APP)
        (tmp_path / "tasks.toml").write_text('[[task]]\nid = "u"\nhandler = {kind = "python", function = "t"}\n')
        yield Guarded(f"127.0.0.1:{guarded}", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_each_role_can_do_its_work_with_the_rights_that_the_page_lists_and_not_that_of_others(guarded: Guarded) -> None:
    guarded.may("init", "init", "--partitions", "2")
    with (guarded.folder / "worker.log").open("wb") as told:
        worker = subprocess.Popen(
            [sys.executable, "-m", "fencepost.cli.main", "worker", "--app", "app:app"],
            env=guarded.env("worker"), cwd=guarded.folder, stdin=subprocess.DEVNULL, stdout=told, stderr=told,
        )  # fmt: skip
    try:
        guarded.may("trigger", "trigger", "t")
        guarded.may("waiter", "trigger", "t", "--wait", "--timeout", "60")
        guarded.may("administrator", "apply", "tasks.toml")
        guarded.may("waiter", "trigger", "u", "--wait", "--timeout", "60")
        derived(guarded)
        guarded.may("operator", "pause", "t")
        guarded.may("administrator", "delete", "u")
        for look in ("tasks", "runs", "owners", "workers", "verify", "alerts", "stats"):
            guarded.may("viewer", look)
        logged(guarded, "t")
        guarded.may_not("trigger", "pause", "t")
        guarded.may_not("trigger", "apply", "tasks.toml")
        guarded.may_not("operator", "apply", "tasks.toml")
        guarded.may_not("viewer", "trigger", "t")
        worker.terminate()
        assert worker.wait(60) == 0
    except BaseException:
        print((guarded.folder / "worker.log").read_text())
        raise
    finally:
        worker.kill()
        worker.wait()
    assert PASSWORD not in (guarded.folder / "worker.log").read_text()


def derived(guarded: Guarded) -> None:
    """Rules and views, by a client library of their own, with the same settings."""
    (guarded.folder / "rules.toml").write_text('[[rule]]\nname = "r"\ntopic = "orders"\ntask = "t"\n')
    with ExitStack() as stack:
        for role, arguments in (("rules", ("rules.toml", "--from", "beginning")), ("views", ("--every", "1s"))):
            told = stack.enter_context((guarded.folder / f"{role}.log").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", "fencepost.cli.main", role, *arguments],
                env=guarded.env(role), cwd=guarded.folder, stdin=subprocess.DEVNULL, stdout=told, stderr=told,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.kill)
        until_s = time.monotonic() + 60
        while "r:orders:" not in guarded.may("viewer", "runs", "--json") or not reading(guarded, "views"):
            logs = [(guarded.folder / f"{role}.log").read_text() for role in ("rules", "views")]
            assert time.monotonic() < until_s, logs
    for role in ("rules", "views"):
        assert PASSWORD not in (guarded.folder / f"{role}.log").read_text()


def reading(guarded: Guarded, role: str) -> bool:
    return '"event":"reading"' in (guarded.folder / f"{role}.log").read_text()


def logged(guarded: Guarded, task: str) -> None:
    until_s = time.monotonic() + 30
    while json.loads(guarded.may("viewer", "describe", task, "--json"))["status"] != "paused":
        assert time.monotonic() < until_s
    guarded.may("viewer", "logs", task)
    guarded.may("viewer", "dlq", "list")

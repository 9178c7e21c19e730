"""Fencing of the node: a confirmed end of a lost worker ends the wait for its lease; anything else does not."""

from __future__ import annotations

import shlex
import socketserver
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker import Cluster
from fencepost.core.times import parse_rfc3339
from tests.conftest import note_broker
from tests.faults import network
from tests.scenarios.stage import Stage, on_stage

pytestmark = pytest.mark.faults

LONG_LEASE = {"FENCEPOST_LEASE_TTL_S": "60"}
SHORT_LEASE_S = 8.0


def at_s(event: dict[str, Any]) -> float:
    return parse_rfc3339(event["at"]) / 1000


def starts(stage: Stage, task: str) -> list[dict[str, Any]]:
    return [event for event in stage.world.history(task) if event["kind"] == "started"]


def test_a_lost_worker_whose_node_is_fenced_is_not_waited_for(stage: Stage) -> None:
    """It is frozen, and its lease would last a minute; the command ends it by the process ID it is told."""
    command = shlex.join([sys.executable, "-c", "import os; os.kill(int('{pid}'), 9)"])
    stage.start_all("a", "b", FENCEPOST_FENCE_COMMAND=command, **LONG_LEASE)
    worker, task = stage.workers["a"], stage.task_of("a")
    stage.trigger(task, payload={"seconds": 600, "stubborn": True})
    stage.wait_line(task)
    worker.may_end = True
    worker.freeze()
    interrupted = stage.wait_kind(task, "interrupted")
    assert (interrupted["cause"], interrupted["node_fenced"]) == ("lost", "confirmed")
    first, second = stage.wait("started again", lambda: len(found := starts(stage, task)) == 2 and found)
    assert at_s(second) - at_s(first) < 60  # the lease of the first was never over
    assert stage.wait_ended(worker) == -9
    stage.wait("nothing of it left", lambda: not worker.left_behind())
    assert [line["took_s"] > 0 for line in stage.workers["b"].said("node fenced")] == [True]
    stage.cli("cancel", task)
    stage.check_no_overlap()


def test_a_command_that_fails_is_recorded_and_the_lease_is_waited_for(stage: Stage) -> None:
    command = shlex.join([sys.executable, "-c", "raise SystemExit('no answer from the switch')"])
    stage.start_all("a", "b", FENCEPOST_FENCE_COMMAND=command, FENCEPOST_LEASE_TTL_S=f"{SHORT_LEASE_S:g}")
    worker, task = stage.workers["a"], stage.task_of("a")
    stage.trigger(task, payload={"seconds": 600, "stubborn": True})
    stage.wait_line(task)
    worker.kill()
    interrupted = stage.wait_kind(task, "interrupted")
    assert (interrupted["cause"], interrupted["node_fenced"]) == ("lost", "failed")
    first, second = stage.wait("started again", lambda: len(found := starts(stage, task)) == 2 and found)
    assert at_s(second) - at_s(first) >= SHORT_LEASE_S
    (said,) = stage.workers["b"].said("node not fenced: its leases are waited for")
    assert said["why"] == "exit code 1: no answer from the switch"
    page = stage.workers["b"].page("/metrics")[1].decode()
    assert 'fencepost_node_fences_total{outcome="failed"} 1.0' in page
    stage.cli("cancel", task)
    stage.check_no_overlap()


class Resource(socketserver.ThreadingTCPServer):
    """Something on the network that runs write to: it remembers which epoch wrote, in the order of arrival."""

    daemon_threads = True

    def __init__(self, host: str) -> None:
        self.epochs: list[int] = []
        resource = self

        class Taker(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                resource.epochs.extend(int(line) for line in self.rfile)

        super().__init__((host, 0), Taker)


@pytest.mark.skipif(network.why_not() is not None, reason=str(network.why_not()))
def test_a_run_that_was_cut_off_by_a_firewall_rule_reaches_nothing_any_more(tmp_path: Path, namespace: str) -> None:
    """The lost worker's runs live on, as their lease is long; the rule keeps what they write from arriving."""
    with ExitStack() as stack:
        net = stack.enter_context(network.Network())
        place = net.place("wa", 20)
        cluster = stack.enter_context(Cluster(tmp_path / "kafka", addresses=[net.host], heap_mb=320))
        note_broker(f"embedded Apache Kafka {cluster.version}, one node with workers in network namespaces")
        resource = stack.enter_context(Resource(net.host))
        threading.Thread(target=resource.serve_forever, daemon=True).start()
        stack.callback(resource.shutdown)
        stage = stack.enter_context(on_stage(cluster.bootstrap, namespace, tmp_path))
        cut = shlex.join([*place.prefix, "iptables", "-w", "-I", "OUTPUT", "-j", "DROP"])
        worker = stage.start("a", prefix=place.prefix, FENCEPOST_FENCE_COMMAND=cut, **LONG_LEASE)
        stage.start("b", FENCEPOST_FENCE_COMMAND=cut, **LONG_LEASE)
        stage.wait("a and b hold all partitions", lambda: set(stage.holders().values()) == {"a", "b"})
        task = stage.task_of("a", "net/written")
        host, port = resource.server_address[:2]
        stage.trigger(task, payload={"host": host, "port": port})
        stage.wait("the first run at work", lambda: len(resource.epochs) > 20)
        worker.may_end = True
        worker.freeze()
        assert stage.wait_kind(task, "interrupted")["node_fenced"] == "confirmed"
        stage.wait("the second run at work", lambda: resource.epochs.count(2) > 50)
        assert any(process.name() != "fencepost-guard" for process in worker.family())  # the cut-off run goes on
        assert resource.epochs == sorted(resource.epochs)
        assert len(starts(stage, task)) == 2
        worker.kill()
        stage.cli("cancel", task)

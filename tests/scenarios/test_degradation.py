"""What still works when one thing goes wrong: tests for rows of docs/degradation.md."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fencepost.core.schedule import Every
from fencepost.core.task import PythonHandler
from tests.scenarios.degraded import APP, gauge, produce_many, runs_go_on
from tests.scenarios.stage import Stage, on_stage, produce, python_task

if TYPE_CHECKING:
    from fencepost.broker import Cluster

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def stage(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One worker for all of it, which must neither end nor need a restart."""
    with on_stage(kafka.bootstrap, f"t{uuid.uuid4().hex[:10]}", tmp_path_factory.mktemp("degraded")) as made:
        made.start("a", *APP)
        made.all_hold("a")
        yield made
        assert made.workers["a"].exit_code is None
        assert "Traceback" not in made.workers["a"].log_text()
        made.check_no_overlap()


def test_metrics_unavailable(stage: Stage) -> None:
    """Whoever should fetch them hangs, many times over."""
    worker = stage.workers["a"]
    port = worker.said("serving HTTP")[0]["port"]
    hanging = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(50)]
    try:
        for connection in hanging:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")  # and never the rest
        runs_go_on(stage, "metrics")
        stage.wait("a probe is answered beside them", worker.ready)
    finally:
        for connection in hanging:
            connection.close()


def test_metrics_port_taken(stage: Stage) -> None:
    """Who asked for a port that is taken hears it at once, and not after the runs have begun."""
    port = stage.workers["a"].said("serving HTTP")[0]["port"]
    done = stage.cli(
        "worker", "--app", "tests.scenarios.app:app", "--profile", "quick", "--http-port", str(port), expect=None
    )
    assert done.returncode in (1, 2)
    assert str(port) in done.stderr
    runs_go_on(stage, "port")


def test_kafka_slow(kafka: Cluster, stage: Stage) -> None:
    """The broker stands still for a third of the time. All is done, later; what is ended for it is tried again."""
    tasks = [f"t/slow-{number}" for number in range(40)]
    pid = kafka.pid(1)
    assert pid is not None
    over = threading.Event()

    def hobble() -> None:
        try:
            while not over.wait(0.2):
                os.kill(pid, signal.SIGSTOP)
                over.wait(0.1)
                os.kill(pid, signal.SIGCONT)
        finally:
            os.kill(pid, signal.SIGCONT)

    hobbling = threading.Thread(target=hobble)
    hobbling.start()
    try:
        for task in tasks:
            stage.trigger(task)
        for task in tasks:
            stage.wait_line(task, "end")
    finally:
        over.set()
        hobbling.join()
    for task in tasks:
        stage.wait_kind(task, "succeeded")
        kinds = [kind for kind, _ in stage.world.kinds(task)]
        assert kinds.count("succeeded") == 1
        assert kinds.count("started") == 1 + kinds.count("interrupted")


def test_one_bad_task(stage: Stage) -> None:
    """It fails every second, with everything it has; its neighbours do not notice."""
    stage.define(replace(python_task("bad", schedule=Every(1)), handler=PythonHandler("always_fails")))
    stage.wait("it failed three times", lambda: [kind for kind, _ in stage.world.kinds("bad")].count("failed") >= 3)
    good = stage.task_on(stage.world.partition("bad"), "t/beside-bad-")
    stage.trigger(good)
    stage.wait_kind(good, "succeeded")
    stage.cli("delete", "bad")


def test_one_hot_task(stage: Stage) -> None:
    """Three hundred requests for one ID. Those for others behind them on its partition do not wait for all of them."""
    hot = "t/hot"
    good = stage.task_on(stage.world.partition(hot), "t/beside-hot-")
    produce_many(stage, [hot] * 300)
    stage.trigger(good)
    stage.wait_kind(good, "succeeded")
    assert outcomes(stage, hot, "succeeded") < 100
    stage.wait("all were done with", lambda: outcomes(stage, hot, "succeeded", "skipped") == 300, limit_s=90)
    skipped = [event for event in stage.world.history(hot) if event["kind"] == "skipped"]
    assert skipped
    assert {event["cause"] for event in skipped} == {"buffer full"}  # 100 may wait, and that is said of each other


def outcomes(stage: Stage, task: str, *kinds: str) -> int:
    """How many requests came to one of these."""
    return sum(kind in kinds for kind, _ in stage.world.kinds(task))


def test_one_bad_time_zone(stage: Stage) -> None:
    """It is refused at the edge, also where another tool wrote it; the others keep their times."""
    stage.define(python_task("ticking", schedule=Every(1)))
    first = stage.wait_line("ticking")
    body = b'{"handler":{"kind":"python","function":"work"},"schedule":{"cron":"* * * * *","time_zone":"Mars/Olympus"}}'
    partition = stage.world.partition("martian")
    produce(stage.world.bootstrap, stage.world.topics.tasks, b"martian", body, partition=partition)
    letter = stage.wait(
        "its dead letter", lambda: [item for item in stage.dead_letters() if item["topic"] == stage.world.topics.tasks]
    )[0]
    assert letter["field"].endswith("time_zone")
    assert "Mars/Olympus" in letter["reason"]
    stage.wait("three slots more", lambda: len(stage.began("ticking")) >= 4)
    slots = [line.slot_ms for line in stage.began("ticking")]
    assert slots == list(range(first.slot_ms or 0, (slots[-1] or 0) + 1, 1000))
    stage.cli("delete", "ticking")


def test_run_over_its_memory_limit(stage: Stage) -> None:
    stage.trigger("fat/one")
    stage.trigger("t/beside-fat")
    event = stage.wait_kind("fat/one", "failed")
    assert "MemoryError" in str(event)
    stage.wait_kind("t/beside-fat", "succeeded")


def test_disk_full(kafka: Cluster, namespace: str, tmp_path: Path) -> None:
    """Neither the worker's output nor its folder takes a byte. It serves; what a run cannot write fails that run."""
    full = tmp_path / "full"
    full.mkdir()
    with small_disk(full), on_stage(kafka.bootstrap, namespace, tmp_path / "stage") as stage:
        nowhere = ("/bin/sh", "-c", 'exec "$@" >/dev/full 2>&1', "sh")
        worker = stage.start("a", *APP, prefix=nowhere, TMPDIR=str(full))
        stage.wait("it holds all", lambda: set(stage.holders().values()) == {"a"})
        stage.trigger("writes/one")
        event = stage.wait_kind("writes/one", "failed")
        assert "No space left on device" in str(event)
        runs_go_on(stage, "full")
        assert worker.exit_code is None


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """64 KiB, mounted on the folder."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_overload(kafka: Cluster, namespace: str, tmp_path: Path) -> None:
    """One slot, and it is taken: what else was asked for waits, is shown, and runs in its turn."""
    with on_stage(kafka.bootstrap, namespace, tmp_path, partitions=1) as stage:
        worker = stage.start("a", *APP, "--slots", "1")
        stage.all_hold("a")
        enough = tmp_path / "enough"
        stage.trigger("t/long", payload={"seconds": 600, "until": str(enough)})
        stage.wait_line("t/long")
        waiting = [f"t/waits-{number}" for number in range(50)]
        produce_many(stage, waiting)
        stage.wait("all that waits is shown", lambda: gauge(worker, "ready") >= 50)
        assert gauge(worker, "in_flight") == 1
        assert not [task for task in waiting if stage.began(task)]
        # Operators are heard all the same.
        stage.cli("cancel", "t/waits-49")
        stage.wait_kind("t/waits-49", "skipped")
        shown = stage.cli("tasks", "--json").stdout
        assert "t/waits-0" in shown
        enough.touch()
        for task in waiting[:-1]:
            stage.wait_kind(task, "succeeded")
        assert all(len(stage.began(task)) == 1 for task in waiting[:-1])
        assert not stage.began("t/waits-49")

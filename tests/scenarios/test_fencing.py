"""A run that was frozen past its lease and wakes up after a newer one has written: its own write is refused."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from fencepost.core.task import Definition, PythonHandler
from fencepost.fencing import postgres
from tests.fencing import servers
from tests.scenarios.fenced_app import DSN_VARIABLE, FOLDER_VARIABLE
from tests.scenarios.stage import Stage, WorkerProcess

APP = ("--app", "tests.scenarios.fenced_app:app")


@pytest.fixture
def dsn() -> Iterator[str]:
    with servers.postgres() as server:
        with psycopg.connect(server.dsn) as connection:
            postgres.install(connection)
            connection.execute("CREATE TABLE fenced (task text, epoch bigint)")
            connection.execute("CREATE TABLE unfenced (task text, epoch bigint)")
        yield server.dsn


def rows(dsn: str, table: str, task: str) -> list[int]:
    """Epochs in the order of writing."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute(f"SELECT epoch FROM {table} WHERE task = %s ORDER BY ctid", (task,))
        return [epoch for (epoch,) in found.fetchall()]


def said(stage: Stage, folder: Path, epoch: int) -> str:
    told = folder / f"fenced-{epoch}"
    stage.wait(f"epoch {epoch} says what came of its write", told.exists)
    return told.read_text(encoding="utf-8")


def everything_of(worker: WorkerProcess) -> list[psutil.Process]:
    return [psutil.Process(worker.pid), *worker.family()]


def test_the_write_of_a_frozen_and_woken_run_is_refused(stage: Stage, dsn: str, tmp_path: Path) -> None:
    """The guard would have ended the run; here it is bent not to, as on a machine whose own clock stood still."""
    folder = tmp_path / "fenced"
    folder.mkdir()
    where: dict[str, Any] = {DSN_VARIABLE: dsn, FOLDER_VARIABLE: str(folder)}
    first = stage.start("first", *APP, bend={"unguarded": True}, **where)
    second = stage.start("second", *APP, **where)
    stage.all_hold("first", "second")
    task = stage.task_of("first", prefix="f/x")
    (folder / "go-2").touch()
    stage.trigger(task)
    stage.wait("epoch 1 is connected", (folder / "began-1").exists)
    first.may_end = True  # once it finds out
    frozen = everything_of(first)
    runners = [process for process in frozen if process.name() == "fencepost-run"]
    assert runners
    try:
        for process in frozen:
            process.send_signal(signal.SIGSTOP)
        assert said(stage, folder, 2) == f"written in {stage.world.settings.namespace}"
        assert rows(dsn, "fenced", task) == [2]
        stage.wait_kind(task, "succeeded", epoch=2)
        (folder / "go-1").touch()
        for process in runners:
            process.send_signal(signal.SIGCONT)
        assert said(stage, folder, 1) == f"{task}: epoch 1 is stale, epoch 2 was here already"
    finally:
        for process in frozen:
            if process.is_running():
                process.send_signal(signal.SIGCONT)
    assert rows(dsn, "fenced", task) == [2]
    assert sorted(rows(dsn, "unfenced", task)) == [1, 2], (
        "the woken run was alive and could write: the fence stopped it"
    )
    assert [event["cause"] for event in stage.world.history(task) if event["kind"] == "interrupted"] == ["lost"]
    assert second.exit_code is None


def test_a_task_that_is_deleted_and_defined_again_goes_on_counting(stage: Stage, dsn: str, tmp_path: Path) -> None:
    """Otherwise the resource, which remembers, would refuse everything that the new task writes."""
    folder = tmp_path / "fenced"
    folder.mkdir()
    where: dict[str, Any] = {DSN_VARIABLE: dsn, FOLDER_VARIABLE: str(folder)}
    definition = Definition("g", PythonHandler("write"))
    for epoch in (1, 2, 3):
        (folder / f"go-{epoch}").touch()
    stage.start("one", *APP, **where)
    stage.all_hold("one")
    for epoch in (1, 2):
        stage.define(definition)
        stage.wait("it is defined", lambda: stage.world.kinds("g").count(("defined", None)) == epoch)  # noqa: B023
        stage.trigger("g")
        stage.wait_kind("g", "succeeded", epoch=epoch)
        stage.client.delete("g")
        stage.wait("it is deleted", lambda: stage.world.kinds("g").count(("deleted", None)) == epoch)  # noqa: B023
    stage.workers["one"].kill()
    stage.start("two", *APP, **where)
    stage.all_hold("two")
    stage.define(definition)
    stage.wait("it is defined", lambda: stage.world.kinds("g").count(("defined", None)) == 3)
    stage.trigger("g")
    stage.wait_kind("g", "succeeded", epoch=3)
    assert rows(dsn, "fenced", "g") == [1, 2, 3]
    assert "the promise holds" in stage.cli("verify").stdout

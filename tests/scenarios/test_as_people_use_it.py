"""What somebody who has just read the README would try, on a worker of their own."""

from __future__ import annotations

import json
import signal
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psutil
import pytest

from fencepost.core.ids import partition_of
from fencepost.core.schedule import Every
from fencepost.core.task import CommandHandler, Definition, HttpHandler, Isolation, Retry
from fencepost.core.times import format_ms
from fencepost.fencing.http import token_in
from tests.scenarios.stage import Stage, on_stage, python_task
from tests.worker.http_server import Answer, Request, Server

if TYPE_CHECKING:
    from fencepost.broker import Cluster

CHILDREN = 'sleep 987 & setsid sleep 987 & trap "" TERM; echo "$$" >"$WITNESS"; wait; sleep 987'


@pytest.fixture(scope="module")
def stage(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with on_stage(kafka.bootstrap, f"t{uuid.uuid4().hex[:10]}", tmp_path_factory.mktemp("people")) as made:
        made.start("a", "--allow", "/bin/sh")
        made.all_hold("a")
        yield made
        assert "Traceback" not in made.workers["a"].log_text()


def test_a_pause_lets_the_run_that_is_on_end_and_holds_back_the_next(stage: Stage) -> None:
    enough = stage.folder / "pause-enough"
    stage.define(python_task("paused", until=enough))
    stage.cli("trigger", "paused")
    stage.wait_line("paused")
    stage.cli("pause", "paused", "--reason", "lunch")
    stage.wait_kind("paused", "paused")
    stage.cli("trigger", "paused", "--id", "later")
    stage.wait("the second trigger taken in", lambda: stage.world.state("paused")["next_seq"] >= 3)  # type: ignore[index]
    enough.touch()
    stage.wait_kind("paused", "succeeded", epoch=1)
    described = json.loads(stage.cli("describe", "paused", "--json").stdout)
    assert described["status"] == "paused"
    assert len(stage.began("paused")) == 1
    stage.cli("resume", "paused")
    stage.wait_kind("paused", "succeeded", epoch=2)


def test_a_cancelled_command_takes_its_children_with_it(stage: Stage) -> None:
    file = stage.folder / "children.txt"
    handler = CommandHandler(("/bin/sh", "-c", CHILDREN), (("WITNESS", str(file)),))
    stage.define(Definition("parent", handler, isolation=Isolation.OWN, grace_s=0.5))
    stage.cli("trigger", "parent")
    stage.wait("the command at work", lambda: file.exists() and file.read_text().strip())

    def sleepers() -> list[psutil.Process]:
        found = []
        for process in stage.workers["a"].family():
            try:
                found += [process] if process.cmdline() == ["sleep", "987"] else []
            except psutil.NoSuchProcess:
                continue
        return found

    stage.wait("its children", lambda: len(sleepers()) == 2)
    stage.cli("cancel", "parent", "--reason", "enough")
    event = stage.wait_kind("parent", "cancelled")
    assert event["cause"] == "enough"
    assert not sleepers()


def test_a_cancel_ends_what_waits_too_unless_told_otherwise(stage: Stage) -> None:
    for task, options, runs in (("all", (), 1), ("one", ("--run-only",), 2)):
        stage.define(python_task(task, seconds=600))
        stage.cli("trigger", task)
        stage.wait_line(task)
        stage.trigger(task, payload={"seconds": 0.05})
        stage.wait_kind(task, "triggered")
        stage.cli("cancel", task, *options)
        stage.wait_kind(task, "cancelled", epoch=1)
        if runs == 2:
            stage.wait_kind(task, "succeeded", epoch=2)
        stage.wait(f"{task} idle", lambda task=task: stage.world.state(task)["status"] == "idle")
        assert len(stage.began(task)) == runs


def test_the_same_id_twice_is_one_run_and_both_hear_its_end(stage: Stage) -> None:
    for when in ((), ("--delay", "1s"), ("--run-at", format_ms(int(time.time() * 1000) + 1500))):
        task = f"t/twice{'-'.join(when[:1])}"
        first, second = (
            json.loads(
                stage.cli("trigger", task, "--id", "order-1", *when, "--wait", "--timeout", "60", "--json").stdout
            )
            for _ in range(2)
        )
        assert (first["outcome"], first["epoch"]) == (second["outcome"], second["epoch"]) == ("succeeded", 1)
        assert len(stage.began(task)) == 1


def test_a_delete_in_mid_run_drops_what_waits_and_a_new_definition_goes_on_counting(stage: Stage) -> None:
    enough = stage.folder / "delete-enough"
    stage.define(python_task("again", until=enough, schedule=Every(1)))
    stage.wait_line("again")
    stage.cli("delete", "again")
    stage.wait_kind("again", "deleted")
    enough.touch()
    stage.wait_kind("again", "succeeded", epoch=1)
    refused = json.loads(stage.cli("trigger", "again", "--wait", "--timeout", "60", "--json", expect=1).stdout)
    assert refused["outcome"] in ("refused", "skipped")
    stage.define(python_task("again"))
    stage.cli("trigger", "again", "--wait", "--timeout", "60")
    assert [line.epoch for line in stage.began("again")] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trigger", ""), "ID"),
        (("trigger", "x" * 256), "255"),
        (("trigger", "a\nb"), "control"),
        (("trigger", "t/x", "--delay", "10x"), "--delay"),
        (("trigger", "t/x", "--delay=-1s"), "--delay"),
        (("trigger", "t/x", "--run-at", "tomorrow"), "--run-at"),
        (("trigger", "t/x", "--run-at", "2030-01-01T00:00:00"), "--run-at"),
        (("trigger", "t/x", "--id", ""), "--id"),
        (("trigger", "t/x", "--id", "y" * 256), "--id"),
        (("trigger", "t/x", "--priority", "10"), "--priority"),
        (("trigger", "t/x", "--payload", '{"a":NaN}'), "--payload"),
        (("trigger", "t/x", "--payload", json.dumps("z" * 300_000)), "--payload"),
        (("logs", "t/x", "0"), "EPOCH"),
        (("runs", "--limit", "-1"), "--limit"),
        (("cancel", ""), "ID"),
        (("pause", "a\x7fb"), "control"),
        (("next", "t/x", "--count", "0"), "--count"),
        (("dlq", "show", "first"), "PARTITION:OFFSET"),
    ],
    ids=lambda item: " ".join(item)[:40] if isinstance(item, tuple) else "",
)
def test_what_was_typed_wrongly_is_said_with_exit_code_2_and_sends_nothing(
    stage: Stage, arguments: tuple[str, ...], message: str
) -> None:
    if any(len(argument) > 100_000 for argument in arguments):
        file = stage.folder / "large.json"
        file.write_text(arguments[-1])
        arguments = (*arguments[:-1], f"@{file}")
    done = stage.cli(*arguments, expect=2)
    assert done.stdout == ""
    assert message in done.stderr
    assert not stage.began("t/x")


def test_an_http_task_is_tried_again_or_not_as_its_server_answers(stage: Stage) -> None:
    statuses = {"/flaky": [503, 200], "/gone": [410]}

    def answer(request: Request) -> Answer:
        left = statuses[request.path]
        return Answer(left.pop(0) if len(left) > 1 else left[0])

    with Server(answer) as server:
        stage.start("caller", "--allow-host", server.host)
        stage.all_hold("a", "caller")
        retry = Retry(attempts=3, delay_s=0.1)
        for path in statuses:
            # With one of two workers allowed to call: where the other owns the ID, its run would wait.
            task = next(
                f"{path[1:]}/{n}"
                for n in range(100)
                if stage.holders().get(partition_of(f"{path[1:]}/{n}".encode(), 4)) == "caller"
            )
            stage.define(Definition(task, HttpHandler(server.url(path)), retry=retry))
            stage.trigger(task, payload={"n": 1})
            event = stage.wait_kind(task, "succeeded" if path == "/flaky" else "failed")
            epochs = [token_in(request.headers).epoch for request in server.got if request.path == path]
            if path == "/flaky":
                assert (event["epoch"], event["result"], epochs) == (2, {"status": 200}, [1, 2])
                error = stage.wait_kind(task, "failed", epoch=1)["error"]
                assert error == f"POST {server.url(path)}: 503 Service Unavailable"
            else:
                assert (event["epoch"], epochs) == (1, [1])
                assert event["given_up"] == "failed in attempt 1: it would fail again"
        stage.workers["caller"].signal(signal.SIGTERM)
        stage.wait_ended(stage.workers["caller"])
    stage.cli("verify")

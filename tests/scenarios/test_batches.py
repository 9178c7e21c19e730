"""Overlap `batch` on a real broker, over the death of the worker that has the batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fencepost.core.task import CommandHandler, Definition, Isolation, Overlap
from tests.scenarios.stage import Stage, python_task

WAITING = 30


def started(stage: Stage, task: str) -> list[dict[str, Any]]:
    return [event for event in stage.world.history(task) if event["kind"] == "started"]


def requests(event: dict[str, Any]) -> list[str]:
    return [each["trigger"] for each in (event, *event.get("batch", ()))]


def test_one_run_gets_what_waits_and_a_takeover_keeps_the_batch(stage: Stage, tmp_path: Path) -> None:
    first, go_on = tmp_path / "first", tmp_path / "go on"
    stage.start_all("a", "b")
    stage.define(python_task("hot", overlap=Overlap.BATCH, batch_limit=20))
    stage.wait_kind("hot", "defined")
    stage.trigger("hot", id="first", payload={"seconds": 600, "until": str(first)})
    stage.wait_line("hot")
    handles = []
    for number in range(WAITING):
        payload = {"seconds": 600, "until": str(go_on), "large": "x" * 3000} if number == 0 else {"n": number}
        handles.append(stage.client.trigger("hot", payload, id=f"w{number}"))
    stage.wait("all wait", lambda: [kind for kind, _ in stage.world.kinds("hot")].count("triggered") == WAITING)
    first.touch()
    stage.wait_line("hot", count=2)
    stage.workers[stage.holder("hot")].kill()
    stage.wait_line("hot", count=3)
    go_on.touch()
    assert [handle.wait(60).kind for handle in handles] == ["succeeded"] * WAITING
    runs = [requests(event) for event in started(stage, "hot")]
    batch = [f"w{number}" for number in range(20)]
    assert runs == [["first"], batch, batch, [f"w{number}" for number in range(20, WAITING)]]
    stage.check_no_overlap()
    stage.cli("verify")


def test_a_command_gets_the_payloads_of_its_batch_as_one_array_and_each_request_its_letter(stage: Stage) -> None:
    worker = stage.start("a", "--allow", "/bin/sh")
    stage.all_hold("a")
    handler = CommandHandler(("/bin/sh", "-c", "cat; exit 3"))
    stage.define(Definition("hot", handler, isolation=Isolation.OWN, overlap=Overlap.BATCH))
    stage.wait_kind("hot", "defined")
    stage.cli("pause", "hot")
    stage.wait_kind("hot", "paused")
    for number in range(3):
        stage.trigger("hot", id=f"w{number}", payload=number)
    stage.wait("all wait", lambda: [kind for kind, _ in stage.world.kinds("hot")].count("triggered") == 2)
    stage.cli("resume", "hot")
    stage.wait("three dead letters", lambda: len(stage.dead_letters()) == 3)
    assert {json.loads(letter["value"]["text"])["id"] for letter in stage.dead_letters()} == {"w0", "w1", "w2"}
    stage.wait("its log", lambda: "[0,1,2]" in stage.cli("logs", "hot").stdout)
    assert worker.exit_code is None
    stage.cli("verify")

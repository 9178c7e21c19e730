"""Kind 9: attempts and dead letters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.core.task import Retry
from tests.faults.proxy import Action, Api, Proxy
from tests.scenarios.stage import Stage, on_stage, python_task

if TYPE_CHECKING:
    from fencepost.broker import Cluster

POISON = {"seconds": "no number"}  # `work` raises ValueError


def letters_of(stage: Stage, task: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(stage.cli("dlq", "list", "--task", task, "--json").stdout)[
        "dead_letters"
    ]
    return found


def test_e05_a_poison_replayed_five_times_leaves_one_dead_letter_each_and_says_how_often(stage: Stage) -> None:
    stage.start_all("a")
    stage.define(python_task("poison", retry=Retry(attempts=2, delay_s=0.01)))
    stage.cli("trigger", "poison", "--payload", json.dumps(POISON), "--id", "drop")
    for replays in range(6):
        stage.wait(f"dead letter {replays}", lambda replays=replays: len(letters_of(stage, "poison")) == replays + 1)
        letter = letters_of(stage, "poison")[-1]
        assert letter["replays"] == replays
        attempts = letter["attempts"]
        assert isinstance(attempts, list)
        assert [attempt["epoch"] for attempt in attempts] == [2 * replays + 1, 2 * replays + 2]
        assert "ValueError" in str(letter["error"])
        if replays < 5:
            stage.cli("dlq", "replay", str(letter["place"]))
    # One that comes after shows that nothing more is on its way.
    stage.cli("trigger", "poison", "--wait")
    assert len(letters_of(stage, "poison")) == 6
    assert len([kind for kind, _ in stage.world.kinds("poison") if kind == "started"]) == 13
    stage.cli("verify")


def test_errors_that_are_never_tried_again_end_at_once_and_others_do_not(stage: Stage) -> None:
    stage.start_all("a")
    never = Retry(attempts=3, delay_s=0.01, never=("ValueError",))
    stage.define(
        python_task("never", retry=never), python_task("on", retry=Retry(attempts=3, delay_s=0.01, on=("Val*",)))
    )
    for task in ("never", "on"):
        stage.trigger(task, payload=POISON)
    for task, runs in (("never", 1), ("on", 3)):
        stage.wait(f"the dead letter of {task}", lambda task=task: letters_of(stage, task))
        assert len([kind for kind, _ in stage.world.kinds(task) if kind == "started"]) == runs


def test_a_silent_run_and_a_request_that_waited_too_long_say_so(stage: Stage, tmp_path: Path) -> None:
    stage.start_all("a")
    go_on = tmp_path / "go on"
    stage.define(
        python_task("silent", until=tmp_path / "never", heartbeat_s=1, grace_s=0),
        python_task("busy", until=go_on, start_timeout_s=1.5),
    )
    stage.trigger("silent")
    stage.trigger("busy", id="first")
    stage.wait_line("busy")
    stage.trigger("busy", id="second")
    assert stage.wait_kind("silent", "timed_out")["cause"] == "heartbeat"
    assert stage.wait_kind("busy", "skipped")["cause"] == "waited too long"
    go_on.touch()
    stage.wait_kind("busy", "succeeded")
    stage.cli("verify")


def test_e03_a_trigger_whose_answer_is_lost_again_and_again_runs_once(
    proxied_broker: tuple[Proxy, Cluster], namespace: str, tmp_path: Path
) -> None:
    proxy, _cluster = proxied_broker
    with on_stage(proxy.bootstrap, namespace, tmp_path) as stage:
        stage.start_all("a")
        triggers = stage.world.topics.triggers
        rule = proxy.rule(Action.LOSE_ANSWER, Api.PRODUCE, lambda request: request.names(triggers), times=3)
        try:
            done = stage.cli("trigger", "t/once", "--id", "once", expect=None)
        finally:
            rule.lift()
        assert done.returncode in (0, 3), done.stderr
        assert len(rule.hits) >= 2  # it was sent again
        stage.wait_kind("t/once", "succeeded")
        stage.cli("trigger", "t/once", "--id", "behind it", "--wait")
        assert [kind for kind, _ in stage.world.kinds("t/once")].count("started") == 2
        sent = [record for record in stage.world.records(triggers) if record.key == b"t/once"]
        assert len(sent) == 2

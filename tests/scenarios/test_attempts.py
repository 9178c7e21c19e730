"""Kind 9: attempts and dead letters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fencepost.codec import dumps
from fencepost.core.task import Retry
from fencepost.core.times import parse_rfc3339
from tests.faults.proxy import Action, Api, Proxy
from tests.scenarios.stage import Stage, on_stage, produce, python_task

if TYPE_CHECKING:
    from fencepost.broker import Cluster

POISON = {"seconds": "no number"}  # `work` raises ValueError


def letters_of(stage: Stage, task: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(stage.cli("dlq", "list", "--task", task, "--json").stdout)[
        "dead_letters"
    ]
    return found


@pytest.mark.timeout(400)  # twelve commands, each a process of its own
def test_e05_a_poison_replayed_five_times_leaves_one_dead_letter_each_and_says_how_often(stage: Stage) -> None:
    stage.start_all("a")
    stage.define(python_task("poison", retry=Retry(attempts=2, delay_s=0.01)))
    stage.cli("trigger", "poison", "--payload", json.dumps(POISON), "--id", "drop")
    for replays in range(6):
        stage.wait(f"dead letter {replays}", lambda replays=replays: len(stage.dead_letters()) == replays + 1)
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
    assert len(stage.dead_letters()) == 6
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


def test_a_past_run_a_slot_and_a_record_run_again_with_what_they_were_given(stage: Stage, tmp_path: Path) -> None:
    stage.start_all("a")
    stage.trigger("t/again", id="first", payload={"seconds": 0.02, "n": 1}, headers={"a": "b"})
    stage.wait_kind("t/again", "succeeded", 1)
    stage.cli("rerun", "t/again", "1", "--wait")
    stage.cli("rerun", "t/again", "--wait")  # the last one, which was a rerun itself
    started = [event for event in stage.world.history("t/again") if event["kind"] == "started"]
    assert [event.get("asked_by") for event in started] == [None, "rerun of epoch 1", "rerun of epoch 2"]
    sent = [json.loads(record.value or b"") for record in stage.world.records(stage.world.topics.control)]
    assert [(body["payload"], body["headers"]) for body in sent] == [({"seconds": 0.02, "n": 1}, {"a": "b"})] * 2

    slot = "2026-01-01T02:00:00Z"
    stage.define(python_task("slotted"))
    stage.wait_kind("slotted", "defined")
    produce(stage.world.bootstrap, stage.world.topics.control, b"slotted", dumps({"op": "rerun", "slot": slot}))
    stage.wait_kind("slotted", "succeeded", 1)
    assert stage.wait_line("slotted").slot_ms == parse_rfc3339(slot)

    refused = stage.cli("rerun", "t/again", "77", expect=1)
    assert "history does not tell of epoch 77" in refused.stderr
    produce(stage.world.bootstrap, stage.world.topics.control, b"slotted", dumps({"op": "rerun", "epoch": 1}))
    stage.wait("the record without a payload is refused", stage.dead_letters)
    assert "owners keep no payloads" in stage.dead_letters()[0]["reason"]
    stage.cli("verify")


def test_a_rerun_whose_payload_is_gone_says_so_and_takes_another(stage: Stage) -> None:
    stage.start_all("a")
    stage.trigger("t/gone", id="first")
    stage.wait_kind("t/gone", "succeeded", 1)
    number = stage.world.partition("t/gone")
    delete_records(stage.world.bootstrap, stage.world.topics.triggers, number)
    refused = stage.cli("rerun", "t/gone", "1", expect=1)
    assert f"{stage.world.topics.triggers}/{number}/" in refused.stderr
    assert "is no longer kept" in refused.stderr
    stage.cli("rerun", "t/gone", "1", "--payload", "{}", "--wait")


def delete_records(bootstrap: str, topic: str, partition: int) -> None:
    """All that is there now, as retention would."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, partition, -1)]).values():
        future.result(20)

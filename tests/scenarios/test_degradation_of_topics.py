"""What still works when one topic does not: tests for rows of docs/degradation.md.

Of three brokers two live, and the namespace's topics ask for two. A topic that asks for three takes nothing, while all
others do.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fencepost.broker import Cluster
from tests.scenarios.degraded import APP, admin, gauge, refusing, runs_go_on, without_topic
from tests.scenarios.stage import Stage, on_stage, produce

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Two brokers of three live, and one worker for all tests, which must neither end nor need a restart."""
    folder = tmp_path_factory.mktemp("degraded")
    with (
        Cluster(tmp_path_factory.mktemp("three"), nodes=3) as cluster,
        on_stage(cluster.bootstrap, f"t{uuid.uuid4().hex[:10]}", folder) as made,
    ):
        cluster.kill(3)
        client = admin(made)
        made.wait("two brokers", lambda: len(client.list_topics(timeout=10).brokers) == 2)
        made.world = replace(made.world, admin=client)
        made.start("a", *APP)
        made.all_hold("a")
        yield made
        assert made.workers["a"].exit_code is None
        assert "Traceback" not in made.workers["a"].log_text()
        made.check_no_overlap()


def test_logs_topic_unavailable(stage: Stage) -> None:
    worker, logs = stage.workers["a"], stage.world.topics.logs
    with refusing(stage, logs):
        runs_go_on(stage, "logs")
        stage.wait("it is said", lambda: worker.said("the logs topic takes nothing"))
        stage.wait("the loss is counted", lambda: worker.said("printed lines were not kept"))
        runs_go_on(stage, "logs")
    before = len(stage.world.records(logs))
    runs_go_on(stage, "logs")
    stage.wait("new lines are kept", lambda: len(stage.world.records(logs)) > before)


def test_workers_topic_unavailable(stage: Stage) -> None:
    worker = stage.workers["a"]
    with refusing(stage, stage.world.topics.workers):
        stage.wait("it is said", lambda: worker.said("the workers topic takes nothing"))
        runs_go_on(stage, "workers")
        assert worker.ready()
    before = len(stage.world.records(stage.world.topics.workers, all_=True))
    stage.wait("it is written again", lambda: len(stage.world.records(stage.world.topics.workers, all_=True)) > before)


def test_views_unavailable(stage: Stage) -> None:
    """What they write is not there at all. Workers start without it, and commands answer."""
    with without_topic(stage, stage.world.topics.alerts):
        runs_go_on(stage, "views")
        stage.cli("tasks")
        stage.cli("verify")
        stage.start("b", *APP)
        stage.wait("a second worker is ready", stage.workers["b"].ready)
        stage.workers["b"].kill()
        runs_go_on(stage, "views")


def test_dead_letter_topic_unavailable(stage: Stage) -> None:
    letters = stage.world.topics.dead_letter
    known = len(stage.dead_letters())
    with refusing(stage, letters):
        places = [
            produce(stage.world.bootstrap, stage.world.topics.triggers, b"\x83\xff", b"no json", partition=number)
            for number in range(stage.world.info.partitions)
        ]
        runs_go_on(stage, "letters")
        produce(stage.world.bootstrap, stage.world.topics.triggers, b"\x83\xff", b"nor this", partition=0)
        runs_go_on(stage, "letters")
        assert len(stage.dead_letters()) == known
        stage.wait("it is said", lambda: stage.workers["a"].said("the dead-letter topic takes nothing"))
    stage.wait("all of them are there", lambda: len(stage.dead_letters()) >= known + len(places) + 1)
    found = {(letter["partition"], letter["offset"]) for letter in stage.dead_letters()}
    assert set(places) <= found
    runs_go_on(stage, "letters")


def test_state_topic_unavailable(stage: Stage) -> None:
    """Nothing starts, as nothing can be recorded; what was asked for waits in Kafka and runs afterwards."""
    worker = stage.workers["a"]
    enough = stage.folder / "state-enough"
    stage.trigger("t/state-long", payload={"seconds": 600, "until": str(enough)})
    first = stage.wait_line("t/state-long")
    stage.wait("it is counted", lambda: gauge(worker, "in_flight") == 1)  # or the 0 below could be from before it
    asked = [stage.task_on(number, "t/state-") for number in range(stage.world.info.partitions)]
    with refusing(stage, stage.world.topics.state):
        for task in asked:
            stage.trigger(task)
        # Renewals ride on transactions that fail with their batch: the guard ends what it cannot prove.
        stage.wait("the run ended with its lease", lambda: gauge(worker, "in_flight") == 0)
        assert not [task for task in asked if stage.began(task)]
        assert worker.exit_code is None
        assert worker.page("/livez")[0] == 200
    enough.touch()
    for task in asked:
        stage.wait_line(task, "end")
        assert len(stage.began(task)) == 1
    stage.wait_kind("t/state-long", "succeeded")
    assert ("interrupted", first.epoch) in stage.world.kinds("t/state-long")
    stage.wait("ready again", worker.ready)

"""What docker-compose.yml brings up, for real: workers are killed, frozen, robbed of their guard and scaled."""

from __future__ import annotations

import json
import os
import shlex
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from fencepost.broker.ports import choose_ports
from fencepost.broker.settings import GROUPS, ONE_NODE, SAFETY, SWIFT, TRANSACTIONS
from fencepost.core.times import parse_rfc3339
from fencepost.demo.watch import Run, Watch
from tests.conftest import note_broker
from tests.containers.compose_stack import LIMIT_S, Stack
from tests.containers.conftest import COMPOSE, IN_CI, cannot, run

# The first one makes images where there are none, which takes minutes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def stack(engine: bool, kafka_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Kafka and three workers, made of the source as it is now; gone at the end with all that belongs to them."""
    if run("docker", "image", "inspect", "python:3.11-slim").returncode != 0 and not (IN_CI or engine):
        cannot("python:3.11-slim is missing; docker pull it, or make one with compose/make-image.sh python")
    ledger = tmp_path_factory.mktemp("ledger")
    ledger.chmod(0o777)  # the workers' user is not ours
    (port,) = choose_ports(("127.0.0.1",), 1)
    name = f"fencepost-test-{uuid.uuid4().hex[:8]}"
    stack = Stack(name, port, ledger, f"fencepost-worker:{name}")
    made = run(COMPOSE / "offline-images.sh", env={**os.environ, "FENCEPOST_WORKER_IMAGE": stack.worker_image})
    assert made.returncode == 0, made.stderr
    if run(COMPOSE / "compose.sh", "version").returncode != 0:
        cannot("neither docker compose nor docker-compose is here, and it cannot be installed")
    try:
        stack.scale(3)
        note_broker(f"{kafka_image} in docker-compose.yml, with three workers in containers")
        yield stack
    finally:
        left = stack.down()
    assert left == []


@pytest.fixture
def three(stack: Stack) -> Iterator[Stack]:
    """The stack with three workers, whatever the test before did; checked for overlaps at the end."""
    stack.scale(3)
    yield stack
    stack.check()


def until_writing(watch: Watch, task: str, seconds: float = 2.0) -> Run:
    """The task's run, once its own lines tell that it has been at work for a while."""
    watch.until(lambda: watch.alive(task) is not None, LIMIT_S, f"{task} running")
    run = watch.alive(task)
    assert run is not None
    watch.until(lambda: watch.last_epoch(task) == run.epoch and watch.wrote_for_s(task) > seconds, LIMIT_S, "lines")
    return run


def until_taken_over(watch: Watch, lost: Run) -> Run:
    """The next epoch's run, once both the history and its own lines tell of it."""
    following = (lost.task, lost.epoch + 1)
    watch.until(lambda: watch.both_tell(*following), LIMIT_S, f"{lost.task} taken over")
    silent_s = (watch.beats[following].first_ns - watch.beats[lost.task, lost.epoch].last_ns) / 1e9
    print(f"{lost.task}: {silent_s:.1f} s from the last line of epoch {lost.epoch} to the first of the next")
    return watch.runs[following]


def until_ended(watch: Watch, tasks: list[str], outcome: str = "succeeded") -> None:
    def done() -> bool:
        return all(any(run.outcome == outcome for run in watch.of_task(task)) for task in tasks)

    watch.until(done, LIMIT_S, f"{outcome}: {tasks}")


def ends(watch: Watch, task: str) -> list[tuple[str | None, str | None]]:
    """How each run of the task ended, and why."""
    return [(run.outcome, run.cause) for run in watch.of_task(task)]


def test_the_broker_has_the_settings_that_the_profile_relies_on(stack: Stack) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{stack.port}"})
    broker = ConfigResource(ResourceType.BROKER, "1")
    config = admin.describe_configs([broker])[broker].result(30)
    wanted = {**SAFETY, **GROUPS, **TRANSACTIONS, **SWIFT, **ONE_NODE}
    assert {name: config[name].value for name in wanted} == wanted


def test_triggers_of_a_plain_producer_run_once_each_on_all_three_workers(three: Stack) -> None:
    tasks = [f"order/once-{number}" for number in range(60)]
    with three.watch() as watch:
        three.trigger(tasks, seconds=0.2)
        until_ended(watch, tasks)
        runs = [run for task in tasks for run in watch.of_task(task)]
    assert [(run.task, run.outcome) for run in runs] == [(task, "succeeded") for task in tasks]
    assert {run.worker for run in runs} == set(three.workers())


def test_a_killed_containers_run_is_taken_over_with_the_next_epoch(three: Stack) -> None:
    with three.watch() as watch:
        three.trigger(["order/killed"], seconds=6)
        lost = until_writing(watch, "order/killed")
        three.engine("kill", lost.worker)
        taken = until_taken_over(watch, lost)
        until_ended(watch, ["order/killed"])
    assert ends(watch, "order/killed") == [("interrupted", "lost"), ("succeeded", None)]
    assert taken.worker in three.workers()
    assert taken.worker != lost.worker
    assert taken.checkpoint_s > 0


def test_a_paused_containers_run_is_ended_and_writes_nothing_after_it_was_taken_over(three: Stack) -> None:
    with three.watch() as watch:
        three.trigger(["order/paused"], seconds=12)
        lost = until_writing(watch, "order/paused")
        three.engine("pause", lost.worker)
        try:
            taken = until_taken_over(watch, lost)
        finally:
            three.engine("unpause", lost.worker)
        three.until_settled()  # the thawed worker is back, or its successor is
        until_ended(watch, ["order/paused"])
        before, after = (watch.beats["order/paused", run.epoch] for run in (lost, taken))
    assert before.last_ns < after.first_ns
    assert not before.ended
    assert taken.worker != lost.worker
    assert ends(watch, "order/paused") == [("interrupted", "lost"), ("succeeded", None)]


def test_a_worker_whose_guard_is_killed_ends_with_its_container_and_comes_back(three: Stack) -> None:
    with three.watch() as watch:
        three.trigger(["order/guarded"], seconds=6)
        lost = until_writing(watch, "order/guarded")
        guard = 'for p in /proc/[0-9]*; do [ "$(cat $p/comm)" = fencepost-guard ] && kill -9 ${p#/proc/}; done; true'
        three.engine("exec", lost.worker, "sh", "-c", guard)
        three.until(lambda: three.inspect(lost.worker)["RestartCount"] == 1, "the container started again")
        until_ended(watch, ["order/guarded"])
        three.until_settled()
    *earlier, last = [outcome for outcome, _ in ends(watch, "order/guarded")]
    assert last == "succeeded"
    assert set(earlier) == {"interrupted"}


def test_a_graceful_scale_down_loses_no_run(three: Stack) -> None:
    tasks = [f"order/drained-{number}" for number in range(24)]
    before = set(three.workers())
    with three.watch() as watch:
        three.trigger(tasks, seconds=8)
        watch.until(lambda: all(watch.alive(task) for task in tasks), LIMIT_S, "all running")
        assert {run.worker for task in tasks for run in watch.of_task(task)} == before
        three.scale(2)
        until_ended(watch, tasks)
        more = ["order/afterwards-1", "order/afterwards-2", "order/afterwards-3"]
        three.trigger(more, seconds=0.2)
        until_ended(watch, more)
        runs = [run for task in [*tasks, *more] for run in watch.of_task(task)]
    assert [run.outcome for run in runs] == ["succeeded"] * len(runs)
    assert {run.epoch for run in runs} == {1}
    assert set(three.workers()) < before


def test_a_paused_container_is_killed_by_the_fence_command_and_its_lease_not_waited_for(
    stack: Stack, tmp_path: Path
) -> None:
    """Its task's lease would last five minutes. The only new owner is a worker outside, which may ask the engine."""
    stack.scale(1)
    (inside,) = stack.workers()
    told = json.dumps({"handler": {"kind": "python", "function": "order"}, "lease_ttl_s": 300})
    tasks = [f"order/fenced-{number}" for number in range(8)]
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{stack.port}", "partitioner": "murmur2_random"})
    for task in tasks:
        producer.produce("fencepost.tasks", told, task)
    assert producer.flush(30) == 0
    command = shlex.join(["docker", "kill", "{host}"])
    with (
        stack.outside_worker(tmp_path / "outside.log", FENCEPOST_FENCE_COMMAND=command) as outside,
        stack.watch() as watch,
    ):
        stack.trigger(tasks, seconds=600)
        watch.until(lambda: any(watch.alive(task, inside) for task in tasks), LIMIT_S, "one running in the container")
        running = [task for task in tasks if watch.alive(task, inside)]
        stack.engine("pause", inside)
        watch.until(lambda: all(len(watch.of_task(task)) > 1 for task in running), LIMIT_S, "taken over")
        events = {task: stack.history(task) for task in running}
        stack.cancel(tasks)
        watch.until(lambda: not watch.open_runs("order/fenced"), LIMIT_S, "all ended")
    for task in running:
        (lost,) = [event for event in events[task] if event["kind"] == "interrupted"]
        assert (lost["cause"], lost["node_fenced"]) == ("lost", "confirmed"), task
        started = [event for event in events[task] if event["kind"] == "started"]
        assert outside in started[1]["lane"]
        assert parse_rfc3339(started[1]["at"]) - parse_rfc3339(started[0]["at"]) < 300_000
    assert stack.inspect(inside)["State"]["ExitCode"] == 137
    stack.scale(3)
    stack.check()


def test_the_example_tasks_slots_ran(stack: Stack) -> None:
    with stack.watch() as watch:
        watch.until(lambda: bool(watch.of_task("pulse")), LIMIT_S, "pulse")
        assert all(run.slot_ms is not None and run.slot_ms % 10_000 == 0 for run in watch.of_task("pulse"))


def test_workers_are_stopped_before_kafka_and_end_well(stack: Stack) -> None:
    """The last one. Without Kafka a worker has nobody to give its partitions back to, and takes long to stop."""
    workers = stack.workers()
    (kafka,) = stack.listed("ps", "--filter", "label=com.docker.compose.service=kafka", "--format", "{{.ID}}")
    stack.compose("stop")
    states = [stack.inspect(worker)["State"] for worker in workers]
    assert [state["ExitCode"] for state in states] == [0] * len(workers)
    kafka_ended = datetime.fromisoformat(stack.inspect(kafka)["State"]["FinishedAt"])
    assert all(datetime.fromisoformat(state["FinishedAt"]) < kafka_ended for state in states)

"""Takes one thing away from a stage, and gives it back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.kafka.lane.harness import LIMIT_S
from tests.scenarios.stage import Stage, WorkerProcess

APP = ("--app", "tests.scenarios.degraded_app:app")


def admin(stage: Stage) -> AdminClient:
    """A fresh one: an older may wait for a broker that is no more."""
    return AdminClient({"bootstrap.servers": stage.world.bootstrap, "log_level": 0})


def demand_replicas(stage: Stage, topic: str, count: int) -> None:
    """More than there are, and the broker refuses every acknowledged write to this topic, to no other."""
    entry = ConfigEntry("min.insync.replicas", str(count), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client = admin(stage)  # for as long as it is asked: it takes its unanswered requests with it
    for done in client.incremental_alter_configs([resource]).values():
        done.result(LIMIT_S)


@contextmanager
def refusing(stage: Stage, *topics: str) -> Iterator[None]:
    """Within it these topics take nothing, where two of three brokers live; what was written can be read."""
    for topic in topics:
        demand_replicas(stage, topic, 3)
    try:
        yield
    finally:
        for topic in topics:
            demand_replicas(stage, topic, 2)


@contextmanager
def without_topic(stage: Stage, topic: str) -> Iterator[None]:
    """Within it the topic is not there at all."""
    client = admin(stage)
    for done in client.delete_topics([topic]).values():
        done.result(LIMIT_S)
    stage.wait(f"{topic} is gone", lambda: topic not in client.list_topics(timeout=10).topics)
    try:
        yield
    finally:
        for done in client.create_topics([NewTopic(topic, stage.world.info.partitions, 2)]).values():
            done.result(LIMIT_S)


def runs_go_on(stage: Stage, what: str) -> None:
    """A trigger on every partition runs, each to its end; and each prints something."""
    tasks = [stage.task_on(number, f"says/{what}-") for number in range(stage.world.info.partitions)]
    counts = {task: len(stage.began(task)) for task in tasks}
    for task in tasks:
        stage.trigger(task)
    for task in tasks:
        stage.wait_line(task, "end", count=counts[task] + 1)


def gauge(worker: WorkerProcess, name: str) -> float:
    """The sum over the worker's lanes; 0 while it has no such metric."""
    text = worker.page("/metrics")[1].decode()
    found = re.findall(rf"^fencepost_{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    return sum(float(value) for value in found)


def produce_many(stage: Stage, tasks: list[str]) -> None:
    """A trigger for each, in this order."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": stage.world.bootstrap, "partitioner": "murmur2_random"})
    for task in tasks:
        producer.produce(stage.world.topics.triggers, b"{}", task.encode())
    assert producer.flush(20) == 0

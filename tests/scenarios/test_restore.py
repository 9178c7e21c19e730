"""Kind 6: what a worker makes of the log it finds."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from fencepost.codec import loads
from tests.scenarios.stage import LIMIT_S, Stage, produce

if TYPE_CHECKING:
    from fencepost.broker import Cluster

END_KINDS = ("succeeded", "failed", "timed_out", "cancelled", "interrupted")


def test_t01_any_shape_of_a_log_is_restored_to_its_end(stage_of: Callable[..., Stage], kafka: Cluster) -> None:
    """Emptied above offset 0; tombstones only; ending in markers of transactions; with gaps of what was compacted."""
    stage = stage_of(partitions=5)
    state = stage.world.topics.state
    emptied, tombstones, aborted, gaps, untouched = range(5)

    for number in range(20):
        produce(kafka.bootstrap, state, f"old-{number}".encode(), b"{}", partition=emptied)
    admin = stage.world.admin  # to be kept: with it go its answers
    _set(stage, state, {"cleanup.policy": "compact,delete"})  # else nobody may empty it
    _done(admin.delete_records([TopicPartition(state, emptied, 20)]))
    _set(stage, state, {"cleanup.policy": "compact"})

    for number in range(5):
        produce(kafka.bootstrap, state, f"gone-{number}".encode(), None, partition=tombstones)

    _transactions(stage, state, aborted)

    _set(stage, state, {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.0", "delete.retention.ms": "0"})
    _set_broker(stage, "log.cleaner.backoff.ms", "200")
    try:
        for number in range(30):
            produce(kafka.bootstrap, state, b"\x1fmark\x1f0" if number % 3 else b"\x1fmark\x1f1", b"{}", partition=gaps)

        def compacted() -> bool:
            # One more, so that the segment before it is closed and may be cleaned.
            produce(kafka.bootstrap, state, b"\x1fmark\x1f2", b"{}", partition=gaps)
            offsets = [record.offset for record in stage.world.records(state, gaps)]
            return offsets[-1] - offsets[0] + 1 > len(offsets)

        stage.wait("gaps", compacted)
    finally:
        _set_broker(stage, "log.cleaner.backoff.ms", None)
    for partition in (emptied, tombstones, aborted, untouched):
        assert not [item for item in stage.world.records(state, partition) if item.value is not None], partition
    stage.start_all("a")
    for partition in range(5):
        task = stage.task_on(partition)
        stage.trigger(task)
        stage.wait_kind(task, "succeeded", epoch=1)


def test_t03_two_workers_take_over_from_one_that_died_in_a_transaction(stage: Stage) -> None:
    stage.start("dies", bend={"die": "in start", "task": "t"})
    stage.all_hold("dies")
    stage.trigger("t/x", payload={"seconds": 0.2})
    assert stage.wait_ended(stage.workers["dies"]) == -signal.SIGKILL
    partition = stage.world.partition("t/x")
    visible = {record.offset for record in stage.world.records(stage.world.topics.state, partition)}
    all_ = {record.offset for record in stage.world.records(stage.world.topics.state, partition, all_=True)}
    assert all_ - visible, "nothing of the transaction was written"
    stage.start_all("a", "b")  # at once
    stage.wait_kind("t/x", "succeeded")
    assert [line.epoch for line in stage.began("t/x")] == [1]  # the start that nobody may see never was
    assert [kind for kind, _ in stage.world.kinds("t/x")] == ["started", "succeeded"]
    assert not any("Traceback" in worker.log_text() for worker in stage.workers.values())


def test_t05_a_triggers_topic_that_was_made_again_is_refused_until_somebody_accepts_it(stage: Stage) -> None:
    triggers = stage.world.topics.triggers
    stage.start_all("a")
    stage.world.produce((triggers, "t/many", {"id": "one of them"}) for _ in range(2000))
    stage.wait("all of them taken", lambda: len(_skipped(stage, "t/many")) == 1999)
    assert len(stage.began("t/many")) == 1
    _make_again(stage, triggers)
    new = [f"t/new-{number}" for number in range(5)]
    for task in new:
        stage.trigger(task)
    stage.trigger("t/many", id="another one")  # at an offset below the last one that its state has seen
    worker = stage.workers["a"]
    worker.may_end = True
    assert stage.wait_ended(worker, LIMIT_S) == 1
    (said,) = worker.said("the worker ends")
    assert (said["kind"], triggers in said["why"]) == ("WrongNamespace", True)
    refused = stage.start("b")
    refused.may_end = True
    assert stage.wait_ended(refused, LIMIT_S) == 1
    (said,) = refused.said("the worker ends")
    assert triggers in said["why"]
    assert "--accept-new-topics" in said["why"]
    assert not any(stage.began(task) for task in new)
    stage.cli("init", "--accept-new-topics", "--profile", "quick")
    after = stage.start("c")
    after.may_end = True
    stage.wait("it runs them, or refuses to jump", lambda: stage.began(new[0]) or after.exit_code is not None)
    if after.exit_code is not None:
        # Kafka may have kept where the group had read to; what to do about it is on the page that is named.
        assert "was to be read next" in after.said("the worker ends")[0]["why"]
        _read_from_the_beginning(stage, triggers)
        stage.start("d")
    for task in new:
        stage.wait_kind(task, "succeeded")
        assert len(stage.began(task)) == 1
    stage.wait_kind("t/many", "succeeded", epoch=2)
    assert len(stage.began("t/many")) == 2


def test_t05_a_state_topic_that_was_made_again_is_refused_and_nothing_starts_empty(stage: Stage) -> None:
    state = stage.world.topics.state
    stage.start_all("a")
    stage.trigger("t/x")
    stage.wait_kind("t/x", "succeeded")
    _make_again(stage, state)
    worker = stage.workers["a"]
    worker.may_end = True
    stage.trigger("t/x")
    assert stage.wait_ended(worker, LIMIT_S) == 1
    refused = stage.start("b")
    refused.may_end = True
    assert stage.wait_ended(refused, LIMIT_S) == 1
    (said,) = refused.said("the worker ends")
    assert state in said["why"]
    assert "deleted and made again" in said["why"]
    assert [line.epoch for line in stage.began("t/x")] == [1]


def test_t07_what_a_dead_worker_had_decided_and_not_committed_leaves_no_trace(stage_of: Callable[..., Stage]) -> None:
    """Six workers die at random points between deciding and committing; no file of theirs matters to the next."""
    stage = stage_of(partitions=6)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    names = [f"w{number}" for number in range(6)]
    for name in names:
        where = choose.choice(("before start", "in start", "before end", "in end"))
        stage.start(name, bend={"die": where, "task": f"t/{name}"})
    stage.all_hold(*names)
    tasks = [stage.task_of(name, f"t/{name}/") for name in names]
    for task in tasks:
        stage.trigger(task, payload={"seconds": 0.1})
    for name in names:
        assert stage.wait_ended(stage.workers[name], LIMIT_S) == -signal.SIGKILL
        left = [
            path for path in (stage.folder / "workers" / name).rglob("*") if path.is_file() and path.suffix != ".pyc"
        ]
        assert not left, "a worker keeps nothing but what is in the topics"
    stage.start_all("heir")
    for task in tasks:
        stage.wait_kind(task, "succeeded")
    for task in tasks:
        _compare_with_replay(stage, task)
    assert "the promise holds" in stage.cli("verify").stdout
    stage.check_no_overlap()


def _compare_with_replay(stage: Stage, task: str) -> None:
    """The state as the owner has it, and the history told from its beginning, are one story."""
    started = [event["epoch"] for event in stage.world.history(task) if event["kind"] == "started"]
    ends = [event for event in stage.world.history(task) if event["kind"] in END_KINDS]
    state: dict[str, Any] = stage.wait(f"the state of {task}", lambda: stage.world.state(task))
    assert started == list(range(1, len(started) + 1))
    assert [event["epoch"] for event in ends] == started
    assert (state["epoch"], state["status"]) == (started[-1], "idle")
    assert (state["last"]["epoch"], state["last"]["outcome"]) == (ends[-1]["epoch"], ends[-1]["kind"])
    assert {line.epoch for line in stage.began(task)} <= set(started)
    described = loads(stage.cli("describe", task, "--json").stdout.encode())
    assert described["state"]["epoch"] == state["epoch"]


def _skipped(stage: Stage, task: str) -> list[dict[str, Any]]:
    return [event for event in stage.world.history(task) if event["kind"] == "skipped"]


def _transactions(stage: Stage, topic: str, partition: int) -> None:
    """Tombstones in a transaction that is committed, then more in one that is not: the log ends in markers."""
    producer = Producer({"bootstrap.servers": stage.world.bootstrap, "transactional.id": f"{topic}-test"})
    producer.init_transactions(20)
    for commit in (True, False):
        producer.begin_transaction()
        producer.produce(topic, None, b"gone", partition)
        assert producer.flush(20) == 0
        producer.commit_transaction(20) if commit else producer.abort_transaction(20)


def _make_again(stage: Stage, topic: str) -> None:
    """As somebody would who thinks that this empties it."""
    admin = stage.world.admin
    spec = next(item for item in stage.world.topics.specs() if item.name == topic)
    _done(admin.delete_topics([topic]))

    def made() -> bool:
        future = admin.create_topics([NewTopic(topic, stage.world.info.partitions, 1, config=dict(spec.config))])[topic]
        return future.exception(20) is None  # until the old one is gone altogether

    until_s = time.monotonic() + LIMIT_S
    while not made():
        assert time.monotonic() < until_s, f"{topic} could not be made again"


def _read_from_the_beginning(stage: Stage, topic: str) -> None:
    """What the page on operations says: with Kafka's own tool, once no worker of the namespace lives."""
    group = stage.world.settings.group
    offsets = [TopicPartition(topic, number, 0) for number in range(stage.world.info.partitions)]
    admin = stage.world.admin

    def done() -> bool:
        (future,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)]).values()
        try:
            return not any(item.error for item in future.result(20).topic_partitions)
        except KafkaException as refused:
            if refused.args[0].code() in (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID):
                return False  # until the session of the last member is over
            raise

    stage.wait("the group's offsets set", done)


def _set(stage: Stage, topic: str, values: dict[str, str]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in values.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = stage.world.admin
    _done(admin.incremental_alter_configs([resource]))


def _set_broker(stage: Stage, name: str, value: str | None) -> None:
    """For the one broker; None takes it back."""
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value or "", incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = stage.world.admin
    _done(admin.incremental_alter_configs([resource]))


def _done(futures: dict[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(20)

"""Triggering, steering and waiting, on a real broker. The owner's part is played by records written here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.app import App
from fencepost.client import Client, Handle, RunFailed, RunStatus
from fencepost.codec import BadRecord, loads
from fencepost.core.commands import History
from fencepost.core.ids import partition_of
from fencepost.core.schedule import Every
from fencepost.core.task import Definition, PythonHandler, Status, TaskState
from fencepost.kafka.admin import init
from fencepost.kafka.errors import NotInitialised
from fencepost.kafka.producer import Outgoing
from fencepost.kafka.scan import Record, scan
from fencepost.settings import PROFILES, Settings
from fencepost.wire.dead_letter import encode_dead_letter, refused
from fencepost.wire.definition import read_definition
from fencepost.wire.history import encode_history
from fencepost.wire.state import encode_state
from fencepost.wire.trigger import read_trigger

if TYPE_CHECKING:
    from fencepost.broker import Cluster

PARTITIONS = 3


@pytest.fixture
def settings(kafka: Cluster, namespace: str) -> Settings:
    settings = Settings(bootstrap=kafka.bootstrap, namespace=namespace, profile="quick", **PROFILES["quick"])
    init(settings, partitions=PARTITIONS)
    return settings


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    with Client(settings) as client:
        yield client


def only(client: Client, topic: str) -> Record:
    (record,) = scan(client.settings, topic)
    return record


def tell(client: Client, task: str, kind: str, epoch: int | None = None, **fields: Any) -> None:
    """What an owner would write into the history."""
    value = encode_history(task, History(kind, epoch, 1_000, fields), "lane", "nonce")
    at = partition_of(task.encode(), PARTITIONS)
    client.producer.send(Outgoing(client.topics.runs, task, value, partition=at))


def test_a_trigger_lies_on_its_owners_partition_and_reads_as_it_was_meant(client: Client) -> None:
    handle = client.trigger("billing", {"n": 1}, id="a", priority=2, headers={"x": "y"})
    record = only(client, client.topics.triggers)
    assert (record.partition, record.offset) == (handle.partition, handle.offset) == (0, 0)
    trigger = read_trigger(record.key, record.value, record.headers, record.offset, record.at_ms)
    assert (trigger.task, trigger.id, trigger.payload, trigger.priority) == ("billing", "a", {"n": 1}, 2)
    assert trigger.headers == {"x": "y"}
    headers = dict(record.headers)
    assert headers["ce_id"] == b"a"
    assert headers["content-type"] == b"application/json"
    assert headers["ce_type"] == b"fencepost.trigger"


def test_a_trigger_without_an_id_gets_one_of_its_own(client: Client) -> None:
    assert client.trigger("t").id != client.trigger("t").id


@pytest.mark.parametrize("delay", ["90s", 90, timedelta(seconds=90)])
def test_a_delay_may_be_given_in_three_ways(client: Client, delay: Any) -> None:
    client.trigger("t", delay=delay)
    assert loads(only(client, client.topics.triggers).value or b"")["delay"] == 90.0


@pytest.mark.parametrize("run_at", ["2030-01-01T01:00:00+01:00", datetime(2030, 1, 1, tzinfo=UTC)])
def test_a_time_may_be_given_in_two_ways(client: Client, run_at: Any) -> None:
    client.trigger("t", run_at=run_at)
    assert loads(only(client, client.topics.triggers).value or b"")["run_at"] == "2030-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("task", "arguments", "field"),
    [
        ("", {}, "task"),
        ("a\x1fb", {}, "task"),
        ("é" * 128, {}, "task"),
        ("t", {"payload": "x" * 270_000}, "payload"),
        ("t", {"id": ""}, "id"),
        ("t", {"id": "x" * 256}, "id"),
        ("t", {"delay": "soon"}, "delay"),
        ("t", {"delay": -1}, "delay"),
        ("t", {"delay": 1, "run_at": "2030-01-01T00:00:00Z"}, "delay"),
        ("t", {"run_at": "2030-01-01"}, "run_at"),
        ("t", {"run_at": datetime(2030, 1, 1)}, "run_at"),
        ("t", {"priority": 10}, "priority"),
    ],
)
def test_a_bad_trigger_is_refused_by_field_and_nothing_is_sent(
    client: Client, task: str, arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadRecord) as caught:
        client.trigger(task, **arguments)
    assert caught.value.field == field
    assert list(scan(client.settings, client.topics.triggers)) == []


def test_control_records_lie_on_the_owners_partition(client: Client) -> None:
    client.cancel("billing", "enough", waiting=False)
    client.pause("billing", "lunch")
    client.resume("billing")
    records = list(scan(client.settings, client.topics.control))
    assert [(record.partition, loads(record.value or b"")) for record in records] == [
        (0, {"op": "cancel", "reason": "enough", "waiting": False}),
        (0, {"op": "pause", "reason": "lunch"}),
        (0, {"op": "resume"}),
    ]


def test_definitions_are_published_and_taken_away(client: Client) -> None:
    definition = Definition("t", PythonHandler("f"), Every(60.0), priority=1)
    client.apply([definition])
    record = only(client, client.topics.tasks)
    assert read_definition(record.key, record.value)[1] == definition
    client.delete("t")
    assert [record.value for record in scan(client.settings, client.topics.tasks)][-1] is None


def test_one_bad_definition_among_good_ones_publishes_none(client: Client) -> None:
    good = Definition("good", PythonHandler("f"))
    with pytest.raises(BadRecord, match="priority"):
        client.apply([good, Definition("bad", PythonHandler("f"), priority=99)])
    assert list(scan(client.settings, client.topics.tasks)) == []


def test_the_state_is_the_last_one_recorded(client: Client) -> None:
    assert client.state("t") is None
    at = partition_of(b"t", PARTITIONS)
    for epoch in (1, 2):
        value = encode_state(TaskState("t", epoch), "lane", "nonce")
        client.producer.send(Outgoing(client.topics.state, "t", value, partition=at))
    state = client.state("t")
    assert state is not None
    assert (state.epoch, state.status) == (2, Status.IDLE)


def waiting_for(handle: Handle) -> tuple[threading.Thread, list[Any]]:
    """`handle.result()` in a thread of its own, with a client of its own; what came of it is in the list."""
    found: list[Any] = []
    own = Handle(Client(handle.client.settings), handle.task, handle.id, handle.partition, handle.offset, handle.at_ms)

    def wait() -> None:
        try:
            found.append(own.result(timeout=30))
        except (RunFailed, TimeoutError) as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, found


def test_a_result_is_what_the_run_returned(client: Client) -> None:
    handle = client.trigger("t", id="a")
    thread, found = waiting_for(handle)
    tell(client, "t", "started", 1, trigger="other", attempt=1)
    tell(client, "t", "succeeded", 1, trigger="other", duration_s=0.1, result="not this one")
    tell(client, "t", "started", 2, trigger="a", attempt=1)
    tell(client, "t", "succeeded", 2, trigger="a", duration_s=0.1, result={"n": 5}, attempt=1)
    thread.join(40)
    assert found == [{"n": 5}]
    assert handle.status() == RunStatus("succeeded", True, 2, 1, {"n": 5})


def test_an_attempt_that_is_followed_by_another_is_not_the_end(client: Client) -> None:
    handle = client.trigger("t", id="a")
    tell(client, "t", "started", 1, trigger="a", attempt=1)
    tell(client, "t", "failed", 1, trigger="a", attempt=1, error="once", retry_at="2030-01-01T00:00:00.000Z")
    assert handle.status() == RunStatus("retrying", False, 1, 1, None, "once")
    thread, found = waiting_for(handle)
    tell(client, "t", "started", 2, trigger="a", attempt=2)
    tell(client, "t", "failed", 2, trigger="a", attempt=2, error="twice", given_up="failed in attempt 2 of 2")
    thread.join(40)
    (failure,) = found
    assert isinstance(failure, RunFailed)
    assert (failure.outcome, failure.cause, failure.epoch) == ("failed", "twice", 2)


@pytest.mark.parametrize(
    ("kind", "epoch", "fields", "outcome", "cause"),
    [
        ("timed_out", 1, {"given_up": "timed_out in attempt 1 of 1"}, "timed_out", "timed_out in attempt 1 of 1"),
        ("cancelled", 1, {"cause": "enough"}, "cancelled", "enough"),
        ("interrupted", 1, {"cause": "lost"}, "interrupted", "lost"),
        ("skipped", None, {"cause": "buffer full"}, "skipped", "buffer full"),
    ],
)
def test_every_other_end_is_an_error_with_its_cause(
    client: Client, kind: str, epoch: int | None, fields: dict[str, Any], outcome: str, cause: str
) -> None:
    handle = client.trigger("t", id="a")
    tell(client, "t", kind, epoch, trigger="a", **fields)
    with pytest.raises(RunFailed, match=cause) as caught:
        handle.result(timeout=30)
    assert caught.value.outcome == outcome


def test_a_duplicate_gives_the_result_of_the_trigger_that_was_taken(client: Client) -> None:
    client.trigger("t", id="a")
    tell(client, "t", "started", 1, trigger="a", attempt=1)
    tell(client, "t", "succeeded", 1, trigger="a", duration_s=0.1, result="first", attempt=1)
    again = client.trigger("t", id="a")
    tell(client, "t", "skipped", None, trigger="a", cause="duplicate")
    assert again.result(timeout=30) == "first"
    assert again.status().kind == "succeeded"


def test_a_trigger_that_was_refused_does_not_wait_for_ever(client: Client) -> None:
    handle = client.trigger("nobody", id="a")
    record = only(client, client.topics.triggers)
    letter = refused(
        BadRecord("no task of this ID is defined", "task"),
        record.topic,
        record.partition,
        record.offset,
        record.key,
        record.value,
        record.headers,
        record.at_ms,
    )
    value = encode_dead_letter(letter, "lane", "nonce")
    client.producer.send(Outgoing(client.topics.dead_letter, record.key, value, partition=record.partition))
    with pytest.raises(RunFailed, match="refused: task: no task of this ID is defined"):
        handle.result(timeout=30)
    assert handle.status().kind == "refused"


def test_a_result_that_does_not_come_in_time_says_where_the_trigger_stands(client: Client) -> None:
    handle = client.trigger("t", id="a")
    tell(client, "t", "triggered", None, trigger="a")
    with pytest.raises(TimeoutError, match="trigger a is waiting after 1 s"):
        handle.result(timeout=1.0)


def test_a_namespace_without_topics_is_said_at_the_first_call(kafka: Cluster, namespace: str) -> None:
    settings = Settings(bootstrap=kafka.bootstrap, namespace=namespace)
    with Client(settings) as client, pytest.raises(NotInitialised, match="run `fencepost init`"):
        client.trigger("t")


def test_an_app_sends_through_a_client_of_its_own(settings: Settings) -> None:
    app = App("shop", settings)
    app.task("invoice/*")(print)
    app.task("report", schedule=Every(60.0), name="report")(repr)
    handle = app.trigger("invoice/7", {"n": 1}, id="a")
    app.apply()
    app.pause("report")
    app.resume("report")
    app.cancel("report")
    app.delete("report")
    assert handle.task == "invoice/7"
    topics = app.client.topics
    assert [record.key for record in scan(settings, topics.tasks)] == [b"report", b"report"]  # no pattern
    assert [loads(record.value or b"")["op"] for record in scan(settings, topics.control)] == [
        "pause",
        "resume",
        "cancel",
    ]

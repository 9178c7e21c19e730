"""Kind 4: what anybody can produce by mistake. One worker for all of it, which must not notice."""

from __future__ import annotations

import json
import time
import uuid
from base64 import b64decode
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.core.schedule import Every
from fencepost.core.times import format_ms
from tests.scenarios.stage import Stage, on_stage, produce, python_task

if TYPE_CHECKING:
    from fencepost.broker import Cluster

NOT_UTF8 = b"\xc3\x28"


@pytest.fixture(scope="module")
def stage(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with on_stage(kafka.bootstrap, f"t{uuid.uuid4().hex[:10]}", tmp_path_factory.mktemp("bad-records")) as made:
        made.start_all("a")
        yield made
        worker = made.workers["a"]
        assert worker.exit_code is None
        assert "Traceback" not in worker.log_text()
        assert not [line for line in worker.lines() if line.get("level") == "error"]
        assert worker.ready()


def good_on(stage: Stage, partition: int) -> str:
    """A task of its own on the partition, which is triggered and has to run."""
    task = next(
        name for name in iter(lambda: f"t/{uuid.uuid4().hex[:8]}", None) if stage.world.partition(name) == partition
    )
    stage.trigger(task)
    stage.wait_kind(task, "succeeded")
    return task


def refused(stage: Stage, key: bytes | None, value: bytes | None, **options: Any) -> dict[str, Any]:
    """Send it; what comes behind it on its partition runs; it is one dead letter, which this returns."""
    partition, offset = produce(stage.world.bootstrap, stage.world.topics.triggers, key, value, **options)
    good_on(stage, partition)
    place = (stage.world.topics.triggers, partition, offset)

    def letters() -> list[dict[str, Any]]:
        found = stage.dead_letters()
        return [letter for letter in found if (letter["topic"], letter["partition"], letter["offset"]) == place]

    stage.wait("its dead letter", letters)  # it goes beside the lane, and nobody waits for it
    assert len(letters()) == 1, letters()
    return letters()[0]


def original(letter: dict[str, Any], name: str) -> bytes | None:
    """The bytes as received: text where it is UTF-8, base64 elsewhere."""
    form = letter.get(name)
    if form is None:
        return None
    return form["text"].encode() if "text" in form else b64decode(form["base64"])


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"\x83\xff", b"{}", []),
        (b"t/i01", NOT_UTF8, []),
        (b"t/i01", b"{}", [("note", NOT_UTF8)]),
        (b"t/i01", b"{}", [("n\u00f6te", b"x")]),
        (b"t/i01", b"{}", [("note", None)]),
    ],
    ids=["key", "value", "header", "header name", "header without value"],
)
def test_i01_bytes_that_are_no_text_become_one_dead_letter_and_nobody_waits(
    stage: Stage, key: bytes, value: bytes, headers: list[tuple[str, bytes | None]]
) -> None:
    letter = refused(stage, key, value, headers=headers)
    assert (original(letter, "key"), original(letter, "value")) == (key, value)
    assert stage.world.state("t/i01") is None


def test_i03_a_tombstone_deletes_a_task_in_mid_run_and_its_history_stays(stage: Stage) -> None:
    enough = stage.folder / "i03-enough"
    stage.define(python_task("gone", until=enough, schedule=Every(1)))
    stage.wait_line("gone")
    assert stage.workers["a"].page("/metrics")[0] == 200
    stage.cli("delete", "gone")
    stage.wait_kind("gone", "deleted")
    stage.cli("delete", "gone")
    stage.cli("delete", "never-was")
    for task in ("gone", "never-was"):  # as other tools write it
        produce(stage.world.bootstrap, stage.world.topics.tasks, task.encode(), None)
        good_on(stage, stage.world.partition(task))
    assert stage.world.state("gone")["status"] == "running"  # type: ignore[index] # it may end by itself
    enough.touch()
    stage.wait_kind("gone", "succeeded")
    count = len(stage.began("gone"))
    stage.define(python_task("after", schedule=Every(1)))
    stage.wait_line("after", count=3)  # three of the seconds at which it would have had slots
    stage.cli("delete", "after")
    assert len(stage.began("gone")) == count
    assert stage.world.state("never-was") is None
    kinds = [event["kind"] for event in stage.world.history("gone")]
    assert kinds.count("deleted") == 1
    assert "started" in kinds
    assert json.loads(stage.cli("next", "gone", "--json").stdout)["next"] == []
    assert stage.workers["a"].page("/metrics")[0] == 200


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"t/i05", b'{"payload":{"a":1e309}}'),
        (b"t/i05", b'{"payload":NaN}'),
        (b"t/i05", b'{"payload":' + b"9" * 5000 + b"}"),
        (b"t/i05", b'{"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        (None, rb'{"task":"t/\ud800"}'),
        (b"t/i05", rb'{"id":"\ud800"}'),
        (b"t/nul\x00", b"{}"),
        (b"t/new\nline", b"{}"),
        (b"t/i05", b'{"id":"a","id":"b"}'),
        (b"t/" + b"x" * 300_000, b"{}"),
        (b"t/i05", b'{"id":"' + b"x" * 300_000 + b'"}'),
        (b"t/i05", b'{"delay":1e300}'),
        (b"t/i05", b'{"run_at":"9999-99-99T00:00:00Z"}'),
        (b"t/i05", b"[]"),
        (b"t/i05", b"{"),
        (b"t/i05", None),
        (b"__proto__", b"{}"),
        (b"../../x", b"{}"),
    ],
    ids=lambda item: repr(item)[:40],
)
def test_i05_what_would_blow_up_later_is_refused_at_once(stage: Stage, key: bytes | None, value: bytes | None) -> None:
    letter = refused(stage, key, value)
    assert letter["reason"]
    assert stage.world.state("t/i05") is None


@pytest.mark.parametrize("task", ["t/__proto__", "t/../../../x", "t/a b", "t/\u00e4\U0001f600", "t/%s{}$(id)"])
def test_i05_odd_ids_that_are_allowed_run_like_others(stage: Stage, task: str) -> None:
    stage.trigger(task)
    stage.wait_kind(task, "succeeded")
    assert len(stage.began(task)) == 1


def test_i07_without_a_key_the_body_names_the_task_or_it_is_refused(stage: Stage) -> None:
    stage.trigger_raw(None, b'{"task":"t/i07"}')
    stage.wait_kind("t/i07", "succeeded")
    for number in range(stage.world.info.partitions):  # wherever it lands, its owner runs it
        task = f"t/i07-{number}"
        stage.trigger_raw(None, json.dumps({"task": task}).encode(), partition=number)
        stage.wait_kind(task, "succeeded")
        assert len(stage.began(task)) == 1
    assert refused(stage, None, b"{}")["field"] == "task"
    assert refused(stage, b"t/i07", b'{"task":"t/other"}')["field"] == "task"
    assert len(stage.began("t/i07")) == 1
    assert not stage.began("t/other")
    assert None not in {record.key for record in stage.world.records(stage.world.topics.state, all_=True)}


@pytest.mark.parametrize("partitioner", ["consistent_random", "murmur2"])
@pytest.mark.parametrize("value", [b"{}", b'{"task":"t/i09"}'])
def test_i09_an_empty_key_is_refused_whoever_sent_it(stage: Stage, partitioner: str, value: bytes) -> None:
    letter = refused(stage, b"", value, partitioner=partitioner)
    assert letter["field"] == "key"
    assert stage.world.state("t/i09") is None
    assert "" not in stage.world.states()


def test_i11_no_time_stamp_of_a_producer_moves_a_run_or_the_state(stage: Stage) -> None:
    now_ms = int(time.time() * 1000)
    stamps = {"one": 1, "micros": now_ms * 1000, "seconds": now_ms // 1000, "y9999": 253_370_764_800_000, "none": 0}
    for name, stamp in stamps.items():
        stage.trigger_raw(f"t/i11-{name}".encode(), b"{}", timestamp_ms=stamp)
    for name in stamps:
        stage.wait_kind(f"t/i11-{name}", "succeeded")
        assert len(stage.began(f"t/i11-{name}")) == 1
    states = [
        record
        for record in stage.world.records(stage.world.topics.state)
        if record.key is not None and record.key.startswith(b"t/i11-")
    ]
    assert states
    for record in states:  # by the broker's own clock, so that no cleaning takes it too early
        assert now_ms - 60_000 <= record.at_ms <= time.time() * 1000 + 60_000


def test_i13_an_unknown_version_is_refused_and_kept(stage: Stage) -> None:
    letter = refused(stage, b"t/i13", b'{"v":99,"payload":{"n":1}}')
    assert letter["field"] == "v"
    assert original(letter, "value") == b'{"v":99,"payload":{"n":1}}'
    assert stage.world.state("t/i13") is None


def test_i13_a_worker_leaves_alone_a_state_it_cannot_read(kafka: Cluster, namespace: str, tmp_path: Any) -> None:
    """As in a rolling upgrade: the newer worker has written already, the older one takes over."""
    with on_stage(kafka.bootstrap, namespace, tmp_path) as stage:
        newer = b'{"v":2,"task":"newer","epoch":7,"status":"idle","lane":"w2/0/x","nonce":"n","news":[1,2]}'
        partition = stage.world.partition("newer")
        stage.define(python_task("newer", schedule=Every(1)), python_task("older", schedule=Every(1)))
        produce(kafka.bootstrap, stage.world.topics.state, b"newer", newer, partition=partition)
        stage.start_all("old")
        stage.trigger("newer")
        stage.wait("the trigger among the dead letters", stage.dead_letters)
        stage.define(python_task("newer", schedule=Every(2)))
        stage.cli("cancel", "newer")
        stage.wait("the cancel among the dead letters", lambda: len(stage.dead_letters()) >= 2)
        stage.wait_line("older", count=3)
        assert not stage.began("newer")
        assert not stage.world.history("newer")
        records = stage.world.records(stage.world.topics.state, partition, all_=True)
        assert [record.value for record in records if (record.key or b"").split(b"\x1f")[0] == b"newer"] == [newer]
        assert [original(letter, "key") for letter in stage.dead_letters()] == [b"newer", b"newer"]
        assert "unreadable" in stage.cli("tasks").stdout


def test_i15_manual_runs_take_no_slot_away(stage: Stage) -> None:
    """Asked for at the very time of the next slot, and at that of one that is over."""
    stage.define(python_task("two", schedule=Every(3)))
    first = stage.wait_line("two", "end")
    assert first.slot_ms is not None
    next_ms = (int(time.time() * 1000) // 3000 + 1) * 3000
    stage.trigger("two", run_at=format_ms(next_ms), id="next")
    stage.trigger("two", run_at=format_ms(first.slot_ms), id="past")
    stage.cli("trigger", "two", "--run-at", format_ms(next_ms + 3000), "--id", "by hand")
    stage.wait("two slots after that", lambda: any((line.slot_ms or 0) > next_ms + 6000 for line in stage.began("two")))
    stage.wait("the manual runs", lambda: len([line for line in stage.began("two") if line.slot_ms is None]) == 3)
    stage.cli("delete", "two")
    slots = [line.slot_ms for line in stage.began("two") if line.slot_ms is not None]
    assert slots == list(range(slots[0], slots[-1] + 1, 3000))

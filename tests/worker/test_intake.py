"""What a lane makes of one record, without a lane and without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.core.commands import Send
from fencepost.core.links import Origin, Shard
from fencepost.core.ownership import Holding
from fencepost.core.place import Place
from fencepost.core.signals import Ask, ShardDone
from fencepost.core.task import Definition, PythonHandler, Task, TaskState, Work
from fencepost.kafka.topics import Topics
from fencepost.wire.control import encode_signal
from fencepost.wire.trigger import encode_again
from fencepost.worker.batch import Part
from fencepost.worker.intake import Intake, Taken
from fencepost.worker.partition import Partition

T0 = 1_700_000_000_000
TOPICS = Topics("fp")


class Message:
    """A trigger as the reader hands it out."""

    def __init__(self, key: bytes, value: bytes, offset: int = 7) -> None:
        self._fields = (key, value, offset)

    def key(self) -> bytes:
        return self._fields[0]

    def value(self) -> bytes:
        return self._fields[1]

    def offset(self) -> int:
        return self._fields[2]

    def topic(self) -> str:
        return TOPICS.triggers

    def partition(self) -> int:
        return 0

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, T0


@pytest.fixture
def partition() -> Partition:
    """Held; and nothing is defined, however long one reads."""
    made = Partition(Holding(0, "lane"))
    for of_shards in (False, True):
        made.look_ups[TOPICS.triggers, of_shards] = SimpleNamespace(done=lambda *_: True)  # type: ignore[assignment]
    return made


def intake() -> Intake:
    quiet = SimpleNamespace(warning=lambda *_, **__: None, dead_letter=lambda *_: None)
    context: Any = SimpleNamespace(
        topics=TOPICS,
        partition_count=1,
        declared=SimpleNamespace(find=lambda _: None),
        meters=quiet,
        log=quiet,
        lane="lane",
        clock=SimpleNamespace(now_ms=lambda: T0),
    )
    return Intake(context, None, None)  # type: ignore[arg-type] # both are only asked by the look-up


def test_a_trigger_of_an_id_that_is_not_defined_becomes_a_dead_letter(partition: Partition) -> None:
    partition.triggers.append(Message(b"t", b"{}"))  # type: ignore[arg-type]
    part = Part(0, "nonce", T0)
    assert intake().trigger(partition, part, None, T0) is Taken.ASIDE
    assert len(part.letters) == 1
    assert partition.tasks == {}


def test_a_shard_that_is_gone_before_its_trigger_is_read_tells_the_task_that_waits_for_it(partition: Partition) -> None:
    """The task has fewer shards since. As a dead letter its request would never be gathered."""
    shard = Shard("t", 3, 9, 10)
    value = encode_again(Work(1, origin=Origin("run:t/one", shard=shard)))
    partition.triggers.append(Message(b"t/shard/9", value))  # type: ignore[arg-type]
    part = Part(0, "nonce", T0)
    assert intake().trigger(partition, part, None, T0) is Taken.TAKEN
    assert part.letters == []
    (told,) = part.sends
    assert told == ("t/shard/9", Send("t", ShardDone("run:t/one", 3, 9, "skipped")))
    assert [(task, event.kind, event.fields["cause"]) for task, event in part.history] == [
        ("t/shard/9", "skipped", "not defined")
    ]
    assert partition.tasks["t/shard/9"].state.trigger_offset == 7, "it is taken once"


class Control(Message):
    def topic(self) -> str:
        return TOPICS.control


def test_what_is_asked_under_a_limit_s_key_stays_where_limits_are_granted_whatever_task_has_its_id(
    partition: Partition,
) -> None:
    """Handed on with the task of that ID, claims were granted in two places, and never given back in the first."""
    state = TaskState("limit/db", place=Place(1, "gpu"))
    partition.tasks["limit/db"] = Task(state, Definition("limit/db", PythonHandler("f"), pool="gpu"))
    value = encode_signal("report", Ask(5, max_runs=1), "lane", "nonce")
    partition.control.append(Control(b"limit/db", value))  # type: ignore[arg-type]
    part = Part(0, "nonce", T0)
    intake().control(partition, part, T0)
    assert part.extra == []
    group = partition.tasks["limit/db"].group
    assert group is not None
    assert [(claim.task, claim.granted) for claim in group.claims] == [("report", True)]

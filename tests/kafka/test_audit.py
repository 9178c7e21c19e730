"""Looking back over topics whose records are written by hand: every kind of breach is found, and named by its place."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from fencepost.audit.past import OutOfReach, owners_at, task_at
from fencepost.client import Client
from fencepost.core.commands import History
from fencepost.core.ownership import FenceRecord
from fencepost.core.schedule import Every
from fencepost.core.slots import fingerprint_of
from fencepost.core.task import Definition, PythonHandler, Run, Status, TaskState, Work
from fencepost.core.times import format_ms
from fencepost.core.verify import Kind, Place
from fencepost.kafka.namespace import KEY
from fencepost.wire.definition import encode_definition
from fencepost.wire.history import encode_history
from fencepost.wire.owners import encode_fence
from fencepost.wire.state import encode_state
from fencepost.worker.restore import FENCE_KEY
from tests.kafka.lane.harness import World, discard, make_world, wait_until

if TYPE_CHECKING:
    from fencepost.broker import Cluster

MINUTE_MS = 60_000
A, B = ("w1/0", "n1"), ("w2/0", "n2")


def slot(number: int) -> str:
    return format_ms(number * MINUTE_MS)


class Pen:
    """Writes what lanes would write, into a namespace of one partition. Returns offsets."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = Client(world.settings)
        self._producer = Producer({"bootstrap.servers": world.bootstrap, "linger.ms": 0, "log_level": 0})

    def write(self, topic: str, key: bytes, value: bytes | None) -> tuple[int, int]:
        """(offset, append time)"""
        placed: list[Any] = []
        self._producer.produce(topic, value, key, 0, on_delivery=lambda _error, message: placed.append(message))
        assert self._producer.flush(20) == 0
        return placed[0].offset(), placed[0].timestamp()[1]

    def fence(self, stamp: tuple[str, str], released: bool = False) -> int:
        """Of a worker that has the name of its lane. Append time."""
        record = FenceRecord(0, *stamp, ring=(), released=released, worker=stamp[0][:2])
        if not released:
            self.write(self.world.topics.state, FENCE_KEY, encode_fence(record))
        return self.write(self.world.topics.owners, b"0", encode_fence(record))[1]

    def event(self, kind: str, epoch: int | None = None, stamp: tuple[str, str] = A, **fields: Any) -> tuple[int, int]:
        value = encode_history("t", History(kind, epoch, 1_000, fields), *stamp)
        return self.write(self.world.topics.runs, b"t", value)

    def started(self, epoch: int, stamp: tuple[str, str] = A, **fields: Any) -> int:
        return self.event("started", epoch, stamp, attempt=1, lease_ttl_s=3.0, **fields)[0]

    def ended(self, epoch: int, kind: str = "succeeded", stamp: tuple[str, str] = A, **fields: Any) -> int:
        return self.event(kind, epoch, stamp, attempt=1, duration_s=1.0, **fields)[0]

    def run(self, epoch: int, **fields: Any) -> None:
        self.started(epoch, **fields)
        self.ended(epoch, **fields)

    def state(self, epoch: int, status: Status = Status.IDLE, stamp: tuple[str, str] = A, **fields: Any) -> int:
        run = Run(epoch, 1, *stamp, 3.0, 1_000) if status is Status.RUNNING else None
        work = Work(seq=1, attempt=1) if status is Status.RUNNING else None
        state = TaskState("t", epoch, status, run, work, **fields)
        return self.write(self.world.topics.state, b"t", encode_state(state, *stamp))[0]


@pytest.fixture
def pen(kafka: Cluster, namespace: str) -> Iterator[Pen]:
    world = make_world(kafka.bootstrap, namespace, partitions=1)
    pen = Pen(world)
    try:
        yield pen
    finally:
        pen.client.close()
        discard(world)


def command_of(pen: Pen, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "fencepost.cli.main", *arguments]
    return [*command, "--bootstrap", pen.world.bootstrap, "--namespace", pen.world.settings.namespace]


def cli(pen: Pen, *arguments: str, code: int) -> Any:
    """The document of the command as a process; nothing else may be on stdout."""
    command = command_of(pen, *arguments, "--json")
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout) if done.stdout else done.stderr


# Each writes one breach behind a fence of A and says what has to be found: kind, epoch and the places.


def overlap(pen: Pen) -> tuple[Kind, int | None, list[tuple[str, int]]]:
    first, second = pen.started(1), pen.started(2)
    pen.ended(1)
    pen.ended(2)
    pen.state(2)
    return Kind.OVERLAP, 2, [("runs", first), ("runs", second)]


def twice(pen: Pen) -> tuple[Kind, int | None, list[tuple[str, int]]]:
    first = pen.started(1)
    pen.ended(1)
    again = pen.started(1)
    pen.ended(1)
    pen.state(1)
    return Kind.TWICE, 1, [("runs", first), ("runs", again)]


def backwards(pen: Pen) -> tuple[Kind, int | None, list[tuple[str, int]]]:
    newest = pen.started(5)
    pen.ended(5)
    older = pen.started(4)
    pen.ended(4)
    pen.state(5)
    return Kind.BACKWARDS, 4, [("runs", newest), ("runs", older)]


def no_owner(pen: Pen) -> tuple[Kind, int | None, list[tuple[str, int]]]:
    started = pen.started(1)
    stated = pen.state(1, Status.RUNNING)
    pen.fence(A, released=True)
    return Kind.NO_OWNER, 1, [("runs", started), ("state", stated), ("owners", 2)]


def no_start(pen: Pen) -> tuple[Kind, int | None, list[tuple[str, int]]]:
    ended = pen.ended(1)
    pen.state(1)
    return Kind.NO_START, 1, [("runs", ended)]


def state_beyond_history(pen: Pen) -> tuple[Kind, int | None, list[tuple[str, int]]]:
    started = pen.started(1)
    pen.ended(1)
    return Kind.STATE, 2, [("runs", started), ("state", pen.state(2))]


def old_owner_writes_on(pen: Pen) -> tuple[Kind, int | None, list[tuple[str, int]]]:
    pen.started(1)
    pen.fence(B)
    pen.ended(1, "interrupted", B, cause="lost", dropped="on_interruption = skip")
    newer = pen.started(2, B)
    late = pen.ended(2, stamp=A)
    pen.state(2, stamp=B)
    return Kind.NO_FENCE, 2, [("runs", late), ("runs", newer), ("owners", 2)]


def stranger_writes(pen: Pen) -> tuple[Kind, int | None, list[tuple[str, int]]]:
    pen.run(1)
    stranger = pen.event("paused", None, ("w9/0", "n9"))[0]
    pen.state(1)
    return Kind.NO_FENCE, None, [("runs", stranger), ("runs", stranger - 1)]


def old_owner_overwrites_state(pen: Pen) -> tuple[Kind, int | None, list[tuple[str, int]]]:
    pen.run(1)
    pen.fence(B)
    return Kind.NO_FENCE, 1, [("state", pen.state(1, stamp=A)), ("state", 1)]


def dropped(pen: Pen) -> tuple[Kind, int | None, list[tuple[str, int]]]:
    pen.started(1)
    ended = pen.ended(1, "interrupted", cause="lost")
    pen.state(1)
    return Kind.DROPPED, 1, [("runs", ended)]


def scheduled(pen: Pen) -> None:
    schedule = Every(60.0)
    definition = Definition("t", PythonHandler("f"), schedule)
    pen.write(pen.world.topics.tasks, b"t", encode_definition(definition))
    pen.event("defined", changed=False, schedule=schedule.to_json(), slots_after=slot(9))


def slot_lost(pen: Pen) -> tuple[Kind, int | None, list[tuple[str, int]]]:
    scheduled(pen)
    pen.run(1, slot=slot(10))
    before = pen.event("missed", cause="nobody ran", count=3, first=slot(11), last=slot(13))[0]
    after = pen.event("skipped", cause="overlap", slot=slot(15))[0]
    pen.state(1, schedule_fingerprint=fingerprint_of(Every(60.0)))
    return Kind.SLOT_LOST, None, [("runs", before), ("runs", after)]


def slot_twice(pen: Pen) -> tuple[Kind, int | None, list[tuple[str, int]]]:
    scheduled(pen)
    pen.started(1, slot=slot(10))
    over = pen.ended(1, slot=slot(10))
    again = pen.started(2, slot=slot(10))
    pen.ended(2, slot=slot(10))
    pen.state(2)
    return Kind.SLOT_TWICE, 2, [("runs", over), ("runs", again)]


def elsewhere(pen: Pen) -> tuple[Kind, int | None, list[tuple[str, int]]]:
    started = pen.started(1, worker="w2")
    pen.ended(1)
    pen.state(1)
    return Kind.ELSEWHERE, 1, [("runs", started)]


BREACHES = (
    overlap, twice, backwards, no_owner, no_start, state_beyond_history, old_owner_writes_on, stranger_writes,
    old_owner_overwrites_state, dropped, slot_lost, slot_twice, elsewhere,
)  # fmt: skip


def test_every_kind_of_breach_is_planted_below() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert {kind for kind in Kind if f"return Kind.{kind.name}," not in source} == {Kind.NOTE}


@pytest.mark.parametrize("plant", BREACHES, ids=lambda plant: plant.__name__)
def test_a_breach_is_found_and_named_by_topic_partition_and_offset(pen: Pen, plant: Any) -> None:
    pen.fence(A)
    kind, epoch, places = plant(pen)
    verdict = pen.client.verify()
    assert not verdict.holds
    (found,) = verdict.violations
    assert (found.kind, found.task, found.epoch) == (kind, "t", epoch)
    name = pen.world.settings.namespace
    assert found.places == tuple(Place(f"{name}.{topic}", 0, at) for topic, at in places)


def test_the_command_names_the_places_and_ends_with_1(pen: Pen) -> None:
    pen.fence(A)
    overlap(pen)
    name = pen.world.settings.namespace
    document = cli(pen, "verify", code=1)
    (found,) = document["violations"]
    assert (document["holds"], found["kind"], found["epoch"]) == (False, "overlap", 2)
    assert found["places"] == [{"topic": f"{name}.runs", "partition": 0, "offset": at} for at in (0, 1)]
    told = subprocess.run(command_of(pen, "verify"), capture_output=True, text=True, timeout=90, check=False)
    assert told.returncode == 1
    where = f"({name}.runs/0/0, {name}.runs/0/1)"
    assert told.stdout.splitlines()[0] == (f"BROKEN overlap: t: epoch 2 started while epoch 1 had not ended {where}")


def test_what_lanes_write_in_good_order_holds(pen: Pen) -> None:
    pen.fence(A)
    scheduled(pen)
    pen.run(1, slot=slot(10))
    pen.started(2, slot=slot(11))
    pen.fence(A, released=True)
    pen.fence(B)
    pen.ended(2, "interrupted", B, slot=slot(11), cause="lost", dropped="on_interruption = skip")
    pen.state(2, stamp=B, schedule_fingerprint=fingerprint_of(Every(60.0)))
    verdict = pen.client.verify()
    assert (verdict.violations, verdict.notes, verdict.unreadable, verdict.complete) == ([], [], [], True)
    assert (verdict.counts.tasks, verdict.counts.runs, verdict.counts.events) == (1, 2, 5)


def test_what_is_asked_of_one_task_or_of_late_is_of_that_only(pen: Pen) -> None:
    pen.fence(A)
    overlap(pen)
    before_ms = pen.event("paused")[1]
    wait_until("the next millisecond", lambda: pen.event("paused")[1] > before_ms)
    assert not pen.client.verify().holds
    assert pen.client.verify("other").holds
    assert not pen.client.verify("t", since=timedelta(hours=1)).holds
    recent = pen.client.verify(since=datetime.fromtimestamp((before_ms + 1) / 1000, UTC))
    assert (recent.holds, recent.complete, recent.counts.events) == (True, False, 1)
    assert "lies in the future" in cli(pen, "verify", "--since", "2999-01-01T00:00:00Z", code=2)
    assert "--since" in cli(pen, "verify", "--since", "yesterday", code=2)
    assert "task" in cli(pen, "verify", "--task", "\n", code=2)


def test_what_cannot_be_read_is_told_and_breaks_nothing(pen: Pen) -> None:
    pen.fence(A)
    pen.write(pen.world.topics.runs, b"t", b"{")
    at, _ = pen.write(pen.world.topics.state, b"t", b'{"v":9}')
    pen.write(pen.world.topics.tasks, b"u", b"[]")
    verdict = pen.client.verify()
    assert verdict.holds
    name = pen.world.settings.namespace
    assert [line.split(": ")[0] for line in verdict.unreadable] == [f"{name}.runs/0/0", "u", "t"]
    assert f"{name}.state/0/{at}" in verdict.unreadable[2]


@pytest.mark.parametrize("arguments", [(), ("--json",)], ids=["people", "json"])
def test_a_progress_bar_is_for_a_terminal_only(pen: Pen, arguments: tuple[str, ...]) -> None:
    pen.fence(A)
    pen.run(1)
    pen.state(1)
    command = command_of(pen, "verify", *arguments)
    piped = subprocess.run(command, capture_output=True, timeout=90, check=True)
    assert b"reading the topics" not in piped.stdout + piped.stderr
    shown = at_a_terminal(command)
    assert (b"reading the topics" in shown) == (arguments == ())
    assert (b'"holds":true' if arguments else b"the promise holds") in shown


def at_a_terminal(command: list[str]) -> bytes:
    """What the command shows to somebody at a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the other end is closed: EIO
        while select.select([ours], [], [], 90)[0] and (more := os.read(ours, 65536)):
            shown += more
    os.close(ours)
    assert process.wait(90) == 0, shown
    return shown


# -- who owned what, and what state a task was in ---------------------------------------------------------------------


def test_owners_at_a_time_are_those_of_then(pen: Pen) -> None:
    first_ms = pen.fence(A)
    pen.event("paused")
    later_ms = pen.event("resumed")[1]
    released_ms = pen.fence(A, released=True)
    second_ms = pen.fence(B)

    def at(at_ms: int) -> tuple[str, str | None, str | None]:
        (held,) = owners_at(pen.world.settings, at_ms)
        return held.state, held.lane, held.worker

    if first_ms > pen.world.info.created_ms:
        assert at(first_ms - 1) == ("never held", None, None)
    assert at(second_ms) == ("held", "w2/0", "w2")
    if released_ms < second_ms:
        assert at(released_ms) == ("released", "w1/0", "w1")
    if later_ms < released_ms:
        assert at(later_ms) == ("held", "w1/0", "w1")
    document = cli(pen, "owners", "--at", format_ms(second_ms), code=0)
    assert [(owner["state"], owner["nonce"]) for owner in document["owners"]] == [("held", "n2")]
    assert "was made at" in cli(pen, "owners", "--at", "2001-01-01T00:00:00Z", code=1)
    assert "lies in the future" in cli(pen, "owners", "--at", "2999-01-01T00:00:00Z", code=2)


def test_where_fences_were_compacted_away_history_tells_or_it_is_said_how_far_the_logs_reach(pen: Pen) -> None:
    pen.fence(A)
    first_ms = pen.event("paused")[1]
    pen.event("resumed")
    pen.fence(B)
    last_ms = pen.event("paused", stamp=B)[1]
    take_the_oldest(pen, 2)
    (held,) = owners_at(pen.world.settings, first_ms)
    assert (held.lane, held.source) == ("w1/0", "history")
    assert held.state in ("held", "last seen")  # by whether the second event fell into the same millisecond
    (held,) = owners_at(pen.world.settings, last_ms)
    assert (held.state, held.lane, held.source) == ("held", "w2/0", "owners")
    document = cli(pen, "owners", "--at", format_ms(first_ms - 1), code=1)
    assert [owner["state"] for owner in document["owners"]] == ["unknown"]
    assert pen.client.verify().holds, "what was written under a fence that is gone cannot be judged"


def take_the_oldest(pen: Pen, count: int) -> None:
    """What compaction would do to the log of owners: fences that were followed by others are gone."""
    topic = pen.world.topics.owners
    (kept,) = [record.value for record in pen.world.records(topic) if record.key == KEY]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET)
    )
    for done in pen.world.admin.incremental_alter_configs([resource]).values():
        done.result(20)
    pen.write(topic, KEY, kept)
    pen.world.delete_records(topic, 0, count)


def test_a_task_at_a_time_is_what_its_history_had_told_by_then(pen: Pen) -> None:
    pen.fence(A)
    times = [
        pen.event("defined", changed=False)[1],
        pen.event("started", 1, attempt=1, lease_ttl_s=3.0, trigger="a")[1],
        pen.event("triggered", trigger="b")[1],
        pen.event("failed", 1, attempt=1, duration_s=1.0, trigger="a", retry_at=slot(1), error="no")[1],
        pen.event("paused", cause="lunch")[1],
    ]

    def at(place: int) -> Any:
        """As of that event, which may share its millisecond with later ones."""
        last = max(index for index, at_ms in enumerate(times) if at_ms == times[place])
        return (last, task_at(pen.world.settings, "t", times[place]))

    for place in range(len(times)):
        last, then = at(place)
        past = then.past
        assert past.status == ("idle", "running", "running", "backoff", "backoff")[last]
        assert past.epoch == (None, 1, 1, 1, 1)[last]
        assert len(past.waiting) == (0, 0, 1, 1, 1)[last]
        assert past.paused == (None, None, None, None, True)[last]
        assert (then.owner.lane, then.complete) == ("w1/0", True)
    document = cli(pen, "describe", "t", "--at", format_ms(times[-1]), code=0)
    assert (document["status"], document["retry_at"], document["pause_reason"]) == ("backoff", slot(1), "lunch")
    assert document["last"] == {"epoch": 1, "outcome": "failed", "ended": format_ms(1_000)}
    assert document["owner"]["lane"] == "w1/0"
    assert cli(pen, "describe", "other", "--at", "0s", code=0)["status"] is None


def test_a_time_that_history_does_not_reach_is_refused_with_how_far_it_does(pen: Pen) -> None:
    pen.fence(A)
    at_ms = pen.event("paused")[1]
    pen.event("resumed")
    pen.world.delete_records(pen.world.topics.runs, 0, 1)
    if pen.event("paused")[1] > at_ms:
        with pytest.raises(OutOfReach, match="no longer reaches back to"):
            task_at(pen.world.settings, "other", at_ms)
        assert "it begins at" in cli(pen, "describe", "other", "--at", format_ms(at_ms), code=1)
    assert not task_at(pen.world.settings, "t", pen.event("resumed")[1]).complete

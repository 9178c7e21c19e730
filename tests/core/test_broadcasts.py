"""A request that becomes a run on every worker that is there, and ends once they all have."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.codec import BadRecord
from fencepost.core.attendance import Attendance, attendance_of
from fencepost.core.broadcasts import MAX_TRIES, MOVED, NO_HANDLER
from fencepost.core.commands import Define, GiveUp, Launch
from fencepost.core.events import Cancelled, Deleted, Ended, Interrupted, Paused, Resumed, Started, Triggered
from fencepost.core.fans import on_id, place_on
from fencepost.core.ids import MAX_ID_BYTES, partition_of
from fencepost.core.illegal import IllegalEvent
from fencepost.core.limits import Limit
from fencepost.core.links import MAX_SHARDS
from fencepost.core.machine import startable
from fencepost.core.ownership import FenceRecord, Picture
from fencepost.core.schedule import Every
from fencepost.core.task import Cause, OnInterruption, Outcome, Overlap, Retry, Status
from fencepost.core.times import format_ms
from fencepost.wire.definition import definition_from_json
from fencepost.wire.trigger import encode_again, read_trigger
from tests.core.net import Net
from tests.core.play import MINUTE, T0

SUCCEEDED, FAILED = Outcome.SUCCEEDED, Outcome.FAILED


class Crew:
    """Workers with partitions, above a net. `owners`: who holds each; `runs`: what began, (worker, task)."""

    def __init__(self, *owners: str, **tasks: Any) -> None:
        self.owners = list(owners)
        self.runs: list[tuple[str, str]] = []
        self.on: dict[str, tuple[str, int]] = {}  # task -> worker and epoch of the run that is on
        self.able = set(owners)
        fields = {"t": {"broadcast": True}, **tasks}
        self.net = Net(**fields)

    def holder(self, task: str) -> str:
        return self.owners[partition_of(task.encode(), len(self.owners))]

    def there(self) -> Attendance:
        homes: dict[str, int] = {}
        for partition, worker in enumerate(self.owners):
            homes.setdefault(worker, partition)
        return Attendance(len(self.owners), tuple(sorted(homes.items())))

    def start(self, task: str) -> bool:
        """Let its holder start it. Whether a run began."""
        worker = self.holder(task)
        definition = self.net.tasks[task].definition
        assert definition is not None
        there = self.there() if definition.broadcast else None
        commands = self.net.step(task, Started(f"{worker}/0", "nonce", 15.0, worker, worker in self.able, there))
        launched = [command for command in commands if isinstance(command, Launch)]
        for launch in launched:
            self.on[task] = (worker, launch.run.epoch)
            self.runs.append((worker, task))
        return bool(launched)

    def end(self, task: str, outcome: Outcome = SUCCEEDED, result: Any = None) -> None:
        _, epoch = self.on.pop(task)
        self.net.step(task, Ended(epoch, outcome, result))

    def ready(self) -> list[str]:
        return [name for name in self.net.tasks if self.net.startable(name)]

    def settle(self, result: Any = None) -> None:
        """Everything that can happen happens; every run succeeds."""
        for _ in range(10_000):
            self.net.deliver_all()
            for task in list(self.on):
                self.end(task, result=result if result is not None else self.holder(task))
            ready = self.ready()
            if not ready and not self.net.waiting and not self.on:
                return
            for task in ready:
                self.start(task)
        raise AssertionError("it never settles")

    def ask(self, id: str = "one", **more: Any) -> list[str]:
        """A request, fanned out; the IDs by which the workers are asked."""
        self.net.trigger("t", id, **more)
        self.start("t")
        self.net.deliver_all()
        return self.asked()

    def asked(self) -> list[str]:
        return [item["task"] for item in self.net.told("t", "fanned_out")[-1]["workers"]]

    def gathered(self) -> list[dict[str, Any]]:
        return self.net.told("t", "gathered")

    def outcomes(self) -> dict[str, str]:
        return {item["worker"]: item["outcome"] for item in self.gathered()[-1]["result"]}


# -- who is there --------------------------------------------------------------------------------------------------


def fence(partition: int, worker: str, released: bool = False) -> Picture:
    return (
        Picture()
        .fold(FenceRecord(partition, f"{worker}/0/x", "n", (), worker=worker))
        .fold(FenceRecord(partition, f"{worker}/0/x", "n", (), worker=worker, released=released))
    )


def test_who_is_there_is_who_holds_a_partition_by_the_fences_each_with_its_lowest() -> None:
    pictures = {3: fence(3, "b"), 0: fence(0, "c", released=True), 1: fence(1, "b"), 2: fence(2, "a"), 4: Picture()}
    there = attendance_of(pictures, 5)
    assert there == Attendance(5, (("a", 2), ("b", 1)))
    assert (there.home_of("a"), there.home_of("c")) == (2, None)


@given(st.integers(1, 64), st.text("ab/", min_size=1, max_size=8), st.data())
def test_an_id_on_any_partition_is_found_and_always_the_same(partitions: int, task: str, data: st.DataObject) -> None:
    partition = data.draw(st.integers(0, partitions - 1))
    at = place_on(task, partition, partitions)
    assert at == place_on(task, partition, partitions)
    assert at.startswith(f"{partition}.")
    assert partition_of(on_id(task, at).encode(), partitions) == partition


# -- one request ---------------------------------------------------------------------------------------------------


def test_each_worker_runs_a_request_once_and_what_runs_after_it_gets_all_results() -> None:
    crew = Crew("a", "b", "a", "c", end=["t"])
    ids = crew.ask(payload={"n": 1})
    assert [crew.holder(task) for task in ids] == ["a", "b", "c"]
    assert [partition_of(task.encode(), 4) for task in ids] == [0, 1, 3], "the lowest of each"
    for number, task in enumerate(ids):
        launch = next(
            c for c in crew.net.step(task, Started("l", "n", 15.0, crew.holder(task))) if isinstance(c, Launch)
        )
        assert launch.work.payload == {"n": 1}
        assert launch.work.origin is not None
        shard = launch.work.origin.shard
        assert shard is not None
        assert (shard.shard, shard.shards, shard.worker) == (number, 3, crew.holder(task))
        crew.net.step(task, Ended(launch.run.epoch, SUCCEEDED, f"of {shard.worker}"))
    crew.net.deliver_all()
    (end,) = crew.gathered()
    assert (end["outcome"], end["trigger"], end["shards"]) == ("succeeded", "one", 3)
    assert end["result"] == [
        {"worker": worker, "task": task, "outcome": "succeeded", "result": f"of {worker}"}
        for worker, task in zip("abc", ids, strict=True)
    ]
    upstream = crew.net.run("end").work.origin.upstream  # type: ignore[union-attr]
    assert upstream == {"t": {"outcome": "succeeded", "result": end["result"]}}
    assert not crew.net.records
    assert {item["worker"] for task in ids for item in crew.net.told(task, "started")} == {"a", "b", "c"}


def test_a_failed_worker_fails_the_request_which_says_which_and_a_replay_mends_it() -> None:
    crew = Crew("a", "b", end=["t"])
    one, two = crew.ask()
    crew.start(one)
    crew.start(two)
    crew.end(one)
    crew.end(two, FAILED)
    crew.net.deliver_all()
    (end,) = crew.gathered()
    assert (end["outcome"], end["failed_shards"], crew.outcomes()) == ("failed", [1], {"a": "succeeded", "b": "failed"})
    letter = next(command.work for _, command in crew.net.log if isinstance(command, GiveUp))
    again = read_trigger(two.encode(), encode_again(letter), None, crew.net.offset(two), 0)
    crew.net.step(two, Triggered(again))
    crew.settle()
    assert [item["outcome"] for item in crew.gathered()] == ["failed", "succeeded"]
    assert crew.outcomes() == {"a": "succeeded", "b": "succeeded"}


def test_retries_are_made_by_the_same_worker() -> None:
    crew = Crew("a", "b", t={"broadcast": True, "retry": Retry(attempts=2, delay_s=0.0)})
    one, _ = crew.ask()
    crew.start(one)
    crew.end(one, FAILED)
    crew.settle()
    assert crew.outcomes() == {"a": "succeeded", "b": "succeeded"}
    assert Counter(worker for worker, _ in crew.runs) == {"a": 2, "b": 1}


# -- partitions move -----------------------------------------------------------------------------------------------


def test_a_worker_whose_partition_moved_before_it_ran_is_asked_where_it_is_now() -> None:
    crew = Crew("a", "b", "a")
    one, _ = crew.ask()
    crew.owners[0] = "b"
    assert not crew.start(one), "it is not b that was asked there"
    assert crew.net.told(one, "skipped")[0]["cause"] == MOVED
    crew.net.deliver_all()
    crew.net.restore("t")  # the word on it is kept
    assert crew.ready().count("t") == 1
    crew.settle()
    assert crew.outcomes() == {"a": "succeeded", "b": "succeeded"}
    assert sorted(worker for worker, _ in crew.runs) == ["a", "b"]
    (again,) = crew.net.told("t", "fanned_out")[1:]
    assert (again["cause"], [item["worker"] for item in again["workers"]]) == (MOVED, ["a"])
    assert partition_of(again["workers"][0]["task"].encode(), 3) == 2


def test_a_worker_that_holds_nothing_any_more_has_left_and_does_not_fail_the_request() -> None:
    crew = Crew("a", "b", "a", end=["t"])
    crew.ask()
    crew.owners = ["a", "a", "a"]
    crew.settle()
    assert crew.gathered()[-1]["outcome"] == "succeeded"
    assert crew.outcomes() == {"a": "succeeded", "b": "left"}
    assert [worker for worker, task in crew.runs if task != "end"] == ["a"]
    assert "worker b holds no partition any more" in [item["cause"] for item in crew.net.told("t", "skipped")]


def test_where_everybody_has_left_nobody_ran_it_and_that_is_a_failure() -> None:
    crew = Crew("a", "b")
    crew.ask()
    crew.owners = ["c", "c"]
    crew.able = {"c"}
    crew.settle()
    (end,) = crew.gathered()
    assert (end["outcome"], end["error"]) == ("failed", "every worker that was asked has left")
    assert not crew.runs


@pytest.mark.parametrize("stays", [True, False])
def test_an_interrupted_run_goes_on_with_its_worker_and_with_no_other(stays: bool) -> None:
    crew = Crew("a", "b", "a", t={"broadcast": True, "retry": Retry(attempts=3, delay_s=0.0)})
    one, _ = crew.ask()
    crew.start(one)
    crew.end(one, FAILED)
    crew.start(one)
    crew.net.step(one, Interrupted(crew.on.pop(one)[1], Cause.LOST))
    crew.owners = ["b", "b", "a" if stays else "b"]
    crew.settle()
    kinds = [item["kind"] for item in crew.net.told(one)]
    assert kinds == ["defined", "started", "failed", "started", "interrupted", "interrupted"]
    assert crew.net.told(one)[-1]["cause"] == MOVED
    assert "retry_at" not in crew.net.told(one)[-1]
    assert crew.outcomes() == {"a": "succeeded" if stays else "left", "b": "succeeded"}
    assert Counter(worker for worker, _ in crew.runs) == {"a": 3 if stays else 2, "b": 1}
    if stays:
        last = crew.net.told(crew.runs[-1][1] if crew.runs[-1][0] == "a" else crew.runs[-2][1], "started")[-1]
        assert last["attempt"] == 2, "the attempts it had go along"


def test_interrupted_and_not_to_be_tried_again_it_ends_there() -> None:
    crew = Crew("a", "b", t={"broadcast": True, "on_interruption": OnInterruption.SKIP})
    one, _ = crew.ask()
    crew.start(one)
    crew.net.step(one, Interrupted(crew.on.pop(one)[1], Cause.STOPPED))
    crew.settle()
    assert crew.outcomes() == {"a": "interrupted", "b": "succeeded"}


def test_a_worker_that_never_holds_still_is_given_up_after_some_tries() -> None:
    crew = Crew("a", "b", "c")
    crew.ask()
    homes = ["a", "b"]
    for _ in range(2 * MAX_TRIES):
        homes = homes[::-1]
        crew.owners = [*homes, "c"]
        crew.net.deliver_all()
        for task in crew.ready():
            if task != "t" and crew.holder(task) != "c":
                crew.start(task)
        crew.net.deliver_all()
        if crew.net.startable("t"):
            crew.start("t")
    crew.settle()
    assert crew.outcomes() == {"a": "skipped", "b": "skipped", "c": "succeeded"}
    assert f"moved {MAX_TRIES} times" in crew.net.told("t", "skipped")[-1]["cause"]


def test_a_word_on_a_move_that_is_not_of_the_shard_that_asks_changes_nothing() -> None:
    crew = Crew("a", "b", "a")
    one, _ = crew.ask()
    crew.owners = ["b", "b", "a"]
    crew.start(one)
    moved = next(value for (sender, _), values in crew.net.waiting.items() for value in values if sender == one)
    crew.net.deliver_all()
    crew.start("t")
    crew.net.waiting[one, "t"] = deque([moved])
    crew.settle()
    assert "its worker is asked on another partition" in [item["cause"] for item in crew.net.told("t", "skipped")]
    assert len(crew.gathered()) == 1


def test_a_worker_without_its_handler_is_left_out_and_fails_the_request() -> None:
    crew = Crew("a", "b")
    crew.able = {"a"}
    _, two = crew.ask()
    crew.settle()
    assert crew.net.told(two, "skipped")[0]["cause"] == NO_HANDLER
    assert (crew.gathered()[-1]["outcome"], crew.outcomes()) == ("failed", {"a": "succeeded", "b": "skipped"})


# -- several requests ----------------------------------------------------------------------------------------------


def test_the_next_request_begins_when_the_one_before_is_over() -> None:
    crew = Crew("a", "b")
    one, two = crew.ask("one")
    crew.net.trigger("t", "two")
    assert not crew.net.startable("t")
    assert crew.net.told("t", "triggered")[-1]["trigger"] == "two"
    for task in (one, two):
        crew.start(task)
        crew.end(task)
        assert not crew.net.startable("t")
        crew.net.deliver_all()
    assert crew.net.startable("t")
    crew.settle()
    assert [item["trigger"] for item in crew.gathered()] == ["one", "two"]


def test_overlap_counts_a_broadcast_that_is_out() -> None:
    crew = Crew("a", t={"broadcast": True, "overlap": Overlap.SKIP})
    crew.ask("one")
    crew.net.trigger("t", "two")
    crew.settle()
    assert [(item["trigger"], item["cause"]) for item in crew.net.told("t", "skipped")] == [("two", "overlap")]
    crew.net.trigger("t", "three")
    crew.settle()
    assert [item["trigger"] for item in crew.gathered()] == ["one", "three"]


def test_every_slot_of_a_schedule_is_a_broadcast() -> None:
    crew = Crew("a", "b", t={"broadcast": True, "schedule": Every(60, T0)})
    for number in (1, 2):
        crew.net.now_ms = T0 + number * MINUTE
        crew.net.wake("t")
        crew.settle()
    slots = [f"slot:{format_ms(T0 + number * MINUTE)}" for number in (1, 2)]
    assert [item["cycle"] for item in crew.gathered()] == slots
    assert Counter(worker for worker, _ in crew.runs) == {"a": 2, "b": 2}


def test_a_pause_holds_back_what_has_not_started_and_nothing_of_it_is_lost() -> None:
    crew = Crew("a", "b", "a")
    one, _ = crew.ask("one")
    crew.owners[0] = "b"
    crew.start(one)
    crew.net.step("t", Paused(crew.net.offset("t control")))
    crew.settle()
    assert not crew.runs
    crew.net.step("t", Resumed(crew.net.offset("t control")))
    crew.settle()
    assert crew.outcomes() == {"a": "succeeded", "b": "succeeded"}


def test_cancelled_it_ends_on_every_worker_and_the_next_may_begin() -> None:
    crew = Crew("a", "b", "c", "a")
    one, two, three = crew.ask("one")
    crew.start(one)
    crew.owners = ["a", "d", "c", "a"]
    assert not crew.start(two)
    crew.net.step("t", Cancelled(crew.net.offset("t control"), "enough"))
    crew.net.deliver_all()
    (end,) = crew.gathered()
    assert (end["outcome"], end["cause"]) == ("cancelled", "enough")
    assert crew.outcomes() == {"a": "cancelled", "b": "cancelled", "c": "cancelled"}
    run = crew.net.tasks[one].state.run
    assert run is not None
    assert (run.stopping, run.stop_cause) == ("cancelled", "enough")
    assert crew.net.told(three, "skipped")[0]["cause"] == "enough"
    crew.able = {"a", "c", "d"}
    crew.ask("two")
    crew.settle()
    assert crew.outcomes() == {"a": "succeeded", "c": "succeeded", "d": "succeeded"}
    assert not crew.net.records


# -- definitions ---------------------------------------------------------------------------------------------------


def definitions(crew: Crew) -> dict[str, float]:
    return {
        name: task.definition.grace_s
        for name, task in crew.net.tasks.items()
        if "/on/" in name and task.definition is not None
    }


def test_shards_are_defined_once_follow_their_task_and_go_with_it() -> None:
    crew = Crew("a", "b")
    ids = crew.ask()
    assert definitions(crew) == dict.fromkeys(ids, 5.0)
    crew.settle()
    before = len(crew.net.log)
    crew.ask("two")
    assert not [command for _, command in crew.net.log[before:] if isinstance(command, Define)]
    crew.settle()
    crew.owners = ["c", "b"]
    crew.able = {"b", "c"}
    crew.net.restore("t")
    crew.net.define("t", broadcast=True, grace_s=9.0)
    crew.net.deliver_all()
    assert definitions(crew) == dict.fromkeys(ids, 9.0)
    crew.net.step("t", Deleted())
    crew.net.deliver_all()
    assert definitions(crew) == {}
    assert crew.net.tasks["t"].links is None or not crew.net.tasks["t"].links.on


@pytest.mark.parametrize("later", [{}, {"shards": 2}], ids=["alone", "shards"])
def test_a_task_that_broadcasts_no_more_has_no_such_shards(later: dict[str, Any]) -> None:
    crew = Crew("a", "b", end=["t"])
    crew.ask()
    crew.net.define("t", **later)
    crew.settle()
    assert definitions(crew) == {}
    assert crew.net.told("end", "skipped")[0]["cause"] == "upstream skipped"
    crew.net.trigger("t", "two")
    crew.settle()
    crew.net.define("t", broadcast=True)
    crew.net.trigger("t", "three")
    crew.settle()
    assert crew.outcomes() == {"a": "succeeded", "b": "succeeded"}
    assert not [name for name in crew.net.tasks if "/shard/" in name and crew.net.tasks[name].definition is not None]


def test_a_broadcast_takes_no_place_of_its_limit_but_its_shards_do() -> None:
    crew = Crew("a", "b", t={"broadcast": True, "limit": Limit("k", 1)})
    ids = crew.ask()
    assert not crew.net.told("t", "asked")
    assert [len(crew.net.told(task, "asked")) for task in ids] == [1, 1]
    assert [crew.net.startable(task) for task in ids] == [True, False]
    crew.settle()
    assert crew.outcomes() == {"a": "succeeded", "b": "succeeded"}


def test_too_many_workers_fail_the_request_and_say_so() -> None:
    crew = Crew(*[f"w{number}" for number in range(MAX_SHARDS + 1)])
    crew.net.trigger("t", "one")
    crew.start("t")
    assert (
        crew.gathered()[0]["error"] == f"{MAX_SHARDS + 1} workers hold partitions; a broadcast is for 1 to {MAX_SHARDS}"
    )
    assert crew.net.tasks["t"].state.status is Status.IDLE
    assert not crew.net.records


def test_without_a_word_on_who_is_there_nothing_begins() -> None:
    net = Net(t={"broadcast": True})
    net.trigger("t")
    with pytest.raises(IllegalEvent, match="who is there"):
        net.step("t", Started("lane", "nonce", 15.0, "a"))
    assert startable(net.tasks["t"], net.now_ms)


@pytest.mark.parametrize(
    ("fields", "field", "why"),
    [
        ({"shards": 2}, "shards", "exclude each other"),
        ({"map": "payload"}, "map", "exclude each other"),
        ({"pool": "gpu"}, "broadcast", "not together with pool"),
        ({"overlap": "cancel"}, "overlap", "allowed: skip, buffer_one, buffer_all"),
        ({"overlap": "batch"}, "overlap", "allowed: skip, buffer_one, buffer_all"),
        ({"broadcast": "yes"}, "broadcast", "is not allowed"),
    ],
    ids=["shards", "map", "pool", "cancel", "batch", "text"],
)
def test_what_does_not_go_together_with_it_is_refused(fields: dict[str, Any], field: str, why: str) -> None:
    with pytest.raises(BadRecord, match=why) as refused:
        definition_from_json("t", {"handler": {"kind": "python", "function": "f"}, "broadcast": True, **fields})
    assert refused.value.field == field


def test_an_id_too_long_for_the_names_of_its_shards_is_refused() -> None:
    body = {"handler": {"kind": "python", "function": "f"}, "broadcast": True}
    with pytest.raises(BadRecord, match="no room for the names of its shards"):
        definition_from_json("t" * (MAX_ID_BYTES - 10), body)
    definition_from_json("t" * (MAX_ID_BYTES - 20), body)


# -- whatever happens ----------------------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.just("deliver"), st.integers(0, 9)),
    st.tuples(st.just("start"), st.integers(0, 9)),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("move"), st.integers(0, 9)),
    st.tuples(st.just("die"), st.integers(0, 9)),
    st.tuples(st.just("trigger"), st.integers(0, 9)),
    st.tuples(st.just("takeover"), st.integers(0, 9)),
)


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 5), st.integers(2, 4), st.lists(STEPS, max_size=60))
def test_no_worker_runs_a_request_twice_and_every_one_that_stays_has_run_it(
    partitions: int, workers: int, steps: list[tuple[str, int]]
) -> None:
    names = [f"w{number}" for number in range(workers)]
    crew = Crew(*[names[partition % workers] for partition in range(partitions)])
    crew.able = set(names)
    gone: list[tuple[int, str]] = []  # (position in the log, worker) each time a worker came to hold nothing
    number = 0
    finished: list[tuple[str, str]] = []  # (worker, cycle)

    def move(partition: int, worker: str) -> None:
        before = crew.owners[partition]
        for task in [task for task in crew.on if partition_of(task.encode(), partitions) == partition]:
            _, epoch = crew.on.pop(task)
            crew.net.step(task, Interrupted(epoch, Cause.HANDOVER))
        crew.owners[partition] = worker
        if before not in crew.owners:
            gone.append((len(crew.net.log), before))

    def end(task: str) -> None:
        work = crew.net.tasks[task].state.work
        assert work is not None
        assert work.origin is not None
        finished.append((crew.on[task][0], work.origin.cycle))
        crew.end(task)

    for what, which in steps:
        if what == "deliver" and crew.net.waiting:
            pairs = list(crew.net.waiting)
            crew.net.deliver(*pairs[which % len(pairs)])
        elif what == "start" and crew.ready():
            ready = crew.ready()
            crew.start(ready[which % len(ready)])
        elif what == "end" and crew.on:
            end(list(crew.on)[which % len(crew.on)])
        elif what == "move":
            move(which % partitions, names[(which * 7 + len(crew.net.log)) % workers])
        elif what == "die":
            dead, heir = names[which % workers], names[(which + 1) % workers]
            for partition, owner in enumerate(crew.owners):
                if owner == dead:
                    move(partition, heir)
        elif what == "trigger":
            number += 1
            crew.net.trigger("t", f"r{number}")
        elif what == "takeover":
            crew.net.restore("t")
    for _ in range(1000):
        crew.net.deliver_all()
        for task in list(crew.on):
            end(task)
        for task in crew.ready():
            crew.start(task)
        if not crew.ready() and not crew.net.waiting and not crew.on:
            break
    assert len(crew.gathered()) == number
    assert all(count == 1 for count in Counter(finished).values()), "nobody finished a request twice"
    out = 0
    for place, (name, command) in enumerate(crew.net.log):
        kind, fields = getattr(command, "kind", None), getattr(command, "fields", {})
        if name != "t":
            continue
        if kind == "fanned_out" and "cause" not in fields:
            out = place
        if kind != "gathered":
            continue
        for item in fields["result"]:
            ran = (item["worker"], fields["cycle"]) in finished
            assert ran is (item["outcome"] == "succeeded")
            if item["outcome"] == "left":
                assert any(out <= at <= place and worker == item["worker"] for at, worker in gone), item
            else:
                assert ran, item
    assert not crew.net.records

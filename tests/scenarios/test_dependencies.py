"""Tasks that run after others, on real workers: across partitions and workers, and when one dies in between."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from fencepost.core.graph import circle
from fencepost.core.task import Retry
from tests.scenarios.stage import LIMIT_S, ROOT, Stage, python_task

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.faults

CLASSIC = ROOT / "config" / "examples" / "airflow_classic.toml"


@pytest.mark.parametrize("death", ["before end", "in end", "after end"])
def test_a_worker_that_dies_at_the_end_of_a_parent_neither_loses_nor_doubles_the_join(
    stage_of: Callable[..., Stage], death: str
) -> None:
    """The worker that dies has the second parent and the join; so the join is taken over as well."""
    stage = stage_of(partitions=6)
    stage.start("dies", bend={"die": death, "task": "second"})
    stage.start("stays")
    stage.all_hold("dies", "stays")
    first, second = stage.task_of("stays", "first/"), stage.task_of("dies", "second/")
    end, last = stage.task_of("dies", "end/"), stage.task_of("stays", "last/")
    retry = Retry(attempts=3, delay_s=0.1)
    stage.define(
        python_task(last, after=(end,)),
        python_task(end, after=(first, second)),
        python_task(second, retry=retry),
        python_task(first),
    )
    stage.client.trigger(first, cycle="one")
    stage.wait_kind(first, "succeeded")
    stage.client.trigger(second, cycle="one")
    assert stage.wait_ended(stage.workers["dies"], LIMIT_S) == -signal.SIGKILL
    stage.wait_kind(last, "succeeded")
    stage.wait_kind(second, "succeeded")
    stage.client.trigger(first, cycle="one")  # once more: the cycle has its run
    stage.wait(
        "both runs of the first parent", lambda: [e["kind"] for e in stage.world.history(first)].count("succeeded") == 2
    )
    stage.wait_kind(end, "skipped")
    for task in (end, last):
        told = [event["kind"] for event in stage.world.history(task) if "cycle" in event]
        assert told.count("succeeded") == 1, told
        assert len(stage.began(task)) == 1 + told.count("interrupted"), told
    assert {event["cycle"] for event in stage.world.history(last) if "cycle" in event} == {"one"}
    stage.check_no_overlap()
    assert "the promise holds" in stage.cli("verify").stdout


def test_u05_the_end_runs_once_after_both_parents_of_one_cycle_whatever_is_edited_deleted_and_retried(
    stage: Stage,
) -> None:
    stage.start_all("a", "b")
    one, two, end, other = (
        stage.task_on(partition, name) for partition, name in enumerate(("one/", "two/", "end/", "x/"))
    )
    slow = stage.folder / "two may end"
    retry = Retry(attempts=2, delay_s=0.1)
    stage.define(python_task(end, after=(one, two)), python_task(other, after=(one,)))
    stage.define(python_task(one), python_task(two, until=slow, retry=retry))
    stage.client.trigger(two, cycle="day")
    stage.wait_line(two)
    stage.define(python_task(one, description="edited"))
    stage.client.delete(other)
    stage.wait_kind(other, "deleted")
    stage.client.trigger(one, cycle="day")
    stage.wait_kind(one, "succeeded")
    assert not stage.began(end)
    slow.touch()
    stage.wait_kind(end, "succeeded")
    stage.client.trigger(two, cycle="day")  # rerun
    stage.wait_kind(end, "skipped")
    assert [event["kind"] for event in stage.world.history(end) if event["kind"] != "defined"] == [
        "triggered",  # it waits for the other parent
        "started",
        "succeeded",
        "skipped",
    ]
    assert not stage.began(other)
    assert stage.world.history(end)[1]["cycle"] == "day"
    assert "the promise holds" in stage.cli("verify").stdout
    assert not stage.dead_letters()


def test_airflows_classic_runs_its_second_command_after_the_first(stage: Stage) -> None:
    stage.start("a", "--allow", "/bin/date", "--allow", "/bin/sleep")
    stage.all_hold("a")
    assert "2 created" in stage.cli("apply", str(CLASSIC)).stdout
    assert "sleep  after print_date" in stage.cli("graph").stdout
    stage.client.trigger("print_date", id="today")
    ended = stage.wait_kind("sleep", "succeeded")
    assert ended["cycle"] == "run:print_date/today"
    assert ended["duration_s"] >= 5
    (first,) = [event for event in stage.world.history("print_date") if event["kind"] == "succeeded"]
    (started,) = [event for event in stage.world.history("sleep") if event["kind"] == "started"]
    assert started["at"] >= first["at"]


def test_a_circle_made_by_single_records_is_shown_and_ends_with_its_path(stage: Stage) -> None:
    stage.start_all("a")
    tasks = {"hen": ("egg",), "egg": ("hen",)}
    assert circle(tasks) == ("hen", "egg", "hen")
    for task, after in tasks.items():
        stage.define(python_task(task, after=after))
    stage.client.trigger("egg", id="t")
    assert stage.wait_kind("egg", "skipped")["cause"].endswith("in a circle: egg -> hen -> egg")
    assert len(stage.began("egg")) == len(stage.began("hen")) == 1
    shown = stage.cli("graph", expect=1)
    assert "-> egg" in shown.stderr


@pytest.mark.parametrize("death", ["in end", "after end"])
def test_a_worker_that_dies_at_the_end_of_a_shard_neither_loses_nor_doubles_what_is_gathered(
    stage_of: Callable[..., Stage], death: str
) -> None:
    """Six shards over two workers; the one that dies has the task that gathers them."""
    stage = stage_of(partitions=6)
    stage.start("dies", bend={"die": death, "task": "fan"})
    stage.start("stays")
    stage.all_hold("dies", "stays")
    task = stage.task_of("dies", "fan/")
    shards = [f"{task}/shard/{number}" for number in range(6)]
    assert {stage.holder(shard) for shard in shards} == {"dies", "stays"}
    end = f"end of {task}"
    stage.define(python_task(end, after=(task,)), python_task(task, shards=6, retry=Retry(attempts=2, delay_s=0.1)))
    stage.client.trigger(task, id="one")
    assert stage.wait_ended(stage.workers["dies"], LIMIT_S) == -signal.SIGKILL
    gathered = stage.wait_kind(task, "gathered")
    assert (gathered["outcome"], gathered["shards"], gathered["trigger"]) == ("succeeded", 6, "one")
    stage.wait_kind(end, "succeeded")
    for shard in shards:
        told = [event["kind"] for event in stage.world.history(shard)]
        assert told.count("succeeded") == 1, (shard, told)
    assert len(stage.began(end)) == 1 + [e["kind"] for e in stage.world.history(end)].count("interrupted")
    assert [event["kind"] for event in stage.world.history(task)].count("gathered") == 1
    stage.check_no_overlap()
    assert "the promise holds" in stage.cli("verify").stdout
    # They are the owner's to write and to delete: `apply --prune` leaves them, and they go with their task.
    (stage.folder / "all.toml").write_text(
        f'[[task]]\nid = "{task}"\nhandler = {{kind = "python", function = "work"}}\nshards = 6\n'
        f'[[task]]\nid = "{end}"\nhandler = {{kind = "python", function = "work"}}\nafter = ["{task}"]\n'
    )
    assert "0 deleted" in stage.cli("apply", "--prune", str(stage.folder / "all.toml")).stdout
    stage.client.delete(task)
    stage.wait(
        "its shards are deleted", lambda: all((stage.world.state(s) or {}).get("deleted") for s in shards), LIMIT_S
    )


def test_a_broadcast_is_run_once_by_each_worker_and_not_made_up_for_one_that_is_killed(
    stage_of: Callable[..., Stage],
) -> None:
    stage = stage_of(partitions=6)
    stage.start("dies")
    stage.start("stays")
    stage.all_hold("dies", "stays")
    task = stage.task_of("stays", "cast/")
    end = f"end of {task}"
    stage.define(python_task(end, after=(task,)), python_task(task, broadcast=True, retry=Retry(attempts=3)))
    stage.client.trigger(task, id="one")
    first = stage.wait_kind(task, "gathered")
    assert [item["outcome"] for item in first["result"]] == ["succeeded", "succeeded"]
    parts = {stage.holder(item["task"]): item["task"] for item in first["result"]}
    assert parts.keys() == {"dies", "stays"}
    stage.client.trigger(task, payload={"seconds": 600}, id="two")
    stage.wait("it runs where it will be lost", lambda: len(stage.began(parts["dies"])) == 2, LIMIT_S)
    stage.workers["dies"].kill()
    stage.client.cancel(parts["stays"])
    second = stage.wait("it is gathered", lambda: [e for e in stage.world.history(task) if e["kind"] == "gathered"][1:])
    ends = {item["worker"]: item["outcome"] for item in second[0]["result"]}
    by_name = {name: item["worker"] for item in first["result"] for name, part in parts.items() if part == item["task"]}
    assert ends == {by_name["dies"]: "left", by_name["stays"]: "cancelled"}
    assert len(stage.began(parts["dies"])) == 2, "nobody else ran it"
    stage.check_no_overlap()
    assert "the promise holds" in stage.cli("verify").stdout

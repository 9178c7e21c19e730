"""Pools on a real broker: the owner of an ID hands on what is for a pool; each side starts what is its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from fencepost.codec import dumps, loads
from fencepost.core.links import When
from fencepost.core.task import Outcome, Retry
from fencepost.kafka.admin import BadRequest, init
from fencepost.wire.definition import definition_to_json
from tests.kafka.lane.fakes import FakeRunners, succeed
from tests.kafka.lane.harness import Driven, World, a_task, discard, make_lane, only_classic, running, wait_until

pytestmark = only_classic


def pool_of(world: World, name: str) -> World:
    topics = world.topics.of(name)
    settings = replace(world.settings, namespace=topics.namespace, pool=name)
    return replace(world, settings=settings, topics=topics, info=init(settings).info)


@pytest.fixture
def pools(world: World) -> Iterator[tuple[World, World, World]]:
    """The namespace, and its pools gpu and big."""
    made = (world, pool_of(world, "gpu"), pool_of(world, "big"))
    yield made
    for each in made[1:]:
        discard(each)


def lane_of(world: World, at_once: Any = succeed) -> Driven:
    return make_lane(world, runners=FakeRunners(at_once=at_once), tasks=[])


def define(world: World, task: str, **fields: Any) -> None:
    world.produce([(world.topics.tasks, task, definition_to_json(a_task(task, **fields)))])


def started(lane: Driven, task: str) -> list[int]:
    return [order.epoch for order in lane.runners.launched if order.task == task]


def letters(world: World) -> list[tuple[str, str]]:
    found = [loads(record.value) for record in world.records(world.topics.dead_letter) if record.value is not None]
    return [(letter["field"], letter["reason"]) for letter in found]


def test_what_is_for_a_pool_goes_there_and_nowhere_else(pools: tuple[World, World, World]) -> None:
    main, gpu, _ = pools
    task, other = main.task_on(0), main.task_on(1)
    home, there = lane_of(main), lane_of(gpu)
    with running(home, there):
        define(main, task, pool="gpu")
        define(main, other)
        main.trigger(task, task, other)
        there.wait("both ran in the pool", lambda: gpu.kinds(task).count(("succeeded", 2)))
        home.wait("the other at home", lambda: main.kinds(other).count(("succeeded", 1)))
        main.produce([(main.topics.control, task, {"op": "pause", "reason": "lunch"})])
        there.wait("a control reached it", lambda: gpu.kinds(task).count(("paused", None)))
        main.produce([(main.topics.tasks, task, None)])
        there.wait("a deletion reached it", lambda: gpu.kinds(task).count(("deleted", None)))
    assert (started(home, task), started(home, other)) == ([], [1])
    assert (started(there, task), started(there, other)) == ([1, 2], [])
    assert (letters(main), letters(gpu)) == ([], [])


def test_a_task_moves_with_its_epoch_and_what_waits_over_takeovers_of_both_sides(
    pools: tuple[World, World, World],
) -> None:
    main, gpu, big = pools
    task = main.task_on(2)
    retry = Retry(attempts=1)
    define(main, task, retry=retry)
    first = lane_of(main, None)
    with running(first):
        main.trigger(task, task)
        first.wait("the first runs", lambda: started(first, task))
        define(main, task, retry=retry, pool="gpu")
        main.trigger(task)
        first.wait("the others wait", lambda: main.state(task)["next_seq"] == 4)  # type: ignore[index]
        assert not gpu.records(gpu.topics.tasks)
        first.runners.finish(task)
        first.wait("it is away", lambda: main.state(task).get("place", {}).get("pool") == "gpu")  # type: ignore[union-attr]
    with ExitStack() as stack:
        home, there = lane_of(main), lane_of(gpu, None)
        stack.enter_context(running(home, there))
        there.wait("the second runs in the pool", lambda: started(there, task) == [2])
        define(main, task, retry=retry, pool="big")
        home.wait("it is called back", lambda: main.state(task)["place"].get("recalled"))  # type: ignore[index]
        main.trigger(task)
    again, further = lane_of(main), lane_of(big)
    # The pool's owner is gone in the middle of the run: the next one records that, and only then gives the task back.
    last = lane_of(gpu, None)
    with running(again, further, last):
        further.wait("all that waited ran", lambda: [kind for kind, _ in big.kinds(task)].count("succeeded") == 3, 60)
    assert started(last, task) == []
    epochs = [2, *started(further, task)]
    assert epochs == [2, 3, 4, 5]
    assert [fields["place"] for fields in (main.state(task), gpu.state(task)) if fields] == [
        {"number": 2, "pool": "big", "sent": main.state(task)["place"]["sent"]},  # type: ignore[index]
        {"number": 1, "left": True},
    ]
    assert [letters(world) for world in pools] == [[], [], []]


def test_a_definition_for_a_pool_that_is_not_there_is_refused_and_its_task_waits_for_it(
    pools: tuple[World, World, World],
) -> None:
    main, _, _ = pools
    task = main.task_on(0)
    home = lane_of(main)
    with running(home):
        home.wait("it holds all", home.holds_all)
        define(main, task, pool="none")
        main.trigger(task)
        home.wait("both are refused", lambda: len(letters(main)) == 2)
        assert letters(main)[0] == ("pool", "'none' is not initialised; run `fencepost init --pool none`")
        made = pool_of(main, "none")
        define(main, task, pool="none")
        home.wait("it is taken now", lambda: made.records(made.topics.tasks, main.partition(task)))
        discard(made)
    assert started(home, task) == []


def test_a_pool_takes_no_definition_but_its_namespaces(pools: tuple[World, World, World]) -> None:
    main, gpu, _ = pools
    task = gpu.task_on(0)
    there, home = lane_of(gpu), lane_of(main)
    with running(there, home):
        there.wait("both hold all", lambda: there.holds_all() and home.holds_all())
        define(gpu, task)
        there.wait("it is refused", lambda: letters(gpu))
        main.produce(
            [(main.topics.tasks, task, {**definition_to_json(a_task(task)), "arrival": {"number": 1, "epoch": 9}})]
        )
        home.wait("so is one that says it had moved", lambda: letters(main))
    assert letters(gpu)[0][0] == "pool"
    assert letters(main)[0][0] == "arrival"


def test_a_pool_has_as_many_partitions_as_its_namespace(pools: tuple[World, World, World]) -> None:
    main, gpu, _ = pools
    assert gpu.info.partitions == main.info.partitions
    with pytest.raises(BadRequest, match="allowed for a pool: 4"):
        init(replace(gpu.settings, namespace=main.topics.of("odd").namespace, pool="odd"), partitions=3)


def test_nothing_waits_for_ever(pools: tuple[World, World, World]) -> None:
    """Many IDs at once, some in the pool: all that was asked for ran, each where it belongs."""
    main, gpu, _ = pools
    tasks = [f"t-{number}" for number in range(40)]
    home, there = lane_of(main), lane_of(gpu)
    with running(home, there):
        for number, task in enumerate(tasks):
            define(main, task, pool="gpu" if number % 2 else None)
        main.trigger(*tasks, *tasks)
        wait_until("all ran twice", lambda: len(home.runners.launched) + len(there.runners.launched) == 80)
    assert {order.task for order in home.runners.launched} == set(tasks[::2])
    assert {order.task for order in there.runners.launched} == set(tasks[1::2])


def test_what_runs_after_others_runs_in_its_pool_over_takeovers_of_both_sides(
    pools: tuple[World, World, World],
) -> None:
    """The first half of each cycle is joined by one owner in the namespace, the second by the next one."""
    main, gpu, big = pools
    one, two, three, four = (main.task_on(number) for number in range(4))
    define(main, one)
    define(main, two, pool="big")
    define(main, three, after=(one, two), pool="gpu")
    define(main, four, after=(three,))
    cycles = [f"week-{number}" for number in range(5)]
    asked = [{"id": cycle, "cycle": cycle, "payload": number} for number, cycle in enumerate(cycles)]
    first, afar = lane_of(main), lane_of(big)
    with running(first, afar):
        main.produce([(main.topics.triggers, one, body) for body in asked])
        first.wait("the cycles wait", lambda: main.kinds(three).count(("triggered", None)) == len(cycles))
    second, there, again = lane_of(main), lane_of(gpu), lane_of(big)
    with running(second, there, again):
        main.produce([(main.topics.triggers, two, body) for body in asked])
        second.wait("all ran in the pool, and what runs after it at home", lambda: len(started(second, four)) == 5)
    assert (started(there, three), started(again, two)) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    assert started(second, three) == [] == started(first, three)
    assert (
        sorted(body["cycle"] for body in main.history(three) if body["kind"] == "moved" and "cycle" in body) == cycles
    )
    assert sorted(body["cycle"] for body in main.history(four) if body["kind"] == "started") == cycles
    assert [letters(world) for world in pools] == [[], [], []]


def test_shards_run_in_the_pool_of_their_task_and_are_gathered_at_home(pools: tuple[World, World, World]) -> None:
    main, gpu, _ = pools
    task, child = main.task_on(1), main.task_on(2)
    define(main, task, shards=20, pool="gpu")
    define(main, child, after=(task,))
    home, there = lane_of(main), lane_of(gpu)
    with running(home, there):
        home.wait("both hold all", lambda: home.holds_all() and there.holds_all())
        main.trigger(task)
        home.wait("gathered", lambda: started(home, child) == [1])
    assert sorted(order.task for order in there.runners.launched) == sorted(f"{task}/shard/{n}" for n in range(20))
    assert [order.task for order in home.runners.launched] == [child]
    assert [letters(world) for world in pools] == [[], [], []]
    assert "skipped" not in [kind for n in range(20) for kind, _ in gpu.kinds(f"{task}/shard/{n}")]


def test_a_skipped_cycle_of_a_task_in_a_pool_is_told_to_those_after_it(pools: tuple[World, World, World]) -> None:
    main, gpu, _ = pools
    one, two, three = (main.task_on(number) for number in range(3))
    define(main, one)
    define(main, two, after=(one,), pool="gpu")
    define(main, three, after=(two,), when=When.ALL_DONE)
    home, there = lane_of(main, None), lane_of(gpu)
    with running(home, there):
        home.wait("its children are in the pool", lambda: main.state(two) and gpu.state(two))
        main.trigger(one)
        home.wait("it runs", lambda: started(home, one))
        home.runners.finish(one, Outcome.FAILED)
        home.wait("it was told", lambda: started(home, three) == [1])
    assert [body["cause"] for body in main.history(two) if body["kind"] == "skipped"] == ["upstream failed"]
    assert started(there, two) == []


def test_a_task_that_never_ran_in_its_pool_comes_back_also_if_it_was_wanted_while_nobody_was_there(
    pools: tuple[World, World, World],
) -> None:
    main, gpu, _ = pools
    task = main.task_on(0)
    home = lane_of(main)
    with running(home):
        define(main, task, pool="gpu")
        main.trigger(task)
        home.wait("it is away", lambda: (main.state(task) or {}).get("place", {}).get("pool") == "gpu")
        define(main, task)
        home.wait("it is called back", lambda: main.state(task)["place"].get("recalled"))  # type: ignore[index]
        there = lane_of(gpu)
        with running(there):
            home.wait("it ran at home", lambda: started(home, task) == [1])
    assert started(there, task) == []


def test_a_word_of_a_child_that_comes_back_from_a_pool_undoes_nothing_that_was_said_since(
    pools: tuple[World, World, World],
) -> None:
    main, gpu, _ = pools
    parent, child = main.task_on(1), main.task_on(2)
    define(main, parent)
    define(main, child, after=(parent,))
    back = {"fencepost-forwarded": f"{gpu.topics.control}-1-7".encode()}
    home = lane_of(main)
    with running(home):
        main.trigger(parent)
        home.wait("the child is known", lambda: started(home, child) == [1])
        word = {"op": "signal", "signal": {"kind": "unsubscribe"}, "from": child}
        main.produce_to(main.topics.control, 1, parent.encode(), dumps(word), back)
        main.produce([(main.topics.control, parent, {"op": "pause"}), (main.topics.control, parent, {"op": "resume"})])
        home.wait("it was read", lambda: ("resumed", None) in main.kinds(parent))
        main.trigger(parent)
        home.wait("the child is told", lambda: started(home, child) == [1, 2])
    assert letters(main) == []

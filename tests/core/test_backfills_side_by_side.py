"""A backfill with more than one run at once: its slots are spread over IDs of its own, and never more are on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fencepost.core.commands import Ask, Command, History, Launch, Stop
from fencepost.core.events import Backfilled, Cancelled, Deleted, Ended, Paused, Resumed, Started, Triggered
from fencepost.core.fans import slot_id
from fencepost.core.links import Links
from fencepost.core.machine import restored_task
from fencepost.core.schedule import Every
from fencepost.core.task import CatchUp, Outcome, Overlap, Retry, Status
from fencepost.core.times import format_ms
from fencepost.core.verify import Finding, Kind, PartitionCheck
from fencepost.wire.control import encode_backfill, read_control
from fencepost.wire.fan import decode_fan
from fencepost.wire.links import decode_links, encode_links
from fencepost.wire.state import decode_state, encode_state
from fencepost.wire.trigger import encode_again, read_trigger
from tests.core.net import Net
from tests.core.play import HOUR, T0

FAILED = Outcome.FAILED
REPLAYED: Any = [("fencepost_replays", b"1")]


def net_of(**fields: Any) -> Net:
    """A task `t` of whose slots of two days none ran, and `end`, which runs after it."""
    net = Net(t={"schedule": Every(3600, T0), "catch_up": CatchUp.NONE} | fields, end=["t"])
    net.now_ms = T0 + 48 * HOUR + HOUR // 2
    net.wake("t")
    net.log.clear()
    return net


def backfill(net: Net, first: int = 1, last: int = 7, max_runs: int = 3, left_out: tuple[int, ...] = ()) -> None:
    """From the hour `first` after the beginning to `last`, by its record."""
    slots = [T0 + hour * HOUR for hour in left_out]
    value = encode_backfill("june", T0 + first * HOUR, T0 + last * HOUR, slots, max_runs)
    _, event = read_control(b"t", value, net.offset("t control"))
    net.step("t", event)


def hour_of(launch: Launch) -> int:
    assert launch.work.slot_ms is not None
    return (launch.work.slot_ms - T0) // HOUR


def ready(net: Net) -> list[str]:
    net.deliver_all()
    return [name for name in net.tasks if "/backfill/" in name and net.startable(name)]


def restore_from_records(net: Net) -> None:
    """The task as its next owner reads it."""
    task = net.tasks["t"]
    state = decode_state(encode_state(task.state, "lane", "nonce"))
    assert state == task.state
    assert task.links is not None
    fans = [decode_fan(value) for (of, kind, _), value in net.records.items() if (of, kind) == ("t", "fan")]
    links = decode_links(encode_links("t", task.links, "lane", "nonce"))
    again = restored_task(state, task.waiting, None, links, (), fans, None, task.left_out)
    definition = task.definition
    net.tasks["t"] = again
    assert definition is not None
    net.define("t", restored=True, **{name: getattr(definition, name) for name in ("schedule", "catch_up", "retry")})
    assert net.tasks["t"].links == task.links


def over(net: Net) -> list[dict[str, Any]]:
    return net.told("t", "backfilled")


@pytest.mark.parametrize("takeover", [False, True])
def test_every_slot_runs_once_in_order_of_its_start_and_never_more_than_so_many_at_once(takeover: bool) -> None:
    net = net_of()
    backfill(net, 1, 8, left_out=(3, 8))
    assert net.told("t", "triggered") == [
        {
            "kind": "triggered",
            "asked_by": "backfill june",
            "count": 8,
            "first": format_ms(T0 + HOUR),
            "last": format_ms(T0 + 8 * HOUR),
            "left_out": 2,
            "max_runs": 3,
        }
    ]
    hours, on = [], dict[str, int]()
    while names := ready(net):
        for name in names:
            launched = next(item for item in net.step(name, Started("l", "n", 15.0)) if isinstance(item, Launch))
            hours.append(hour_of(launched))
            on[name] = launched.run.epoch
        assert len(on) <= 3
        assert set(on) <= {slot_id("t", place) for place in range(3)}
        if takeover:
            restore_from_records(net)
        name = max(on)  # one at a time, the youngest of them first
        net.step(name, Ended(on.pop(name), Outcome.SUCCEEDED, hours[-1]))
    while on:
        name, epoch = on.popitem()
        net.step(name, Ended(epoch, Outcome.SUCCEEDED))
        net.deliver_all()
    assert sorted(hours) == [1, 2, 4, 5, 6, 7]
    assert over(net) == [
        {
            "kind": "backfilled",
            "asked_by": "backfill june",
            "count": 6,
            "succeeded": 6,
            "failed": 0,
            "skipped": 0,
            "left_out": 2,
        }
    ]
    assert net.tasks["t"].state.backfill is None
    assert net.tasks["t"].left_out == ()
    assert not [of for of, kind, _ in net.records if of == "t"]
    cycles = [item["cycle"] for item in net.told("end", "started")]
    assert cycles == []
    assert len(net.tasks["end"].waiting) == 6  # what runs after the task does so for each slot
    assert net.tasks["t"].state.epoch == 0


def test_the_ids_have_the_task_s_definition_without_its_slots_stay_for_the_next_backfill_and_go_with_it() -> None:
    net = net_of(retry=Retry(attempts=2), payload={"n": 1})
    backfill(net, 1, 4, max_runs=2)
    for _ in range(4):
        launched = net.run(ready(net)[0])
        assert (launched.work.payload, launched.work.asked_by) == ({"n": 1}, "backfill june")
    net.deliver_all()
    definition = net.tasks[slot_id("t", 0)].definition
    assert definition is not None
    assert (definition.schedule, definition.shard_of, definition.retry.attempts) == (None, "t", 2)
    net.define("t", schedule=Every(3600, T0), catch_up=CatchUp.NONE, grace_s=9.0)
    net.deliver_all()
    graces = [net.tasks[slot_id("t", place)].definition.grace_s for place in range(2)]  # type: ignore[union-attr]
    assert graces == [9.0, 9.0]
    net.step("t", Deleted())
    net.deliver_all()
    assert [net.tasks[slot_id("t", place)].definition for place in range(2)] == [None, None]


def test_slots_that_fail_are_counted_and_one_that_is_sent_again_mends_its_cycle() -> None:
    net = net_of()
    backfill(net, 1, 3, max_runs=2)
    one, two = ready(net)
    net.run(one, FAILED)
    net.run(two)
    net.step(ready(net)[0], Cancelled(reason="not this one"))
    net.deliver_all()
    assert [(item["succeeded"], item["failed"], item["skipped"]) for item in over(net)] == [(1, 1, 1)]
    assert len(net.tasks["end"].waiting) == 1
    letter = next(item.work for _, item in net.log if type(item).__name__ == "GiveUp")  # type: ignore[union-attr]
    net.step(one, Triggered(read_trigger(one.encode(), encode_again(letter), REPLAYED, net.offset(one), 0)))
    net.run(one)
    net.deliver_all()
    assert len(net.tasks["end"].waiting) == 2


def test_cancel_reaches_what_is_out_and_leaves_out_the_rest_and_stop_lets_what_is_out_end() -> None:
    for stop in (False, True):
        net = net_of()
        backfill(net, 1, 9, max_runs=2)
        one, two = ready(net)
        net.step(one, Started("l", "n", 15.0))
        net.step("t", Backfilled(-1, stop=True, reason="enough") if stop else Cancelled(reason="enough"))
        net.deliver_all()
        left = [item for item in net.told("t", "skipped") if "first" in item]
        assert [(item["cause"], item["count"], item["first"]) for item in left] == [
            ("enough", 7, format_ms(T0 + 3 * HOUR))
        ]
        assert bool(over(net)) is not stop
        assert bool([item for _, item in net.log if isinstance(item, Stop)]) is not stop
        net.step(one, Ended(net.tasks[one].state.epoch, Outcome.SUCCEEDED))
        if stop:
            net.run(two)
        net.deliver_all()
        (end,) = over(net)
        assert (end["succeeded"], end.get("cancelled", 0)) == ((2, 0) if stop else (0, 2))
        assert not ready(net)
        assert net.tasks["t"].state.backfill is None
        assert not [of for of, kind, _ in net.records if of == "t"]


def test_a_pause_holds_back_its_slots_until_resume() -> None:
    net = net_of()
    net.step("t", Paused())
    backfill(net, 1, 3, max_runs=2)
    assert ready(net) == []
    net.step("t", Resumed())
    net.run(ready(net)[0])
    net.step("t", Paused())
    assert ready(net) == []
    net.step("t", Resumed())
    while names := ready(net):
        net.run(names[0])
    assert over(net)[0]["succeeded"] == 3


def test_another_schedule_or_a_deletion_ends_it_and_the_task_goes_on_beside_it() -> None:
    net = net_of()
    backfill(net, 1, 9, max_runs=2)
    net.trigger("t", "beside")
    assert net.run("t").work.trigger_id == "beside"
    net.define("t", schedule=Every(7200, T0), catch_up=CatchUp.NONE)
    assert [item["cause"] for item in net.told("t", "skipped")] == ["another schedule"]
    for name in ready(net):
        net.run(name)
    net.deliver_all()
    assert over(net)[0]["succeeded"] == 2
    backfill(net, 2, 9, max_runs=2)
    net.step("t", Deleted())
    net.deliver_all()
    assert over(net)[1]["cancelled"] == 2
    assert (net.tasks["t"].state.backfill, ready(net)) == (None, [])


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"shards": 2}, "max_runs above 1 is not for a task that is fanned out"),
        ({"pool": "gpu"}, "max_runs above 1 is not for a task in a pool"),
    ],
    ids=["fanned out", "pool"],
)
def test_what_cannot_run_side_by_side_says_why(fields: dict[str, Any], cause: str) -> None:
    net = net_of()
    task = net.tasks["t"]
    assert task.definition is not None
    net.tasks["t"] = replace(task, definition=replace(task.definition, **fields))
    backfill(net)
    assert net.told("t", "skipped")[0]["cause"].startswith(cause)
    assert net.tasks["t"].state.backfill is None


def test_a_task_with_shards_is_backfilled_one_slot_after_the_other() -> None:
    net = net_of(shards=2)
    backfill(net, 1, 3, max_runs=1)
    for hour in (1, 2, 3):
        assert net.startable("t")
        net.step("t", Started("l", "n", 15.0))
        assert not net.startable("t")
        net.deliver_all()
        for shard in ("t/shard/0", "t/shard/1"):
            assert net.run(shard).work.origin.cycle.endswith(format_ms(T0 + hour * HOUR))  # type: ignore[union-attr]
        net.deliver_all()
    assert not net.startable("t")
    assert [item["outcome"] for item in net.told("t", "gathered")] == ["succeeded"] * 3


def test_the_promise_holds_for_the_task_and_for_each_of_the_ids() -> None:
    net = net_of(retry=Retry(attempts=2, delay_s=0.0))
    backfill(net, 1, 6, max_runs=2)
    net.run(ready(net)[0], FAILED)
    while names := ready(net):
        net.run(names[0])
    for name in ("t", slot_id("t", 0), slot_id("t", 1)):
        assert net.tasks[name].state.status is Status.IDLE
        check = PartitionCheck(False)
        check.state(net.tasks[name].state)
        events: list[Command] = [item for of, item in net.log if of == name and isinstance(item, History)]
        for at, event in enumerate(events):
            check.event(name, event, at)  # type: ignore[arg-type]
        assert check.finish()[0] == []


def test_a_name_that_is_used_again_counts_on_its_own_and_is_no_fault() -> None:
    """A slot of the earlier one, sent again while the later is on, once made its counts disagree."""
    net = net_of()
    backfill(net, 1, 2, max_runs=2)
    one, two = ready(net)
    net.run(one, FAILED)
    net.run(two)
    net.deliver_all()
    letter = next(item.work for _, item in net.log if type(item).__name__ == "GiveUp")  # type: ignore[union-attr]
    backfill(net, 1, 2, max_runs=2)
    assert ready(net) == [one, two]
    net.run(two)
    net.run(one)
    net.step(one, Triggered(read_trigger(one.encode(), encode_again(letter), REPLAYED, net.offset(one), 0)))
    net.run(one)
    net.deliver_all()
    for end in over(net):
        assert end["succeeded"] + end["failed"] + end["skipped"] == end["count"]
        assert "cancelled" not in end
    for name in ("t", one, two):
        assert found(net, name) == []


def test_one_sent_again_while_a_backfill_of_the_same_name_is_on_does_not_count_for_it() -> None:
    net = net_of()
    backfill(net, 1, 1, max_runs=2)
    net.run(ready(net)[0], FAILED)
    net.deliver_all()
    letter = next(item.work for _, item in net.log if type(item).__name__ == "GiveUp")  # type: ignore[union-attr]
    backfill(net, 2, 5, max_runs=2)
    one = slot_id("t", 0)
    net.deliver_all()
    net.step(one, Triggered(read_trigger(one.encode(), encode_again(letter), REPLAYED, net.offset(one), 0)))
    while names := ready(net):
        net.run(names[0])
    last = over(net)[-1]
    assert (last["count"], last["succeeded"], last["failed"], last.get("cancelled", 0)) == (4, 4, 0, 0)


def test_verify_finds_a_slot_that_was_given_away_twice() -> None:
    net = net_of()
    backfill(net, 1, 2, max_runs=2)
    for name in ready(net):
        net.run(name)
    net.deliver_all()
    assert found(net, "t") == []
    given = next(item for name, item in net.log if name == "t" and getattr(item, "kind", "") == "fanned_out")
    (fault,) = found(net, "t", given)
    assert (fault.kind, fault.task) == (Kind.SLOT_TWICE, "t")
    one = slot_id("t", 0)
    begun = next(item for name, item in net.log if name == one and getattr(item, "kind", "") == "started")
    assert isinstance(begun, History)
    twice = [fault.kind for fault in found(net, one, replace(begun, epoch=2))]
    assert Kind.SLOT_TWICE in twice


def test_the_slot_of_a_trigger_that_came_too_late_is_named_where_it_is_skipped() -> None:
    net = net_of()
    backfill(net, 1, 1, max_runs=2)
    one = slot_id("t", 0)
    net.waiting.pop(("t", one))  # neither its definition nor its trigger has come
    trigger = next(item.trigger for _, item in net.log if isinstance(item, Ask))
    net.step(one, Triggered(replace(trigger, offset=0)))
    (skip,) = net.told(one, "skipped")
    assert (skip["slot"], skip["asked_by"], skip["cause"]) == (format_ms(T0 + HOUR), "backfill june", "not defined")
    net.deliver_all()
    assert over(net)[0]["skipped"] == 1


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.CANCEL, Overlap.TERMINATE])
def test_a_slot_of_a_backfill_by_shards_neither_skips_nor_loses_to_another_request(overlap: Overlap) -> None:
    net = net_of(shards=1, overlap=overlap)
    backfill(net, 1, 1, max_runs=1)
    net.step("t", Started("l", "n", 15.0))
    net.trigger("t", "beside")
    net.step("t", Started("l", "n", 15.0))
    net.deliver_all()
    for _ in range(2):
        net.run("t/shard/0")
    net.deliver_all()
    ends = [(item.get("slot"), item.get("trigger"), item["outcome"]) for item in net.told("t", "gathered")]
    assert ends == [(format_ms(T0 + HOUR), None, "succeeded"), (None, "beside", "succeeded")]


def test_what_links_say_besides_goes_with_their_record() -> None:
    """A request that failed keeps the links, and once made them say more than their next owner could read."""
    net = net_of()
    backfill(net, 1, 2, max_runs=2)
    net.run(ready(net)[0], FAILED)
    net.deliver_all()
    net.step("t", Cancelled())
    net.define("t", schedule=Every(3600, T0), catch_up=CatchUp.NONE, shards=1)
    net.define("t", catch_up=CatchUp.NONE)
    net.step("end", Deleted())
    net.deliver_all()
    task = net.tasks["t"]
    assert task.links is not None
    assert task.links.empty
    assert task.links == Links(fans=task.links.fans)


def found(net: Net, name: str, *more: Any) -> list[Finding]:
    """What the check says of the history of an ID, with events planted at its end."""
    check = PartitionCheck(False)
    check.state(net.tasks[name].state)
    events = [item for of, item in net.log if of == name and isinstance(item, History)]
    for at, event in enumerate((*events, *more)):
        check.event(name, event, at)
    return check.finish()[0]

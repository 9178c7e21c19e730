"""A request that becomes runs of many IDs, and ends once they all have."""

from __future__ import annotations

from collections import deque
from itertools import permutations, product
from typing import Any

import pytest

from fencepost.core.commands import Define, GiveUp, Stop
from fencepost.core.events import Cancelled, Deleted, Ended, Paused, Resumed, Signalled, Started, Triggered
from fencepost.core.fans import MAX_FANS, shard_id
from fencepost.core.links import MAX_SHARDS, RESULTS_BYTES
from fencepost.core.machine import restored_task
from fencepost.core.schedule import Every
from fencepost.core.signals import CancelShard
from fencepost.core.task import Definition, Outcome, Overlap, PythonHandler, Retry, Status
from fencepost.core.times import format_ms
from fencepost.wire.state import decode_state, encode_state
from fencepost.wire.trigger import encode_again, read_trigger
from tests.core.net import Net
from tests.core.play import MINUTE, T0

FAILED = Outcome.FAILED
REPLAYED: Any = [("fencepost_replays", b"1")]


def start(net: Net, task: str) -> None:
    net.step(task, Started("lane", "nonce", 15.0))


def fan_out(net: Net, task: str = "t", **trigger: Any) -> list[str]:
    """A trigger of the task, fanned out; the IDs of its shards that can start."""
    net.trigger(task, **trigger)
    start(net, task)
    net.deliver_all()
    return [name for name in net.tasks if name.startswith(f"{task}/shard/") and net.startable(name)]


def gathered(net: Net, task: str = "t") -> list[dict[str, Any]]:
    return net.told(task, "gathered")


# -- fixed shards ----------------------------------------------------------------------------------------------------


def test_each_request_of_a_task_with_shards_becomes_a_run_of_each() -> None:
    net = Net(t={"shards": 3, "retry": Retry(attempts=2), "payload": "default"}, end=["t"])
    shards = fan_out(net, id="one")
    assert shards == ["t/shard/0", "t/shard/1", "t/shard/2"]
    assert net.tasks["t"].state.status is Status.IDLE
    assert net.tasks["t"].state.epoch == 0
    told: list[Any] = []
    for number, shard in enumerate(reversed(shards)):
        work = net.run(shard, result=f"of {shard}").work
        assert work.origin is not None
        assert work.origin.shard is not None
        told.append((work.origin.shard.shard, work.origin.shard.shards, work.origin.cycle, work.payload))
        assert net.tasks[shard].definition is not None
        assert net.tasks[shard].definition.retry.attempts == 2  # type: ignore[union-attr]
        assert bool(gathered(net)) is False
        if number < 2:
            net.deliver_all()
    assert told == [(number, 3, "run:t/one", "default") for number in (2, 1, 0)]
    net.deliver_all()
    (end,) = gathered(net)
    assert end["outcome"] == "succeeded"
    assert end["result"] == ["of t/shard/0", "of t/shard/1", "of t/shard/2"]
    assert (end["trigger"], end["cycle"], end["shards"]) == ("one", "run:t/one", 3)
    upstream = net.run("end").work.origin.upstream  # type: ignore[union-attr]
    assert upstream == {"t": {"outcome": "succeeded", "result": end["result"]}}
    assert not net.records


@pytest.mark.parametrize("takeover", [False, True])
def test_whatever_the_order_in_which_shards_end_and_fail_the_request_is_gathered_once_they_all_have(
    takeover: bool,
) -> None:
    for outcomes in product((Outcome.SUCCEEDED, FAILED), repeat=3):
        for order in permutations(range(3)):
            net = Net(t={"shards": 3})
            shards = fan_out(net)
            for place, number in enumerate(order):
                net.run(shards[number], outcomes[number], number)
                net.deliver_all()
                if takeover:
                    net.restore("t")
                assert bool(gathered(net)) is (place == 2)
            (end,) = gathered(net)
            failed = [number for number in range(3) if outcomes[number] is FAILED]
            assert end["outcome"] == ("failed" if failed else "succeeded")
            assert end.get("failed_shards", []) == failed
            assert end.get("result") == (None if failed else [0, 1, 2])


def test_retries_of_a_shard_are_its_own_and_a_shard_that_is_replayed_with_success_mends_the_request() -> None:
    net = Net(t={"shards": 2, "retry": Retry(attempts=2, delay_s=0.0)}, end=["t"])
    one, two = fan_out(net)
    net.run(one, result=1)
    net.run(two, FAILED)
    net.deliver_all()
    assert not gathered(net)
    net.run(two, FAILED)
    net.deliver_all()
    assert [end["outcome"] for end in gathered(net)] == ["failed"]
    assert net.told("end", "skipped")[0]["cause"] == "upstream failed"
    letter = next(command.work for _, command in net.log if isinstance(command, GiveUp))
    again = read_trigger(two.encode(), encode_again(letter), None, net.offset(two), 0)
    net.step(two, Triggered(again))
    net.run(two, result=2)
    net.deliver_all()
    assert [end["outcome"] for end in gathered(net)] == ["failed", "succeeded"]
    assert net.run("end").work.origin.upstream["t"]["result"] == [1, 2]  # type: ignore[union-attr,index]


def test_two_requests_may_be_out_at_once_and_keep_their_shards_apart() -> None:
    net = Net(t={"shards": 2})
    for id in ("a", "b"):
        fan_out(net, id=id)
    for shard in (0, 1):
        net.run(shard_id("t", shard), result=f"a{shard}")
    for shard in (1, 0):
        net.run(shard_id("t", shard), result=f"b{shard}")
    net.deliver_all()
    assert {end["trigger"]: end["result"] for end in gathered(net)} == {"a": ["a0", "a1"], "b": ["b0", "b1"]}


def test_the_slot_of_a_scheduled_task_is_accounted_for_and_names_the_cycle() -> None:
    net = Net(t={"shards": 1, "schedule": Every(60, T0)})
    net.now_ms = T0 + MINUTE
    net.wake("t")
    start(net, "t")
    net.deliver_all()
    net.run("t/shard/0")
    net.deliver_all()
    slot = format_ms(T0 + MINUTE)
    assert net.told("t", "fanned_out")[0]["slot"] == slot
    assert gathered(net)[0]["cycle"] == f"slot:{slot}"


def test_a_shard_that_is_cancelled_or_skipped_counts_as_ended() -> None:
    net = Net(t={"shards": 2})
    one, two = fan_out(net)
    net.run(one)
    net.step(two, Cancelled())
    net.deliver_all()
    (end,) = gathered(net)
    assert (end["outcome"], end["failed_shards"]) == ("failed", [1])


# -- map -------------------------------------------------------------------------------------------------------------


def test_a_map_has_a_shard_for_each_item_that_a_run_produced() -> None:
    net = Net(list=(), t={"after": ("list",), "map": "list"}, end=["t"])
    net.trigger("list", "go")
    net.run("list", result=["a", "b", "c"])
    net.deliver_all()
    start(net, "t")
    net.deliver_all()
    assert [net.run(shard_id("t", number)).work.payload for number in range(3)] == ["a", "b", "c"]
    net.deliver_all()
    net.run("end")
    assert net.kinds("end") == ["started", "succeeded"]
    assert net.told("end", "started")[0]["cycle"] == "run:list/go"


def test_a_map_in_chunks_gives_each_shard_a_list() -> None:
    net = Net(t={"map": "payload", "chunk": 2})
    shards = fan_out(net, payload=[1, 2, 3, 4, 5])
    assert [net.run(shard).work.payload for shard in shards] == [[1, 2], [3, 4], [5]]


def test_an_empty_list_has_no_shards_and_succeeds() -> None:
    net = Net(t={"map": "x"}, end=["t"])
    assert fan_out(net, payload=[]) == []
    (end,) = gathered(net)
    assert (end["outcome"], end["result"], end["shards"]) == ("succeeded", [], 0)
    assert net.startable("end")


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"no": "list"}, "the payload is no list"),
        (None, "the payload is no list"),
        (list(range(MAX_SHARDS + 1)), f"{MAX_SHARDS + 1} items in chunks of 1 are more than {MAX_SHARDS} shards"),
    ],
    ids=["object", "nothing", "too many"],
)
def test_what_cannot_be_mapped_fails_the_request_and_says_why(payload: Any, why: str) -> None:
    net = Net(t={"map": "x"}, end=["t"])
    assert fan_out(net, payload=payload) == []
    (end,) = gathered(net)
    assert end["outcome"] == "failed"
    assert why in end["error"]
    assert net.told("end", "skipped")[0]["cause"] == "upstream failed"
    assert not [of for of, _, _ in net.records if of == "t"]


def test_a_result_that_is_no_list_is_named_with_the_task_that_returned_it() -> None:
    net = Net(list=(), t={"after": ("list",), "map": "list"})
    net.trigger("list")
    net.run("list", result=7)
    net.deliver_all()
    start(net, "t")
    assert gathered(net)[0]["error"] == "the result of list is no list, so there is nothing to make shards of"


# -- their definitions -----------------------------------------------------------------------------------------------


def test_shards_are_defined_once_and_follow_their_task() -> None:
    net = Net(t={"shards": 3})
    fan_out(net)
    assert definitions(net) == dict.fromkeys(range(3), 5.0)
    before = len(net.log)
    fan_out(net)
    assert not [command for _, command in net.log[before:] if isinstance(command, Define)]
    net.define("t", shards=2, grace_s=9.0)
    net.deliver_all()
    assert definitions(net) == {0: 9.0, 1: 9.0}
    net.restore("t")
    assert not net.waiting
    net.define("t", grace_s=9.0)  # no shards any more
    net.deliver_all()
    assert definitions(net) == {}
    assert net.tasks["t"].links is None


def definitions(net: Net) -> dict[int, float]:
    """grace_s of each shard that is defined: it stands for the whole definition."""
    return {
        int(name.rpartition("/")[2]): task.definition.grace_s
        for name, task in net.tasks.items()
        if "/shard/" in name and task.definition is not None
    }


def test_deleting_the_task_deletes_its_shards_and_tells_those_after_it() -> None:
    net = Net(t={"shards": 2}, end=["t"])
    fan_out(net)
    net.run("t/shard/0")
    net.step("t", Deleted())
    net.deliver_all()
    assert definitions(net) == {}
    assert [item["cause"] for item in net.told("end", "skipped")] == ["upstream skipped"]
    assert not [of for of, _, _ in net.records if of == "t"]
    assert net.told("t", "skipped")[-1]["cause"] == "deleted"  # what its shards told afterwards


def test_a_shard_is_no_task_that_fans_out_or_follows_or_has_slots_itself() -> None:
    net = Net(a=(), t={"shards": 1, "after": ("a",), "schedule": Every(60)})
    fan_out(net)
    shard = net.tasks["t/shard/0"].definition
    assert shard is not None
    assert shard == Definition("t/shard/0", PythonHandler("t"), buffer_limit=10_000, shard_of="t")


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_requests_that_wait_for_their_shards_are_bounded() -> None:
    net = Net(t={"shards": 1})
    for _ in range(MAX_FANS + 1):
        fan_out(net)
    assert len(net.told("t", "fanned_out")) == MAX_FANS
    assert net.told("t", "skipped")[0]["cause"] == f"{MAX_FANS} requests wait for their shards"
    net.run("t/shard/0", FAILED)
    net.deliver_all()
    fan_out(net)  # one that failed makes way
    assert len(net.told("t", "fanned_out")) == MAX_FANS + 1


def test_the_results_of_all_shards_have_64_kib_together() -> None:
    net = Net(t={"shards": 3}, end=["t"])
    for shard in fan_out(net):
        net.run(shard, result="x" * (RESULTS_BYTES // 2))
    net.deliver_all()
    (end,) = gathered(net)
    assert [result is None for result in end["result"]] == [False, True, True]
    assert "65,536" in end["result_dropped"]


def test_what_a_stranger_says_of_a_shard_changes_nothing() -> None:
    net = Net(t={"shards": 2})
    one, two = fan_out(net)
    for shard in (one, two):
        net.run(shard)
    net.deliver_all()
    origin = net.log  # the request is over: the word of a shard that runs once more is left out
    assert origin
    shard_origin = next(
        command.work.origin for _, command in net.log if hasattr(command, "work") and command.work.origin
    )
    net.trigger(one, cycle=shard_origin.cycle, shard=shard_origin.shard)
    net.run(one)
    net.deliver_all()
    assert len(gathered(net)) == 1
    assert net.told("t", "skipped")[0]["cause"] == "its shards were gathered"


# -- cancel, pause, overlap ------------------------------------------------------------------------------------------


def begun(net: Net, task: str) -> int:
    """Start what waits of the task; its epoch."""
    start(net, task)
    return net.tasks[task].state.epoch


def test_cancel_ends_each_open_request_and_exactly_what_its_shards_have_of_it() -> None:
    net = Net(t={"shards": 3, "retry": Retry(attempts=5), "grace_s": 7.0}, end=["t"])
    fan_out(net, id="one")
    zero, one, two = (shard_id("t", number) for number in range(3))
    net.run(zero, result=0)
    net.deliver_all()
    epoch = begun(net, one)  # runs
    net.run(two, FAILED)  # waits for its next attempt
    fan_out(net, id="two")  # of which all three wait, or could start
    net.step("t", Cancelled(reason="no longer wanted"))
    ends = {end["trigger"]: (end["outcome"], end["cause"], end["open_shards"]) for end in gathered(net)}
    assert ends == {
        "one": ("cancelled", "no longer wanted", [1, 2]),
        "two": ("cancelled", "no longer wanted", [0, 1, 2]),
    }
    net.restore("t")
    net.deliver_all()
    assert [command for of, command in net.log if isinstance(command, Stop)] == [Stop(epoch, "cancelled", 7.0)]
    assert net.tasks[two].state.status is Status.IDLE
    assert net.told(two, "cancelled")[0]["cause"] == "no longer wanted"
    assert [item["cause"] for item in net.told(zero, "skipped")] == ["no longer wanted"]
    net.step(one, Ended(epoch, Outcome.SUCCEEDED))
    net.deliver_all()
    assert net.told(one, "cancelled")[0]["cause"] == "no longer wanted"
    assert not [name for name in (zero, one, two) if net.startable(name)]
    assert len(gathered(net)) == 2
    assert not net.told("t", "skipped")  # what the shards told afterwards says nothing
    assert [item["cause"] for item in net.told("end", "skipped")] == ["upstream cancelled"] * 2
    assert not [of for of, _, _ in net.records if of == "t"]


def test_a_trigger_that_comes_after_the_cancel_of_its_request_does_not_start_whatever_the_takeovers() -> None:
    net = Net(t={"shards": 1, "retry": Retry(attempts=2)})
    shard = shard_id("t", 0)
    net.trigger("t", "old")
    start(net, "t")
    net.step("t", Cancelled())
    (late,) = [sent for sent in net.waiting["t", shard] if sent[0] == "trigger"]
    net.waiting["t", shard].remove(late)  # a record of another topic: it may come whenever it likes
    net.deliver_all()
    net.trigger("t", "new")
    start(net, "t")
    net.deliver_all()
    assert net.run(shard).work.origin.cycle == "run:t/new"  # type: ignore[union-attr]
    net.tasks[shard] = restored_task(decode_state(encode_state(net.tasks[shard].state, "lane", "nonce")))
    net.define(shard, shard_of="t", restored=True)
    net.waiting["t", shard] = deque([late])
    net.deliver_all()
    assert not net.startable(shard)
    assert [(item["cause"], item["cycle"]) for item in net.told(shard, "skipped")] == [("cancelled", "run:t/old")]
    assert [end["outcome"] for end in gathered(net)] == ["cancelled", "succeeded"]
    assert not net.told("t", "skipped")


def test_what_is_sent_again_after_a_cancel_mends_a_request_that_failed_and_says_nothing_of_a_cancelled_one() -> None:
    net = Net(t={"shards": 1})
    shard = shard_id("t", 0)
    letters = []
    for id in ("failed", "cancelled"):
        fan_out(net, id=id)
        net.run(shard, FAILED)
        letters += [command.work for _, command in net.log if isinstance(command, GiveUp)][-1:]
        if id == "failed":
            net.deliver_all()
    net.step("t", Cancelled())  # while the word of the second failure is on its way
    net.deliver_all()
    assert [(end["trigger"], end["outcome"]) for end in gathered(net)] == [
        ("failed", "failed"),
        ("cancelled", "cancelled"),
    ]
    for letter in letters:
        again = read_trigger(shard.encode(), encode_again(letter), REPLAYED, net.offset(shard), 0)
        net.step(shard, Triggered(again))
        net.run(shard, result=1)
        net.deliver_all()
    assert [(end["trigger"], end["outcome"]) for end in gathered(net)][2:] == [("failed", "succeeded")]
    assert not net.told("t", "skipped")


def test_run_only_leaves_the_requests_that_wait_and_nothing_to_cancel_says_nothing() -> None:
    net = Net(t={"shards": 1})
    before = len(net.log)
    net.step("t", Cancelled())
    assert net.log[before:] == []
    fan_out(net, id="out")
    net.trigger("t", "waits")
    net.step("t", Cancelled(waiting=False))
    net.deliver_all()
    assert [end["trigger"] for end in gathered(net)] == ["out"]
    start(net, "t")
    net.deliver_all()
    net.run(shard_id("t", 0))
    net.deliver_all()
    assert gathered(net)[-1]["outcome"] == "succeeded"


def test_a_stranger_cancels_no_shard() -> None:
    net = Net(t={"shards": 1}, other=())
    (shard,) = fan_out(net)
    number = net.tasks["t"].links.fans[0].number  # type: ignore[union-attr]
    net.step(shard, Signalled(CancelShard((number,), "no"), sender="other"))
    assert net.startable(shard)
    assert net.tasks[shard].state.cancelled_to == -1


@pytest.mark.parametrize(("overlap", "grace_s"), [(Overlap.CANCEL, 5.0), (Overlap.TERMINATE, 0.0)])
def test_a_new_request_ends_those_that_are_out_where_the_overlap_policy_says_so(
    overlap: Overlap, grace_s: float
) -> None:
    net = Net(t={"shards": 2, "overlap": overlap})
    one, two = fan_out(net, id="old")
    epoch = begun(net, one)
    fan_out(net, id="new")
    assert [(end["trigger"], end["outcome"], end["cause"]) for end in gathered(net)] == [
        ("old", "cancelled", "overlap")
    ]
    assert [command for _, command in net.log if isinstance(command, Stop)] == [Stop(epoch, "cancelled", grace_s)]
    net.step(one, Ended(epoch, Outcome.SUCCEEDED))
    for shard in (one, two):
        net.run(shard)
    net.deliver_all()
    assert [(end["trigger"], end["outcome"]) for end in gathered(net)][1:] == [("new", "succeeded")]
    assert [item["cycle"] for item in net.told(two, "started")] == ["run:t/new"]


def test_a_new_request_is_skipped_while_one_is_out_where_the_overlap_policy_says_so() -> None:
    net = Net(t={"shards": 1, "overlap": Overlap.SKIP})
    fan_out(net, id="old")
    fan_out(net, id="new")
    assert [(item["trigger"], item["cause"]) for item in net.told("t", "skipped")] == [("new", "overlap")]
    net.run(shard_id("t", 0))
    net.deliver_all()
    fan_out(net, id="newest")
    assert len(net.told("t", "fanned_out")) == 2


def test_shards_are_paused_while_their_task_is() -> None:
    net = Net(t={"shards": 2, "retry": Retry(attempts=2)})
    one, two = fan_out(net)
    epoch = begun(net, one)
    net.step("t", Paused(reason="later"))
    net.deliver_all()
    net.step(one, Ended(epoch, FAILED))
    assert not net.startable(one)
    assert not net.startable(two)
    net.restore("t")
    assert not net.waiting
    net.step("t", Resumed())
    net.deliver_all()
    net.now_ms += MINUTE
    for shard in (one, two):
        net.run(shard)
    net.deliver_all()
    assert gathered(net)[0]["outcome"] == "succeeded"


@pytest.mark.parametrize("overlap", [Overlap.CANCEL, Overlap.BUFFER_ALL])
def test_a_task_that_is_deleted_stops_the_runs_of_its_shards_where_its_overlap_policy_says_so(overlap: Overlap) -> None:
    net = Net(t={"shards": 1, "overlap": overlap}, end=["t"])
    (shard,) = fan_out(net)
    begun(net, shard)
    net.step("t", Deleted())
    net.deliver_all()
    stopped = [command for of, command in net.log if isinstance(command, Stop)]
    assert bool(stopped) is (overlap is Overlap.CANCEL)
    assert len(net.told("end", "skipped")) == 1


def test_what_all_shards_of_a_request_are_given_is_bounded_and_no_definition_holds_a_payload() -> None:
    net = Net(t={"shards": 250, "payload": "x" * 60_000})
    fan_out(net, id="fits")
    assert len(net.told("t", "fanned_out")) == 1
    written = [command.definition for _, command in net.log if isinstance(command, Define)]
    assert len(written) == 250
    assert {None if definition is None else definition.payload for definition in written} == {None}
    fan_out(net, id="too large", payload="x" * 70_000)
    (end,) = gathered(net)
    assert (end["trigger"], end["outcome"], end["shards"]) == ("too large", "failed", 0)
    assert end["error"].startswith("250 shards that are given 70,0")
    assert "16,777,216 bytes" in end["error"]

"""Tasks that run after others: one request for each cycle, whatever the order in which its parents end."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import pytest

from fencepost.core.commands import DropJoin, PutJoin, Send
from fencepost.core.events import Cancelled, Paused, Resumed, Signalled, Started
from fencepost.core.links import MAX_JOINS, RESULTS_BYTES, When
from fencepost.core.schedule import Every
from fencepost.core.signals import Subscribe, Unsubscribe, UpstreamDone
from fencepost.core.task import Cause, Definition, OnInterruption, Outcome, Overlap, PythonHandler, Retry, Status
from fencepost.core.times import format_ms
from tests.core.net import Net
from tests.core.play import MINUTE, SECOND, T0, Play

FAILED, SUCCEEDED = Outcome.FAILED, Outcome.SUCCEEDED


# -- the plain course ------------------------------------------------------------------------------------------------


def test_a_diamond_runs_each_task_once_for_each_cycle_of_its_root() -> None:
    net = Net(root=(), a=["root"], b=["root"], end=["a", "b"])
    for round in (1, 2):
        net.trigger("root", f"t{round}")
        assert net.run_all() == ["root", "a", "b", "end"]
    cycles = [item["cycle"] for item in net.told("end", "started")]
    assert cycles == ["run:root/t1", "run:root/t2"]


def test_a_child_is_told_how_its_parents_ended_and_what_they_returned() -> None:
    net = Net(a=(), b=(), end=["b", "a"])
    net.trigger("a", cycle="c")
    net.trigger("b", cycle="c")
    net.run("a", result=[1, 2])
    net.run("b")
    net.deliver_all()
    work = net.run("end").work
    assert work.origin is not None
    assert work.origin.upstream == {
        "b": {"outcome": "succeeded", "epoch": 1},
        "a": {"outcome": "succeeded", "epoch": 1, "result": [1, 2]},
    }
    assert list(work.origin.upstream) == ["b", "a"]  # as `after` has them


def test_the_cycle_of_a_slot_is_its_time_so_that_two_roots_with_one_schedule_meet() -> None:
    every = {"schedule": Every(60, T0)}
    net = Net(a=every, b=every, end=["a", "b"])
    net.now_ms = T0 + MINUTE
    for root in ("a", "b"):
        net.wake(root)
        net.run(root)
    net.deliver_all()
    net.run("end")
    assert net.told("end", "started")[0]["cycle"] == f"slot:{format_ms(T0 + MINUTE)}"


def test_a_trigger_without_an_id_begins_a_cycle_named_by_the_epoch_of_its_run() -> None:
    net = Net(a=(), end=["a"])
    net.trigger("a")
    net.run_all()
    assert net.told("end", "started")[0]["cycle"] == "run:a/1"


def test_retries_of_a_parent_are_no_ends() -> None:
    net = Net(a={"retry": Retry(attempts=3, delay_s=0.0)}, end=["a"])
    net.trigger("a", "t")
    net.run("a", FAILED)
    assert not net.waiting
    net.run("a", FAILED)
    net.run("a")
    net.deliver_all()
    net.run("end")
    assert net.kinds("end") == ["started", "succeeded"]


def test_a_triggered_child_runs_at_once_whatever_its_parents_do() -> None:
    net = Net(a=(), end=["a"])
    net.trigger("end")
    net.run("end")
    assert net.kinds("a") == []


# -- every order -----------------------------------------------------------------------------------------------------

ENDS = ("succeeded", "failed", "skipped")


def expected(when: When, order: tuple[tuple[str, str], ...], parents: tuple[str, ...]) -> tuple[int, bool]:
    """(requests, whether it was skipped for a parent) by the plain words of the page."""
    latest: dict[str, str] = {}
    skipped = False
    for parent, outcome in order:
        latest[parent] = outcome
        good = [one for one in parents if latest.get(one) == "succeeded"]
        all_done = len(latest) == len(parents)
        if when is When.ANY:
            run, fail = bool(good), all_done and not good
        elif when is When.ALL_DONE:
            run, fail = all_done, False
        else:
            run, fail = len(good) == len(parents), any(latest[one] != "succeeded" for one in latest)
        if run:
            return 1, skipped
        skipped = skipped or fail
    return 0, skipped


@pytest.mark.parametrize("when", When)
def test_whatever_the_order_of_ends_a_cycle_becomes_one_request_at_most_and_that_at_the_right_end(when: When) -> None:
    """Three parents, each ending once or twice, with every outcome, in every order, over takeovers in between."""
    parents = ("a", "b", "c")
    looked_at = 0
    for outcomes in product(ENDS, repeat=4):
        ends = list(zip((*parents, "a"), outcomes, strict=True))
        for order in set(permutations(ends)):
            looked_at += 1
            net = Net(end={"after": parents, "when": when})
            net.waiting.clear()
            for place, (parent, outcome) in enumerate(order):
                before = requests(net)
                signal(net, parent, UpstreamDone("cycle", outcome, (parent,), place + 1, outcome))
                wanted = expected(when, order[: place + 1], parents)
                assert (requests(net), bool(net.told("end", "skipped"))) == (wanted[0], wanted[1] or before == 1), order
                if place == 1:
                    net.restore("end")
            if requests(net):
                assert not net.tasks["end"].links.joins  # type: ignore[union-attr]
    assert looked_at > 1000


def requests(net: Net, task: str = "end") -> int:
    return len(net.tasks[task].waiting)


def signal(net: Net, sender: str, told: UpstreamDone, target: str = "end") -> None:
    net.step(target, Signalled(told, net.offset(f"{target} control"), sender))


def test_signals_of_two_cycles_may_mix_in_every_order() -> None:
    ends = [("a", "1"), ("b", "1"), ("a", "2"), ("b", "2")]
    for order in permutations(ends):
        net = Net(end=["a", "b"])
        for parent, cycle in order:
            signal(net, parent, UpstreamDone(cycle, "succeeded", (parent,)))
        assert requests(net) == 2
        assert {work.origin.cycle for work in net.tasks["end"].waiting if work.origin is not None} == {"1", "2"}


def test_a_cycle_that_waits_for_another_parent_says_for_which_and_once() -> None:
    net = Net(end=["a", "b", "c"])
    for parent in ("b", "a"):
        signal(net, parent, UpstreamDone("1", "succeeded", (parent,)))
    assert net.told("end", "triggered") == [
        {"kind": "triggered", "cycle": "1", "from": "b", "cause": "waits for a, c"},
    ]


def test_u05_parent_edited_child_deleted_and_one_of_two_parents_retried_the_end_runs_once_after_both() -> None:
    net = Net(a=(), b=(), end=["a", "b"], other=["a"])
    net.define("a", description="edited")
    net.restore("a")
    net.delete("other")
    net.deliver_all()
    net.trigger("a", "t", cycle="c")
    net.trigger("b", "t", cycle="c")
    net.run("a", FAILED)
    net.deliver_all()
    assert net.kinds("other") == ["deleted"]
    assert net.children("a") == ("end",)
    net.run("b")
    net.deliver_all()
    assert not net.startable("end")
    assert [item["cause"] for item in net.told("end", "skipped")] == ["upstream failed"]
    net.trigger("a", "again", cycle="c")  # a replay carries its cycle
    net.run("a")
    net.deliver_all()
    net.run("end")
    net.trigger("b", "again", cycle="c")
    net.run("b")
    net.deliver_all()
    assert net.kinds("end").count("started") == 1
    assert not net.startable("end")


# -- failure ---------------------------------------------------------------------------------------------------------


def test_a_parent_that_failed_skips_its_children_and_theirs_with_the_cause() -> None:
    net = Net(a=(), b=["a"], c=["b"])
    net.trigger("a", "t")
    net.run("a", FAILED)
    net.deliver_all()
    (skipped,) = net.told("b")[1:]
    assert skipped == {"kind": "skipped", "cycle": "run:a/t", "from": "a", "cause": "upstream failed"}
    assert net.told("c", "skipped")[0]["cause"] == "upstream skipped"


def test_a_failure_that_is_not_propagated_lets_the_children_go_on() -> None:
    net = Net(a={"propagate_failure": False}, b=["a"])
    net.trigger("a", "t")
    net.run("a", FAILED)
    net.deliver_all()
    work = net.run("b").work
    assert work.origin is not None
    assert work.origin.upstream == {"a": {"outcome": "failed", "epoch": 1}}


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("cancelled", "cancelled"),
        ("timed out", "timed_out"),
        ("lost", "interrupted"),
        ("cancelled in backoff", "cancelled"),
    ],
)
def test_every_final_end_is_told(how: str, outcome: str) -> None:
    retries = Retry(attempts=2 if how == "cancelled in backoff" else 1)
    play = Play(definition_of(retry=retries, on_interruption=OnInterruption.SKIP))
    play.signal(Subscribe(), "child", 0)
    play.trigger("t")
    play.start()
    if how == "cancelled":
        play.cancel(offset=1)
        play.end()
    elif how == "timed out":
        play.end(Outcome.TIMED_OUT)
    elif how == "lost":
        play.interrupt(Cause.LOST)
    else:
        play.fail()
        assert play.status is Status.BACKOFF
        assert not play.of(Send)
        play.cancel(offset=1)
    (sent,) = play.of(Send)
    assert (sent.to_task, sent.signal.outcome, sent.signal.cycle) == ("child", outcome, "run:report/t")


def definition_of(**fields: Any) -> Definition:
    return Definition("report", PythonHandler("report"), **fields)


def test_a_slot_that_is_skipped_is_told_so_that_the_join_does_not_wait_for_it() -> None:
    every = {"schedule": Every(60, T0)}
    net = Net(a={**every, "overlap": Overlap.SKIP}, b=every, end=["a", "b"])
    net.now_ms = T0 + MINUTE
    net.wake("a")
    net.step("a", Started("lane", "nonce", 15.0))
    net.now_ms += MINUTE
    net.wake("a")  # the run is still on
    net.deliver_all()
    (skipped,) = net.told("end", "skipped")
    assert skipped["cycle"] == f"slot:{format_ms(T0 + 2 * MINUTE)}"
    assert skipped["cause"] == "upstream skipped"


@pytest.mark.parametrize("paused", [True, False])
def test_slots_that_a_parent_missed_end_what_waits_for_them_and_begin_nothing(paused: bool) -> None:
    every = {"schedule": Every(60, T0), "catch_up_s": 0.0}
    net = Net(a=every, b=every, end=["a", "b"], alone=["a"], lax={"after": ("a", "b"), "when": When.ALL_DONE})
    if paused:
        net.step("a", Paused())
    for minute in (1, 2):
        net.now_ms = T0 + minute * MINUTE
        net.wake("b")
        net.run("b")
    net.deliver_all()
    assert [item["cause"] for item in net.told("end", "triggered")] == ["waits for a", "waits for a"]
    net.now_ms += 10 * MINUTE + 5 * SECOND
    net.step("a", Resumed()) if paused else net.wake("a")
    assert net.told("a", "missed")[0]["count"] == 12
    assert {target: len(queue) for (_, target), queue in net.waiting.items()} == {"end": 1, "alone": 1, "lax": 1}
    net.deliver_all()
    slots = [f"slot:{format_ms(T0 + minute * MINUTE)}" for minute in (1, 2)]
    assert [item["cycle"] for item in net.told("end", "skipped")] == slots
    assert [item["cause"] for item in net.told("end", "skipped")] == ["upstream skipped"] * 2
    assert net.told("alone", "skipped") == []
    assert requests(net, "lax") == 2


def test_a_duplicate_tells_nothing_and_neither_does_a_trigger_that_never_ran() -> None:
    net = Net(a={"overlap": Overlap.SKIP}, end=["a"])
    net.trigger("a", "t")
    net.trigger("a", "t")
    net.trigger("a", "other")
    assert [item["cause"] for item in net.told("a", "skipped")] == ["duplicate", "overlap"]
    assert not net.waiting


# -- changes ---------------------------------------------------------------------------------------------------------


def test_a_child_that_runs_after_others_now_tells_all_of_them() -> None:
    net = Net(a=(), b=(), c=(), end=["a", "b"])
    net.define("end", after=("b", "c"))
    net.deliver_all()
    assert (net.children("a"), net.children("b"), net.children("c")) == ((), ("end",), ("end",))
    net.restore("end")
    assert not net.waiting  # the same definition, read again: nothing to ask


def test_a_change_while_nobody_owned_the_child_is_told_at_the_takeover() -> None:
    net = Net(a=(), b=(), end=["a"])
    net.restore("end", Definition("end", PythonHandler("end"), after=("b",)))
    net.deliver_all()
    assert (net.children("a"), net.children("b")) == ((), ("end",))


def test_a_cycle_that_waited_for_a_parent_that_is_none_any_more_runs() -> None:
    net = Net(a=(), b=(), end=["a", "b"])
    net.trigger("a", cycle="c")
    net.run("a")
    net.deliver_all()
    assert not net.startable("end")
    net.define("end", after=("a",))
    assert net.startable("end")


def test_cycles_of_a_child_that_runs_after_nothing_any_more_are_over_with_a_word() -> None:
    net = Net(a=(), b=(), end=["a", "b"], last=["end"])
    net.trigger("a", cycle="c")
    net.run("a")
    net.deliver_all()
    net.define("end")
    net.deliver_all()
    assert net.told("end", "skipped")[0]["cause"] == "it runs after no other task any more"
    assert net.told("last", "skipped")[0]["cause"] == "upstream skipped"
    assert (net.children("a"), net.children("b")) == ((), ())
    links = net.tasks["end"].links
    assert links is not None
    assert not links.joins


def test_a_child_that_was_deleted_is_not_told_any_more_and_what_is_under_way_is_one_record() -> None:
    net = Net(a=(), end=["a"])
    net.trigger("a")
    net.run("a")
    net.delete("end")  # before the word of the run that ended has come
    net.deliver_all()
    (skipped,) = net.told("end", "skipped")
    assert (skipped["from"], skipped["cause"]) == ("a", "deleted")
    assert net.children("a") == ()
    net.trigger("a")
    net.run("a")
    assert not net.waiting


def test_a_parent_that_tells_a_stranger_is_asked_to_stop() -> None:
    net = Net(a=(), end=())
    net.step("a", Signalled(Subscribe(), net.offset("a control"), "end"))
    net.trigger("a")
    net.run("a")
    net.deliver_all()
    assert net.told("end", "skipped")[0]["cause"] == "it does not run after this task"
    assert net.children("a") == ()


def test_a_parent_may_come_later_than_its_child() -> None:
    net = Net(end=["late"])
    assert net.children("late") == ("end",)
    net.restore("late")
    net.define("late")
    net.trigger("late")
    assert net.run_all() == ["late", "end"]


# -- circles ---------------------------------------------------------------------------------------------------------


def test_a_circle_made_by_single_records_is_skipped_with_its_path_and_does_not_go_round() -> None:
    net = Net(a=["c"], b=["a"], c=["b"])
    net.trigger("a", "t")
    assert net.run_all() == ["a", "b", "c"]
    (skipped,) = net.told("a", "skipped")
    assert skipped["from"] == "c"
    assert skipped["cause"] == "the tasks run after one another in a circle: a -> b -> c -> a"


def test_a_circle_behind_a_root_ends_too() -> None:
    net = Net(root=(), a={"after": ("root", "b"), "when": When.ANY}, b=["a"])
    net.trigger("root")
    assert net.run_all() == ["root", "a", "b"]
    assert "a -> b -> a" in net.told("a", "skipped")[0]["cause"]


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_cycles_that_wait_are_bounded_and_the_oldest_is_missed_with_its_cause() -> None:
    net = Net(a=(), b=(), end=["a", "b"], last=["end"])
    for number in range(MAX_JOINS + 2):
        signal(net, "a", UpstreamDone(f"c{number}", "succeeded", ("a",)))
    links = net.tasks["end"].links
    assert links is not None
    assert len(links.joins) == MAX_JOINS
    missed = net.told("end", "missed")
    assert [item["cycle"] for item in missed] == ["c0", "c1"]
    assert missed[0]["cause"] == f"more than {MAX_JOINS} cycles wait; not ended: b"
    net.deliver_all()
    assert [item["cycle"] for item in net.told("last", "skipped")] == ["c0", "c1"]


def test_a_cycle_that_was_skipped_makes_way_for_one_that_waits() -> None:
    net = Net(end=["a", "b"])
    for number in range(MAX_JOINS):
        signal(net, "a", UpstreamDone(f"c{number}", "failed" if number == 5 else "succeeded", ("a",)))
    signal(net, "a", UpstreamDone("new", "succeeded", ("a",)))
    links = net.tasks["end"].links
    assert links is not None
    assert "c5" not in [join.cycle for join in links.joins]
    assert not net.told("end", "missed")


def test_each_join_has_one_record_that_goes_with_it() -> None:
    net = Net(end=["a", "b"])
    records: set[int] = set()
    for number in range(MAX_JOINS + 20):
        for parent in ("a", "b") if number % 3 else ("a",):
            signal(net, parent, UpstreamDone(f"c{number}", "failed" if number % 7 == 0 else "succeeded", (parent,)))
    for _, command in net.log:
        if isinstance(command, PutJoin):
            records.add(command.join.number)
        elif isinstance(command, DropJoin):
            records.remove(command.number)
    links = net.tasks["end"].links
    assert links is not None
    assert records == {join.number for join in links.joins}


def test_the_results_of_all_parents_have_64_kib_together_and_what_is_left_out_says_so() -> None:
    net = Net(a=(), b=(), end=["a", "b"])
    for parent in ("a", "b"):
        net.trigger(parent, cycle="c")
        net.run(parent, result="x" * (RESULTS_BYTES // 2))
    net.deliver_all()
    work = net.run("end").work
    assert work.own_record
    assert work.origin is not None
    assert work.origin.upstream is not None
    results = [item.get("result") for item in work.origin.upstream.values()]
    assert [result is None for result in results] == [False, True]
    assert (
        "64" in work.origin.upstream["b"]["result_dropped"] or "65,536" in work.origin.upstream["b"]["result_dropped"]
    )


# -- beside the rest -------------------------------------------------------------------------------------------------


def test_a_child_that_is_paused_keeps_its_requests_and_runs_them_when_it_is_resumed() -> None:
    net = Net(a=(), end=["a"])
    net.step("end", Paused())
    net.trigger("a")
    net.run_all()
    assert not net.startable("end")
    net.step("end", Resumed())
    assert net.startable("end")


def test_a_request_of_a_cycle_that_waits_comes_back_as_it_was_after_a_takeover() -> None:
    net = Net(a=(), end=["a"])
    net.trigger("a", "t")
    net.run("a", result={"n": 1})
    net.deliver_all()
    before = net.tasks["end"].waiting
    net.restore("end")
    assert net.tasks["end"].waiting == before
    assert before[0].origin is not None
    net.step("end", Cancelled())
    assert net.told("end", "skipped")[0]["cycle"] == "run:a/t"


def test_nothing_is_said_where_nobody_runs_after_a_task() -> None:
    play = Play(definition_of())
    play.trigger()
    play.start()
    play.end(result=1)
    assert not play.of(Send)
    assert play.task.links is None


def test_a_signal_that_is_left_out_leaves_no_state_behind() -> None:
    play = Play()
    play.now_ms += SECOND
    before = play.task
    play.signal(UpstreamDone("c", "succeeded", ("other",)), "other", 3)
    assert play.task is before
    assert play.of(Send) == [Send("other", Unsubscribe())]


def test_nothing_is_kept_of_a_task_that_ran_after_others_and_never_did_for_a_cycle() -> None:
    """Else it could not be forgotten while its owner lives, and could once another has it."""
    net = Net(a=[], b=[], c=["a", "b"])
    net.trigger("a", "one")
    net.run("a")
    net.deliver_all()
    assert len(net.tasks["c"].links.joins) == 1  # type: ignore[union-attr]
    net.define("c", after=())
    assert net.tasks["c"].links is None

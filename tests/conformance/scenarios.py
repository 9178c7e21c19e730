"""What happens to tasks, said once; `test_conformance.py` runs each in memory and on a real Kafka.

Each function gets a bench whose workers run. It waits for events, never for time; what must not happen is shown by what
happens after it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from fencepost.codec import dumps, loads
from fencepost.core.schedule import Adjusted, Every, Once
from fencepost.core.task import OnInterruption, Overlap, Retry
from fencepost.core.times import format_ms, parse_rfc3339
from tests.conformance.bench import Bench

Scenario = Callable[[Bench], None]
SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


@scenario
def a_trigger_becomes_a_run_with_its_payload_and_headers(bench: Bench) -> None:
    bench.define("echo")
    bench.trigger({"n": 1}, headers={"h": "x"})
    end = bench.until("succeeded")
    assert end.fields["result"] == {"payload": {"n": 1}, "headers": {"h": "x"}, "epoch": 1, "attempt": 1}
    assert bench.told() == [("started", 1), ("succeeded", 1)]


@scenario
def the_definition_has_the_payload_where_the_trigger_has_none(bench: Bench) -> None:
    bench.define("echo", payload={"stock": True})
    bench.trigger()
    assert bench.until("succeeded").fields["result"]["payload"] == {"stock": True}


@scenario
def epochs_grow_by_one(bench: Bench) -> None:
    bench.define("echo")
    for _ in range(3):
        bench.trigger()
    bench.until("succeeded", 3)
    assert [event.epoch for event in bench.of("started")] == [1, 2, 3]


@scenario
def of_triggers_with_one_id_one_runs(bench: Bench) -> None:
    bench.define("echo")
    for _ in range(3):
        bench.trigger(id="order-7")
    bench.until("skipped", 2)
    assert [event.fields["cause"] for event in bench.of("skipped")] == ["duplicate", "duplicate"]
    assert [event.fields["trigger"] for event in bench.of("started")] == ["order-7"]


@scenario
def a_delayed_trigger_waits_for_its_time(bench: Bench) -> None:
    bench.define("echo")
    bench.trigger(1, delay=4, id="later")
    waits = bench.until("triggered")
    bench.trigger(2, id="now")
    bench.until("succeeded", 2)
    assert [event.fields["trigger"] for event in bench.of("started")] == ["now", "later"]
    assert bench.of("started")[1].at_ms >= waits.at_ms + 4000 - 20


@scenario
def a_time_that_has_passed_is_now(bench: Bench) -> None:
    bench.define("echo")
    bench.trigger(run_at="2020-01-01T00:00:00Z")
    bench.until("succeeded")


@scenario
def a_failure_is_tried_again_as_often_as_it_may(bench: Bench) -> None:
    bench.define("fail_until", retry=Retry(attempts=3, delay_s=0.1, jitter=0.0))
    bench.trigger(3, id="x")
    assert bench.until("succeeded").fields["result"] == 3
    assert bench.told() == [
        ("started", 1), ("failed", 1), ("started", 2), ("failed", 2), ("started", 3), ("succeeded", 3),
    ]  # fmt: skip
    assert [event.fields["attempt"] for event in bench.of("started")] == [1, 2, 3]
    assert {event.fields["trigger"] for event in bench.history() if event.kind != "defined"} == {"x"}
    first, second = bench.of("failed")
    assert "OSError: attempt 1" in first.fields["error"]
    assert parse_rfc3339(first.fields["retry_at"]) - first.at_ms == 100
    assert parse_rfc3339(second.fields["retry_at"]) - second.at_ms == 200


@scenario
def work_without_attempts_left_is_a_dead_letter(bench: Bench) -> None:
    bench.define("fail_until", retry=Retry(attempts=2, delay_s=0.05))
    bench.trigger(9, id="x")
    end = bench.until("failed", 2)
    assert end.fields["given_up"] == "failed in attempt 2 of 2"
    bench.wait("a dead letter", bench.letters_of)
    (letter,) = bench.letters_of()
    assert (letter.task, letter.epoch) == (bench.id(), 2)
    assert loads(letter.value or b"") == {"id": "x", "payload": 9, "priority": 5}


@scenario
def a_result_that_is_no_json_is_a_failure(bench: Bench) -> None:
    bench.define("no_json")
    bench.trigger()
    assert "not JSON" in bench.until("failed").fields["error"]


@scenario
def a_run_is_cancelled_with_the_words_of_who_did_it(bench: Bench) -> None:
    bench.define("busy")
    bench.trigger()
    bench.until("started")
    bench.hands.cancel(bench.id(), "enough")
    assert bench.until("cancelled").fields["cause"] == "enough"
    assert bench.told() == [("started", 1), ("cancelled", 1)]


@scenario
def a_coroutine_is_cancelled_where_it_waits(bench: Bench) -> None:
    bench.define("busy_async")
    bench.trigger()
    bench.until("started")
    bench.hands.cancel(bench.id())
    bench.until("cancelled")
    bench.trigger(0.05)
    assert bench.until("succeeded").epoch == 2


@scenario
def what_waits_is_cancelled_too_unless_told_otherwise(bench: Bench) -> None:
    bench.define("busy")
    bench.trigger()
    bench.until("started")
    bench.trigger(0.05, id="kept")
    bench.until("triggered")
    bench.hands.cancel(bench.id(), waiting=False)
    bench.until("cancelled")
    assert bench.until("started", 2).fields["trigger"] == "kept"
    bench.until("succeeded")
    bench.trigger()
    bench.until("started", 3)
    bench.trigger(id="dropped")
    bench.until("triggered", 2)
    bench.hands.cancel(bench.id(), "all of it")
    assert bench.until("skipped").fields["cause"] == "all of it"
    bench.until("cancelled", 2)


@scenario
def a_pause_holds_starts_back_until_it_is_over(bench: Bench) -> None:
    bench.define("echo")
    bench.hands.pause(bench.id(), "stocktaking")
    assert bench.until("paused").fields["cause"] == "stocktaking"
    bench.trigger(id="x")
    bench.trigger(id="y")  # it has to wait behind the first, which is told
    assert bench.until("triggered").fields["trigger"] == "y"
    bench.hands.resume(bench.id())
    bench.until("succeeded", 2)
    assert bench.told()[:4] == [("paused", None), ("triggered", None), ("resumed", None), ("started", 1)]
    assert [event.fields["trigger"] for event in bench.of("started")] == ["x", "y"]


@scenario
def overlap_skip_leaves_out_what_comes_meanwhile(bench: Bench) -> None:
    bench.define("busy", overlap=Overlap.SKIP)
    bench.trigger(id="a")
    bench.until("started")
    bench.trigger(id="b")
    skipped = bench.until("skipped")
    assert (skipped.fields["trigger"], skipped.fields["cause"]) == ("b", "overlap")
    bench.hands.cancel(bench.id())
    bench.until("cancelled")
    assert len(bench.of("started")) == 1


@scenario
def overlap_buffer_one_keeps_one(bench: Bench) -> None:
    bench.define("busy", overlap=Overlap.BUFFER_ONE)
    bench.trigger(id="a")
    for name in ("b", "c"):
        bench.trigger(0.01, id=name)
    assert bench.until("skipped").fields["cause"] == "buffer full"
    bench.hands.cancel(bench.id(), waiting=False)
    bench.until("succeeded")
    assert [event.fields["trigger"] for event in bench.of("started")] == ["a", "b"]


@scenario
def overlap_buffer_all_runs_all_in_the_order_of_their_priority(bench: Bench) -> None:
    bench.define("busy")
    bench.trigger(id="first")
    bench.until("started")
    for name, priority in (("low", 9), ("middle", 5), ("high", 0), ("middle-2", 5)):
        bench.trigger(0.01, id=name, priority=priority)
    bench.until("triggered", 4)
    bench.hands.cancel(bench.id(), waiting=False)
    bench.until("succeeded", 4)
    order = [event.fields["trigger"] for event in bench.of("started")]
    assert order == ["first", "high", "middle", "middle-2", "low"]


@scenario
def overlap_cancel_makes_room_for_the_newest(bench: Bench) -> None:
    bench.define("busy", overlap=Overlap.CANCEL)
    bench.trigger(id="old")
    bench.until("started")
    bench.trigger(0.05, id="new")
    bench.until("succeeded")
    assert bench.of("cancelled")[0].fields["cause"] == "overlap"
    assert [(event.epoch, event.fields["trigger"]) for event in bench.of("started")] == [(1, "old"), (2, "new")]


@scenario
def overlap_terminate_kills_what_heeds_nothing(bench: Bench) -> None:
    bench.define("stubborn", overlap=Overlap.TERMINATE, grace_s=60.0)
    bench.trigger(id="old")
    bench.until("started")
    bench.trigger(id="new")
    bench.until("started", 2)
    assert bench.told()[:4] == [("started", 1), ("triggered", None), ("cancelled", 1), ("started", 2)]
    bench.define("stubborn", overlap=Overlap.TERMINATE, grace_s=0.1)
    bench.hands.cancel(bench.id())
    bench.until("cancelled", 2)


@scenario
def overlap_batch_gives_one_run_what_waits(bench: Bench) -> None:
    bench.define("batch", overlap=Overlap.BATCH, batch_limit=2)
    bench.hands.pause(bench.id())
    bench.until("paused")
    for page in (1, 2, 3):
        bench.trigger({"page": page})
    bench.until("triggered", 2)  # the first one waits behind nothing
    bench.hands.resume(bench.id())
    bench.until("succeeded", 2)
    assert [event.fields["result"] for event in bench.of("succeeded")] == [[{"page": 1}, {"page": 2}], [{"page": 3}]]


@scenario
def a_run_that_falls_silent_is_timed_out(bench: Bench) -> None:
    bench.define("silent", heartbeat_s=1.0, grace_s=0.5)
    bench.trigger()
    assert bench.until("timed_out").fields["cause"] == "heartbeat"


@scenario
def a_run_over_its_time_limit_is_timed_out(bench: Bench) -> None:
    bench.define("busy", timeout_s=0.3)
    bench.define("stubborn", "hard", timeout_s=0.3, grace_s=0.2)
    bench.define("busy_async", "async", timeout_s=0.3)
    for task in ("t", "hard", "async"):
        bench.trigger(task=task)
    for task in ("t", "hard", "async"):
        end = bench.until("timed_out", task=task)
        assert end.at_ms - bench.of("started", task)[0].at_ms >= 290


@scenario
def slots_come_at_their_times_each_once(bench: Bench) -> None:
    bench.define("echo", schedule=Every(0.5), overlap=Overlap.BUFFER_ALL)
    bench.until("succeeded", 4)
    starts = bench.of("started")
    slots = [parse_rfc3339(event.fields["slot"]) for event in starts]
    steps = [later - earlier for earlier, later in pairwise(slots)]
    if "missed" not in bench.kinds():  # a worker that is late by more than a slot runs the newest, and says so
        assert steps == [500] * len(steps)
    assert all(step > 0 and step % 500 == 0 for step in steps)
    assert all(event.at_ms >= slot for event, slot in zip(starts, slots, strict=True))
    bench.hands.delete(bench.id())
    bench.until("deleted")


@scenario
def one_time_is_one_slot(bench: Bench) -> None:
    at = bench.soon(4000)
    bench.define("echo", schedule=Once(parse_rfc3339(at)))
    bench.until("succeeded")
    bench.trigger(id="after")
    bench.until("succeeded", 2)
    assert [event.fields.get("slot") for event in bench.of("started")] == [at, None]


@scenario
def a_paused_schedule_misses_its_slots_and_says_so(bench: Bench) -> None:
    bench.define("echo", schedule=Every(0.3), catch_up_s=0.0)
    bench.until("succeeded")
    bench.hands.pause(bench.id())
    paused = bench.until("paused")
    bench.wait("some slots", lambda: bench.now_ms() > paused.at_ms + 1000)
    bench.hands.resume(bench.id())
    missed = bench.until("missed")
    assert missed.fields["cause"] == "paused"
    assert missed.fields["count"] >= 3
    bench.until("succeeded", len(bench.of("succeeded")) + 1)
    bench.hands.delete(bench.id())
    bench.until("deleted")


@scenario
def the_slots_of_a_pause_run_one_after_the_other_if_it_says_so(bench: Bench) -> None:
    begin_ms = bench.now_ms() // 1000 * 1000 + 2000
    schedule = Adjusted(Every(1, begin_ms), begin_ms, begin_ms + 4000)
    bench.define("echo", schedule=schedule)
    bench.hands.pause(bench.id(), on_resume="all")
    bench.until("paused")
    bench.trigger(run_at=format_ms(begin_ms + 4000))
    bench.wait("the slots are over", lambda: bench.now_ms() > begin_ms + 4000)
    bench.hands.resume(bench.id())
    bench.until("succeeded", 5)
    slots = [parse_rfc3339(event.fields["slot"]) for event in bench.of("started") if "slot" in event.fields]
    assert slots == list(range(begin_ms, begin_ms + 4000, 1000))
    assert bench.of("missed") == []


@scenario
def a_backfill_runs_the_slots_of_its_range_in_order_but_for_those_that_ran(bench: Bench) -> None:
    bench.define("echo", schedule=Every(3600))
    bench.hands.backfill(bench.id(), "2025-01-01T02:00:00Z", "2025-01-01T02:30:00Z")
    bench.until("succeeded")
    bench.hands.backfill(bench.id(), "2025-01-01T00:00:00Z", "2025-01-01T03:00:00Z", id="again")
    bench.until("succeeded", 4)
    asked = [(event.fields["slot"][11:13], event.fields["asked_by"]) for event in bench.of("succeeded")[1:]]
    assert asked == [(hour, "backfill again") for hour in ("00", "01", "03")]


@scenario
def a_backfill_side_by_side_runs_each_slot_once_on_ids_of_its_own(bench: Bench) -> None:
    bench.define("echo", schedule=Every(3600))
    hours = "2025-01-01T00:00:00Z", "2025-01-01T04:00:00Z"
    bench.hands.backfill(bench.id(), *hours, id="wide", max_runs=2)
    end = bench.until("backfilled")
    assert (end.fields["asked_by"], end.fields["count"], end.fields["succeeded"]) == ("backfill wide", 5, 5)
    gathered = bench.of("gathered")
    assert sorted(event.fields["slot"][11:13] for event in gathered) == ["00", "01", "02", "03", "04"]
    assert {event.fields["outcome"] for event in gathered} == {"succeeded"}
    assert {event.fields["to"] for event in bench.of("fanned_out")} == {
        f"{bench.id()}/backfill/{place}" for place in "01"
    }
    bench.hands.backfill(bench.id(), *hours, id="again", max_runs=2)
    assert bench.until("skipped").fields["cause"] == "no slot to run in the range"


@scenario
def a_run_is_repeated_with_what_it_was_given(bench: Bench) -> None:
    bench.define("echo")
    bench.trigger({"n": 7}, headers={"h": "x"})
    bench.until("succeeded")
    bench.hands.rerun(bench.id())
    again = bench.until("succeeded", 2)
    assert again.fields["result"] == {"payload": {"n": 7}, "headers": {"h": "x"}, "epoch": 2, "attempt": 1}
    assert again.fields["asked_by"] == "rerun of epoch 1"


@scenario
def a_deleted_task_takes_nothing_more_and_keeps_its_epochs(bench: Bench) -> None:
    bench.define("echo")
    bench.trigger()
    bench.until("succeeded")
    bench.hands.delete(bench.id())
    bench.until("deleted")
    bench.trigger(id="late")
    bench.wait("it is refused", lambda: bench.letters_of() or bench.of("skipped"))
    bench.define("echo")
    bench.trigger()
    assert bench.until("succeeded", 2).epoch == 2


@scenario
def a_changed_definition_counts_for_the_next_run(bench: Bench) -> None:
    bench.define("echo", payload=1)
    bench.trigger()
    bench.until("succeeded")
    bench.define("echo", payload=2)
    bench.trigger()
    bench.until("succeeded", 2)
    assert [event.fields["result"]["payload"] for event in bench.of("succeeded")] == [1, 2]
    assert [event.fields["changed"] for event in bench.of("defined")] == [False, True]


@scenario
def a_bad_trigger_is_kept_and_stops_nothing(bench: Bench) -> None:
    bench.define("echo")
    bench.produce("triggers", bench.id().encode(), b'{"priority": 12}')
    bench.produce("triggers", bench.id().encode(), b"{no json")
    bench.produce("triggers", bench.id().encode(), dumps({"id": "good"}))
    assert bench.until("succeeded").fields["trigger"] == "good"
    bench.wait("two dead letters", lambda: len(bench.letters_of()) == 2)
    first, second = bench.letters_of()
    assert (first.field, first.value) == ("priority", b'{"priority": 12}')
    assert second.reason.startswith("not JSON")


@scenario
def an_unknown_task_is_a_dead_letter(bench: Bench) -> None:
    bench.trigger(task="nobody")
    bench.wait("a dead letter", lambda: bench.letters_of("nobody"))
    assert bench.letters_of("nobody")[0].reason == "no task of this ID is defined"


@scenario
def a_run_goes_on_from_its_checkpoint(bench: Bench) -> None:
    bench.define("by_rows", on_interruption=OnInterruption.RESUME, retry=Retry(attempts=2, delay_s=0.05))
    bench.trigger()
    assert bench.until("succeeded").fields["result"] == {"began_at": 2}


@scenario
def what_a_stop_interrupts_is_tried_again_and_uses_up_no_attempt(bench: Bench) -> None:
    bench.define("busy_at_first")
    bench.define("echo", "waits")
    bench.trigger(id="x")
    bench.until("started")
    bench.trigger(delay=2, task="waits", id="later")
    bench.until("triggered", task="waits")
    bench.restart()
    bench.until("succeeded")
    assert bench.told() == [("started", 1), ("interrupted", 1), ("started", 2), ("succeeded", 2)]
    assert [event.fields["attempt"] for event in bench.of("started")] == [1, 1]
    assert bench.of("interrupted")[0].fields["cause"] == "stopped"
    assert bench.until("succeeded", task="waits").fields["trigger"] == "later"


@scenario
def what_a_crash_takes_down_is_lost_and_tried_again_once_its_lease_is_over(bench: Bench) -> None:
    bench.define("busy_at_first")
    bench.define("echo", "tick", schedule=Every(0.5))
    bench.until("succeeded", task="tick")
    bench.trigger(id="x")
    bench.until("started")
    bench.restart(crash=True)
    bench.until("succeeded")
    assert bench.told() == [("started", 1), ("interrupted", 1), ("started", 2), ("succeeded", 2)]
    assert bench.of("interrupted")[0].fields["cause"] == "lost"
    assert bench.until("missed", task="tick").fields["cause"] == "nobody ran"
    slots = [event.fields["slot"] for event in bench.of("started", "tick")]
    assert len(slots) == len(set(slots))
    bench.hands.delete(bench.id("tick"))
    bench.until("deleted", task="tick")


@scenario
def a_task_runs_after_others_once_for_each_of_their_cycles(bench: Bench) -> None:
    for parent in ("left", "right"):
        bench.define("echo", parent)
    bench.define("upstream", "child", after=(bench.id("left"), bench.id("right")))
    bench.trigger({"n": 1}, "left", cycle="monday")
    bench.until("succeeded", task="left")
    bench.trigger({"n": 2}, "right", cycle="monday")
    told = bench.until("succeeded", task="child").fields["result"]
    assert told["cycle"] == "monday"
    assert {parent: end["result"]["payload"]["n"] for parent, end in told["upstream"].items()} == {
        bench.id("left"): 1,
        bench.id("right"): 2,
    }
    assert len(bench.of("started", "child")) == 1


@scenario
def a_failure_is_passed_on_to_what_runs_after(bench: Bench) -> None:
    bench.define("fail_until", "parent")
    bench.define("echo", "child", after=(bench.id("parent"),))
    bench.trigger(9, "parent")
    bench.until("failed", task="parent")
    skipped = bench.until("skipped", task="child")
    assert skipped.fields["cause"] == "upstream failed"
    bench.trigger(1, "parent")
    bench.until("succeeded", task="child")
    assert [event.epoch for event in bench.of("started", "child")] == [1]


@scenario
def a_request_runs_by_shards_and_what_runs_after_gets_all_results(bench: Bench) -> None:
    bench.define("part", "parts", shards=3)
    bench.define("upstream", "sum", after=(bench.id("parts"),))
    bench.trigger(10, "parts")
    gathered = bench.until("gathered", task="parts")
    assert gathered.fields["outcome"] == "succeeded"
    results = bench.until("succeeded", task="sum").fields["result"]["upstream"][bench.id("parts")]["result"]
    assert results == [{"shard": number, "of": 3, "payload": 10} for number in range(3)]
    for number in range(3):
        assert [event.epoch for event in bench.of("started", f"parts/shard/{number}")] == [1]


@scenario
def a_failed_shard_fails_the_request(bench: Bench) -> None:
    bench.define("fail_until", "parts", shards=2)
    bench.trigger(9, "parts")
    assert bench.until("gathered", task="parts").fields["outcome"] == "failed"


@scenario
def a_broadcast_runs_on_the_worker_and_what_runs_after_gets_its_name(bench: Bench) -> None:
    bench.define("on_worker", "flush", broadcast=True, payload="cache")
    bench.define("upstream", "flushed", after=(bench.id("flush"),))
    bench.trigger(task="flush", id="one")
    gathered = bench.until("gathered", task="flush")
    ((asked,),) = [event.fields["workers"] for event in bench.of("fanned_out", "flush")]
    (end,) = gathered.fields["result"]
    assert end == {**asked, "outcome": "succeeded", "result": [asked["worker"], 0, 1, "cache"]}
    told = bench.until("succeeded", task="flushed").fields["result"]["upstream"][bench.id("flush")]
    assert told == {"outcome": "succeeded", "result": [end]}
    bench.trigger(task="flush", id="two")
    bench.until("gathered", 2, "flush")
    part = asked["task"].removeprefix(f"{bench.name}/")
    assert [event.fields["worker"] for event in bench.of("started", part)] == [asked["worker"]] * 2


@scenario
def a_broadcast_that_is_out_lets_the_next_one_wait(bench: Bench) -> None:
    bench.define("busy", "flush", broadcast=True)
    bench.trigger(0.4, "flush", id="one")
    bench.until("fanned_out", task="flush")
    bench.trigger(0.1, "flush", id="two")
    bench.until("gathered", 2, "flush")
    order = [(event.kind, event.fields["trigger"]) for event in bench.history("flush") if event.kind != "defined"]
    assert order == [
        ("fanned_out", "one"), ("triggered", "two"), ("gathered", "one"), ("fanned_out", "two"), ("gathered", "two"),
    ]  # fmt: skip

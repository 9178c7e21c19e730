"""Stops, time limits and their neighbours: asked first, killed after the grace, and never a success."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from fencepost.core.task import Cause, Isolation, Outcome
from fencepost.worker.orders import RunEnded, RunOrder
from tests.worker.bench import Bench, Witness, order

OWN = Isolation.OWN
SHARED = Isolation.SHARED
NEVER_S = 100.0  # a grace no test waits for

# Traps SIGTERM and exits with 0 (R09). The first line is out before anybody can ask it to stop.
TRAPS_TERM = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"
IGNORES_TERM = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


def sh(task: str, script: str, **changes: object) -> RunOrder:
    return order(task, ("/bin/sh", "-c", script), isolation=OWN, **changes)


REASONS = [
    ("cancelled", None, Outcome.CANCELLED, None),
    ("timed_out", None, Outcome.TIMED_OUT, None),
    ("interrupted", Cause.STOPPED, Outcome.INTERRUPTED, Cause.STOPPED),
    ("interrupted", Cause.HANDOVER, Outcome.INTERRUPTED, Cause.HANDOVER),
    ("interrupted", Cause.FENCED, Outcome.INTERRUPTED, Cause.FENCED),
]


@pytest.mark.parametrize(("reason", "cause", "outcome", "told"), REASONS)
def test_a_command_that_traps_the_stop_and_exits_with_zero_is_no_success(
    bench: Bench, reason: str, cause: Cause | None, outcome: Outcome, told: Cause | None
) -> None:
    """Case R09."""
    bench.start(sh("a", TRAPS_TERM))
    bench.runners.stop("a", 1, reason, cause, NEVER_S)
    assert bench.ended("a") == RunEnded("a", 1, outcome, told, exit_code=0)


@pytest.mark.parametrize(
    "run",
    [
        order("a", "until_cancelled"),
        order("a", "until_cancelled", isolation=OWN),
        order("a", "async_waits"),
        order("a", "async_waits", isolation=OWN),
        order("a", "async_swallows"),
        order("a", "async_swallows", isolation=OWN),
    ],
    ids=lambda run: f"{run.handler.function}-{run.isolation}",
)
def test_a_function_that_heeds_the_stop_ends_as_what_it_was_stopped_for(bench: Bench, run: RunOrder) -> None:
    bench.start(run)
    bench.runners.stop("a", 1, "cancelled", None, NEVER_S)
    end = bench.ended("a")
    assert (end.outcome, end.cause, end.result) == (Outcome.CANCELLED, None, None)


@pytest.mark.parametrize(
    "run",
    [
        order("a", "hangs"),
        order("a", "hangs", isolation=OWN),
        order("a", "async_stubborn"),
        order("a", "async_stubborn", isolation=OWN),
        sh("a", IGNORES_TERM),
    ],
    ids=lambda run: f"{type(run.handler).__name__}-{run.isolation}",
)
def test_a_run_that_does_not_heed_the_stop_is_killed_after_its_grace(bench: Bench, run: RunOrder) -> None:
    bench.start(run)
    bench.runners.stop("a", 1, "interrupted", Cause.STOPPED, 0.1)
    end = bench.ended("a")
    assert (end.outcome, end.cause) == (Outcome.INTERRUPTED, Cause.STOPPED)
    assert bench.run(order("b", "echo", payload=1))[0] == RunEnded("b", 1, Outcome.SUCCEEDED, result=1)


def test_the_kill_takes_what_a_command_left_in_other_sessions(bench: Bench, witness: Witness) -> None:
    script = f"exec 7>{witness.path}; setsid sh -c 'setsid sleep 1000 &' & trap '' TERM; echo ready; sleep 1000"
    bench.start(sh("a", script))
    assert witness.held()
    bench.runners.stop("a", 1, "cancelled", None, 0.1)
    assert bench.ended("a").outcome is Outcome.CANCELLED
    assert not witness.held()  # at the time of the report, not later


def test_what_a_run_of_its_own_leaves_behind_is_gone_when_its_end_is_reported(bench: Bench, witness: Witness) -> None:
    (end,) = bench.run(order("a", "daemonises", isolation=OWN, payload={"witness": witness.path, "ends": True}))
    assert isinstance(end, RunEnded)
    assert end.outcome is Outcome.SUCCEEDED
    assert not witness.held()


def test_a_stop_before_the_run_began_starts_nothing(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(slots=1, shared_processes=1)
    bench.start(order("a", "hangs"))
    bench.runners.launch([order("b", "prints")])  # waits: the only process is taken
    bench.runners.stop("b", 1, "cancelled", None, 0.0)
    assert bench.ended("b") == RunEnded("b", 1, Outcome.CANCELLED)
    assert bench.output("b") == ""
    assert bench.runners.holds("a", 1)


def test_a_second_stop_may_shorten_the_grace_but_not_change_the_reason(bench: Bench) -> None:
    bench.start(order("a", "hangs"))
    bench.runners.stop("a", 1, "cancelled", None, NEVER_S)
    bench.runners.stop("a", 1, "interrupted", Cause.STOPPED, 0.0)
    assert bench.ended("a").outcome is Outcome.CANCELLED


def test_a_stop_of_a_run_that_is_not_here_does_nothing(bench: Bench) -> None:
    bench.runners.stop("a", 1, "cancelled", None, 0.0)
    assert bench.runners.in_flight() == 0


def test_a_stop_for_an_unknown_reason_names_the_allowed_ones(bench: Bench) -> None:
    with pytest.raises(ValueError, match="'bored' is not one of cancelled, timed_out, interrupted"):
        bench.runners.stop("a", 1, "bored", None, 0.0)


# --- time limits


@pytest.mark.parametrize(
    "run",
    [
        order("a", "until_cancelled", timeout_s=0.2, grace_s=NEVER_S),
        order("a", "until_cancelled", timeout_s=0.2, grace_s=NEVER_S, isolation=OWN),
        order("a", "async_waits", timeout_s=0.2, grace_s=NEVER_S),
        order("a", "async_swallows", timeout_s=0.2, grace_s=NEVER_S, isolation=OWN),
        sh("a", TRAPS_TERM, timeout_s=0.5, grace_s=NEVER_S),
    ],
    ids=lambda run: f"{type(run.handler).__name__}-{run.isolation}",
)
def test_a_run_over_its_time_limit_is_asked_to_end_and_timed_out_whatever_it_says(bench: Bench, run: RunOrder) -> None:
    bench.runners.launch([run])
    end = bench.ended("a")
    assert (end.outcome, end.cause, end.result) == (Outcome.TIMED_OUT, None, None)
    assert "ready" in bench.output("a")


@pytest.mark.parametrize(
    "run",
    [
        order("a", "hangs", timeout_s=0.2),
        order("a", "hangs", timeout_s=0.2, isolation=OWN),
        order("a", "async_stubborn", timeout_s=0.2),
        order("a", "async_stubborn", timeout_s=0.2, isolation=OWN),
        sh("a", IGNORES_TERM, timeout_s=0.5),
    ],
    ids=lambda run: f"{type(run.handler).__name__}-{run.isolation}",
)
def test_a_run_over_its_time_limit_that_does_not_end_is_killed(bench: Bench, run: RunOrder) -> None:
    bench.runners.launch([run])
    assert bench.ended("a").outcome is Outcome.TIMED_OUT
    assert bench.run(order("b", "echo", payload=1))[0] == RunEnded("b", 1, Outcome.SUCCEEDED, result=1)


def test_the_time_limit_of_one_run_is_not_that_of_the_next_in_its_process(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(slots=1, shared_processes=1)
    bench.run(order("a", "noop", timeout_s=0.2))
    bench.start(order("b", "until_cancelled"))
    bench.run_for(1.0)
    assert bench.runners.holds("b", 1)


def test_time_limits_are_kept_by_the_guard_while_the_worker_is_busy_elsewhere(
    bench_of: Callable[..., Bench], witness: Witness
) -> None:
    bench = bench_of()
    bench.start(order("a", "hangs_holding", payload=witness.path, timeout_s=0.5))
    assert witness.all_gone()  # nobody called wait() or take() meanwhile
    assert bench.ended("a").outcome is Outcome.TIMED_OUT


# --- neighbours


def test_neighbours_of_a_killed_coroutine_are_interrupted_and_not_blamed(bench: Bench) -> None:
    bench.start(order("a", "async_stubborn"), order("b", "async_waits"))
    bench.runners.stop("a", 1, "cancelled", None, 0.1)
    assert bench.ended("a") == RunEnded("a", 1, Outcome.CANCELLED)
    assert bench.ended("b") == RunEnded("b", 1, Outcome.INTERRUPTED, Cause.NEIGHBOUR)
    assert bench.run(order("c", "async_echo", payload=1))[0] == RunEnded("c", 1, Outcome.SUCCEEDED, result=1)


def test_a_coroutine_that_heeds_its_stop_does_not_disturb_its_neighbours(bench: Bench) -> None:
    bench.start(order("a", "async_waits"), order("b", "async_waits"))
    bench.runners.stop("a", 1, "cancelled", None, 0.3)
    assert bench.ended("a").outcome is Outcome.CANCELLED
    bench.run_for(1.0)
    assert bench.runners.holds("b", 1)


def test_runs_queued_behind_a_killed_function_are_interrupted_as_neighbours(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(slots=1, shared_processes=1)
    bench.run(*[order(f"warm{number}", "hangs_if_told") for number in range(20)])  # known to be quick
    bench.runners.launch([order("a", "hangs_if_told", payload=True), order("b", "hangs_if_told")])
    bench.until(lambda: "ready" in bench.output("a"))
    bench.runners.stop("a", 1, "cancelled", None, 0.0)
    assert bench.ended("a") == RunEnded("a", 1, Outcome.CANCELLED)
    assert bench.ended("b") == RunEnded("b", 1, Outcome.INTERRUPTED, Cause.NEIGHBOUR)


def test_closing_stops_all_runs_and_reports_them(bench_of: Callable[..., Bench], witness: Witness) -> None:
    bench = bench_of(commands=("/bin/sh",))
    bench.start(
        order("a", "until_cancelled"),
        order("b", "async_waits"),
        sh("c", TRAPS_TERM),
        order("d", "daemonises", isolation=OWN, payload={"witness": witness.path}),
    )
    bench.runners.close(0.5)
    bench.reports += bench.runners.take()
    for task in "abcd":
        end = bench.ended(task)
        assert (end.outcome, end.cause) == (Outcome.INTERRUPTED, Cause.STOPPED)
    assert not witness.held()


def test_closing_leaves_no_descriptor_open(bench_of: Callable[..., Bench]) -> None:
    before = set(os.listdir("/proc/self/fd"))
    bench = bench_of()
    bench.run(order("a", "echo"), order("b", "async_echo"), order("c", "echo", isolation=OWN))
    bench.runners.close(0.0)
    assert set(os.listdir("/proc/self/fd")) == before

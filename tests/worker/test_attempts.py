"""What a run's end says of its error, and runs that have to say something now and then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.core.task import Isolation, Outcome
from fencepost.worker.orders import RunOutput
from tests.worker.bench import Bench, order

SHARED, OWN = Isolation.SHARED, Isolation.OWN


@pytest.mark.parametrize("isolation", [SHARED, OWN])
@pytest.mark.parametrize("target", ["loses_its_connection", "async_loses_its_connection"])
def test_a_failure_names_its_class_and_the_classes_it_is_made_of(
    bench: Bench, target: str, isolation: Isolation
) -> None:
    bench.run(order("a", target, isolation=isolation))
    assert bench.ended("a").names == ("ConnectionResetError", "ConnectionError", "OSError", "Exception")


def test_a_run_after_a_failed_one_does_not_inherit_its_error(bench: Bench) -> None:
    bench.run(order("a", "loses_its_connection"), order("b", "exits"))
    assert bench.ended("b").names == ("SystemExit",)


@pytest.mark.parametrize("isolation", [SHARED, OWN])
@pytest.mark.parametrize("target", ["silent", "async_silent"])
def test_a_silent_run_is_timed_out_for_its_silence(bench: Bench, target: str, isolation: Isolation) -> None:
    bench.run(order("a", target, heartbeat_s=0.5, isolation=isolation))
    end = bench.ended("a")
    assert (end.outcome, end.limit) == (Outcome.TIMED_OUT, "heartbeat")
    assert end.error is not None  # a coroutine tells where it hung
    assert target == "async_silent" or end.error == "no heartbeat for 0.5 s"


@pytest.mark.parametrize("target", ["beats", "async_beats", "prints_now_and_then"])
def test_a_run_that_says_something_lives_on(bench: Bench, target: str) -> None:
    """For several heartbeats; a slow machine makes the pauses longer, so the limit is far above them."""
    bench.run(order("a", target, payload={"pauses": 12, "pause_s": 0.25}, heartbeat_s=2.0))
    assert bench.ended("a").outcome is Outcome.SUCCEEDED


def test_a_command_lives_on_while_it_writes_and_ends_when_it_does_not(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(commands=("/bin/sh",))
    script = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.25; done; sleep 60"
    bench.run(order("a", ("/bin/sh", "-c", script), heartbeat_s=1.5, isolation=OWN))
    end = bench.ended("a")
    assert (end.outcome, end.limit) == (Outcome.TIMED_OUT, "heartbeat")
    assert "8" in "".join(report.text for report in bench.reports if isinstance(report, RunOutput))


def test_the_clock_of_a_run_that_stands_in_line_begins_with_its_start(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(slots=1, shared_processes=1)
    bench.runners.launch([order("a", "sleeps", payload=1.5), order("b", "noop", heartbeat_s=0.5)])
    assert bench.ended("b").outcome is Outcome.SUCCEEDED

"""A run lives as long as the lease it was started under, and each lease moves only by renewals that name it."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.core.task import Cause, Isolation, Outcome
from fencepost.worker.guard import linux
from fencepost.worker.guard.deadlines import DIE_EARLY_S, END_EARLY_S
from fencepost.worker.orders import RunEnded, RunOrder
from tests.worker.bench import Bench, ended_processes, family, order

OWN = Isolation.OWN
SHARED = Isolation.SHARED
FENCED = RunEnded("a", 1, Outcome.INTERRUPTED, Cause.FENCED)
TTL_S = 3.0  # with a margin of 0.5 s: a life of 2.5 s


def last_line(path: Path) -> float:
    return float(path.read_text("ascii").split()[-1])


@pytest.mark.parametrize("isolation", [SHARED, OWN])
def test_a_run_is_ended_before_the_deadline_of_its_lease(bench: Bench, tmp_path: Path, isolation: Isolation) -> None:
    times = tmp_path / "times"
    began = linux.boot_s()
    bench.runners.lease(0, "n1", began)
    bench.start(order("a", "writes_times", payload=str(times), lease_ttl_s=TTL_S, isolation=isolation))
    assert bench.ended("a") == FENCED
    assert last_line(times) < began + TTL_S - 0.5


@pytest.mark.parametrize(
    "run",
    [
        order("a", "until_cancelled", lease_ttl_s=TTL_S),
        order("a", "until_cancelled", lease_ttl_s=TTL_S, isolation=OWN),
        order("a", "async_waits", lease_ttl_s=TTL_S),
        order("a", "async_swallows", lease_ttl_s=TTL_S, isolation=OWN),
        order(
            "a",
            ("/bin/sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done"),
            lease_ttl_s=TTL_S,
            isolation=OWN,
        ),
    ],
    ids=lambda run: f"{type(run.handler).__name__}-{run.isolation}",
)
def test_a_run_is_asked_to_stop_before_its_lease_ends_and_that_is_no_success(bench: Bench, run: RunOrder) -> None:
    """Case R09: stopped by the fence, whatever it returns or exits with."""
    bench.runners.lease(0, "n1", linux.boot_s())
    bench.start(run)
    end = bench.ended("a")
    assert (end.outcome, end.cause, end.result) == (Outcome.INTERRUPTED, Cause.FENCED, None)


def test_a_renewal_lets_only_the_runs_it_names_live(bench: Bench) -> None:
    for partition, nonce in ((1, "n1"), (1, "n2"), (2, "n1")):
        bench.runners.lease(partition, nonce, linux.boot_s())
    bench.start(
        order("kept", "hangs", partition=1, nonce="n1", lease_ttl_s=TTL_S),
        order("other nonce", "hangs", partition=1, nonce="n2", lease_ttl_s=TTL_S),
        order("other partition", "hangs", partition=2, nonce="n1", lease_ttl_s=TTL_S, isolation=OWN),
    )

    def both_ended() -> bool:
        bench.runners.lease(1, "n1", linux.boot_s())
        return bool(bench.ends("other nonce") and bench.ends("other partition"))

    bench.until(both_ended)
    for task in ("other nonce", "other partition"):
        assert bench.ended(task) == RunEnded(task, 1, Outcome.INTERRUPTED, Cause.FENCED)
    assert bench.runners.holds("kept", 1)


def test_a_renewal_that_began_earlier_changes_nothing(bench: Bench) -> None:
    began = linux.boot_s()
    bench.runners.lease(1, "n1", began)
    bench.runners.lease(1, "n1", began - 100)
    bench.start(order("a", "until_cancelled", partition=1, lease_ttl_s=60.0))


def test_coroutines_of_another_lease_are_neighbours_of_a_fenced_one_that_does_not_end(bench: Bench) -> None:
    bench.runners.lease(1, "n1", linux.boot_s())
    bench.start(
        order("a", "async_stubborn", partition=1, lease_ttl_s=TTL_S),
        order("b", "async_waits", partition=0, lease_ttl_s=60.0),
    )
    assert bench.ended("a") == FENCED
    assert bench.ended("b") == RunEnded("b", 1, Outcome.INTERRUPTED, Cause.NEIGHBOUR)


@pytest.mark.parametrize("new_is_known", [True, False])
@pytest.mark.parametrize("isolation", [SHARED, OWN])
def test_a_rebound_run_lives_by_the_new_nonce(bench: Bench, isolation: Isolation, new_is_known: bool) -> None:
    began = linux.boot_s()
    bench.runners.lease(1, "old", began)
    bench.start(order("a", "hangs", partition=1, nonce="old", lease_ttl_s=TTL_S, isolation=isolation))
    if new_is_known:
        bench.runners.lease(1, "new", linux.boot_s())
    bench.runners.rebind(1, "old", "new")

    def old_one_is_over() -> bool:
        bench.runners.lease(1, "new", linux.boot_s())
        return linux.boot_s() > began + TTL_S

    bench.until(old_one_is_over)
    assert bench.runners.holds("a", 1)
    # Renewals of the old name no longer count.
    bench.until(lambda: bench.runners.lease(1, "old", linux.boot_s()) or bench.ends("a"))
    assert bench.ended("a") == FENCED


def test_runs_under_both_nonces_in_one_process_are_joined_by_a_rebind(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of()
    bench.runners.lease(1, "old", linux.boot_s())
    bench.runners.lease(1, "new", linux.boot_s())
    bench.start(
        order("a", "async_waits", partition=1, nonce="old"),
        order("b", "async_waits", partition=1, nonce="new"),
    )
    bench.runners.rebind(1, "old", "new")
    for task in "ab":
        bench.runners.stop(task, 1, "cancelled", None, 20.0)
        assert bench.ended(task).outcome is Outcome.CANCELLED
    bench.run(order("c", "async_echo", partition=1, nonce="new"))


def test_an_idle_process_is_let_go_by_a_lease_that_ends(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(slots=1, shared_processes=1)
    bench.runners.lease(1, "n1", linux.boot_s())
    (first,) = bench.run(order("a", "describe", partition=1, lease_ttl_s=TTL_S + 1))
    bench.run_for(TTL_S + 1)
    (second,) = bench.run(order("b", "describe"))
    assert isinstance(first, RunEnded)
    assert isinstance(second, RunEnded)
    assert first.result["pid"] == second.result["pid"]


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A cgroup v1 freezer of its own, as `docker pause` uses where there is no cgroup v2."""
    root = Path("/sys/fs/cgroup/freezer")
    if not os.access(root, os.W_OK) or not (root / "cgroup.procs").exists():
        pytest.skip("no cgroup v1 freezer that may be used")
    group = root / f"fencepost-test-{uuid.uuid4().hex[:8]}"
    group.mkdir()
    yield group
    (group / "freezer.state").write_text("THAWED")
    assert ended_processes(int(pid) for pid in (group / "cgroup.procs").read_text().split())
    group.rmdir()


@pytest.mark.parametrize("isolation", [SHARED, OWN])
def test_a_strict_run_that_was_frozen_past_its_lease_writes_nothing_more_once_thawed(
    bench_of: Callable[..., Bench], freezer: Path, tmp_path: Path, isolation: Isolation
) -> None:
    bench = bench_of(strict_stop=True)
    times = tmp_path / "times"
    began = linux.boot_s()
    bench.runners.lease(0, "n1", began)
    bench.start(order("a", "writes_times", payload=str(times), lease_ttl_s=TTL_S + 1, isolation=isolation))
    for process in family(bench.runners.guard_pid):
        (freezer / "cgroup.procs").write_text(str(process.pid))
    pids = [process.pid for process in family(bench.runners.guard_pid)]
    (freezer / "freezer.state").write_text("FROZEN")
    bench_s = began + TTL_S + 1 - linux.boot_s()
    time.sleep(max(0.0, bench_s))  # the lease ends meanwhile: nothing signals that, all who could are frozen
    (freezer / "freezer.state").write_text("THAWED")
    assert ended_processes(pids)
    assert last_line(times) < began + TTL_S + 1 - 0.5


def test_a_strict_run_goes_on_while_its_lease_is_renewed(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(strict_stop=True)
    began = linux.boot_s()
    bench.runners.lease(0, "n1", began)
    bench.start(
        order("a", "hangs", lease_ttl_s=TTL_S),
        order("b", "async_waits", lease_ttl_s=TTL_S),
        order("c", "hangs", lease_ttl_s=TTL_S, isolation=OWN),
    )

    def renewed_twice() -> bool:
        bench.runners.lease(0, "n1", linux.boot_s())
        return linux.boot_s() > began + 2 * TTL_S

    bench.until(renewed_twice)
    assert all(bench.runners.holds(task, 1) for task in "abc")


def test_a_strict_run_that_holds_the_interpreter_lock_longer_than_a_lease_is_killed_by_its_own_timer(
    bench_of: Callable[..., Bench],
) -> None:
    bench = bench_of()
    bench.runners.lease(0, "n1", linux.boot_s())
    bench.start(order("a", "holds_the_interpreter", lease_ttl_s=TTL_S, strict_stop=True))
    # Renewals go on, so the guard has no reason to end it; but nobody in the runner can move the timer.
    bench.until(lambda: bench.runners.lease(0, "n1", linux.boot_s()) or bench.ends("a"))
    assert bench.ended("a") == RunEnded("a", 1, Outcome.FAILED, error="its process ended (ended by SIGKILL)")


def test_the_guard_ends_runs_before_it_would_be_killed_itself() -> None:
    assert END_EARLY_S > DIE_EARLY_S > 0

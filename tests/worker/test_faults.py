"""Worker, guard or runner are killed or frozen at the worst moment; what they ran must not go on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fencepost.core.task import Cause, Isolation, Outcome
from fencepost.worker.guard.client import GuardLost
from fencepost.worker.orders import RunEnded
from tests.worker.bench import PATIENCE_S, Bench, Witness, ended_processes, family, named, order

OWN = Isolation.OWN
LIFE_S = 2.5
TTL_S = LIFE_S + 0.5  # the margin
CONTAINMENTS = ["auto", "process-groups"]


class LoneWorker:
    """A worker in a process of its own."""

    def __init__(self, **asked: Any) -> None:
        argv = [sys.executable, "-m", "tests.worker.lone_worker", json.dumps(asked)]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        started = self.next_line()
        assert started["event"] == "started", started
        self.began: float = started["began"]
        self.guard = psutil.Process(started["guard"])
        self.family = [process.pid for process in family(started["guard"])]

    def next_line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.stderr()
        said: dict[str, Any] = json.loads(line)
        return said

    def stderr(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        assert ended_processes(self.family)


@pytest.fixture
def worker_of() -> Iterator[Callable[..., LoneWorker]]:
    made: list[LoneWorker] = []

    def make(**asked: Any) -> LoneWorker:
        made.append(LoneWorker(**asked))
        return made[-1]

    yield make
    for worker in made:
        worker.end()


def writing(path: Path, **changes: Any) -> dict[str, Any]:
    return {"task": "writes", "target": "writes_times", "payload": str(path), "lease_ttl_s": TTL_S} | changes


def last_line(path: Path) -> float:
    return float(path.read_text("ascii").split()[-1])


@pytest.mark.parametrize("containment", CONTAINMENTS)
@pytest.mark.parametrize("isolation", ["shared", "own"])
def test_a_worker_that_is_frozen_loses_its_runs_before_their_deadline(
    worker_of: Callable[..., LoneWorker], tmp_path: Path, containment: str, isolation: str
) -> None:
    times = tmp_path / "times"
    worker = worker_of(
        settings={"containment": containment, "slots": 1, "shared_processes": 1},
        orders=[writing(times, isolation=isolation)],
    )
    runner = worker.family[-1]
    worker.process.send_signal(signal.SIGSTOP)
    assert ended_processes([runner])
    assert last_line(times) < worker.began + LIFE_S
    worker.process.send_signal(signal.SIGCONT)
    assert worker.next_line() == {"event": "ended", "task": "writes", "outcome": "interrupted", "cause": "fenced"}


@pytest.mark.parametrize("containment", CONTAINMENTS)
def test_a_worker_that_is_killed_takes_everything_with_it(
    worker_of: Callable[..., LoneWorker], witness: Witness, containment: str
) -> None:
    orders = [
        {"task": "daemon", "target": "daemonises", "payload": {"witness": witness.path}, "isolation": "own"},
        {"task": "shared", "target": "hangs"},
        {"task": "command", "target": ["/bin/sh", "-c", "echo ready; sleep 1000"], "isolation": "own"},
    ]
    worker = worker_of(settings={"containment": containment}, orders=orders)
    assert witness.held()
    worker.process.kill()
    assert witness.all_gone()
    assert ended_processes(worker.family)


def test_a_guard_that_is_killed_takes_setsid_daemons_with_it(
    worker_of: Callable[..., LoneWorker], witness: Witness
) -> None:
    orders = [
        {"task": "daemon", "target": "daemonises", "payload": {"witness": witness.path}, "isolation": "own"},
        {"task": "shared", "target": "hangs"},
        {
            "task": "command",
            "target": ["/bin/sh", "-c", f"exec 7>{witness.path}; setsid setsid sleep 1000 & echo ready; sleep 1000"],
            "isolation": "own",
        },
    ]
    worker = worker_of(orders=orders)
    if not named(worker.guard.pid, "fencepost-init"):
        pytest.skip("no PID namespace is permitted here: setsid'd processes outlive a guard that is killed")
    worker.guard.kill()
    assert witness.all_gone()
    assert ended_processes(worker.family)
    ends = [worker.next_line() for _ in orders]
    assert {(end["event"], end["outcome"], end["cause"]) for end in ends} == {("ended", "interrupted", "stopped")}
    assert worker.next_line()["event"] == "lost"
    assert worker.process.wait(PATIENCE_S) == 1


def test_without_a_namespace_a_killed_guard_still_takes_its_runners_and_their_groups(
    worker_of: Callable[..., LoneWorker], witness: Witness
) -> None:
    script = f"exec 7>{witness.path}; sleep 1000 & echo ready; sleep 1000"
    orders = [
        {"task": "function", "target": "hangs_holding", "payload": witness.path},
        {"task": "child", "target": "forks_holding", "payload": witness.path, "isolation": "own"},
        {"task": "command", "target": ["/bin/sh", "-c", script], "isolation": "own"},
    ]
    worker = worker_of(settings={"containment": "process-groups"}, orders=orders)
    worker.guard.kill()
    assert witness.all_gone()
    assert worker.next_line()["event"] == "ended"


@pytest.mark.parametrize("containment", CONTAINMENTS)
def test_a_guard_that_is_frozen_dies_by_its_own_timer_and_its_runs_with_it(
    worker_of: Callable[..., LoneWorker], tmp_path: Path, containment: str
) -> None:
    times = tmp_path / "times"
    worker = worker_of(settings={"containment": containment}, orders=[writing(times)])
    worker.guard.suspend()
    assert ended_processes(worker.family)
    assert last_line(times) < worker.began + LIFE_S
    assert worker.next_line()["event"] == "ended"
    assert worker.next_line()["event"] == "lost"


def test_frozen_together_worker_guard_and_run_write_nothing_once_woken(
    worker_of: Callable[..., LoneWorker], tmp_path: Path
) -> None:
    times = tmp_path / "times"
    worker = worker_of(orders=[writing(times)])
    for pid in (worker.process.pid, *worker.family):
        os.kill(pid, signal.SIGSTOP)
    assert ended_processes(worker.family)
    worker.process.send_signal(signal.SIGCONT)
    assert last_line(times) < worker.began + LIFE_S


def test_a_worker_whose_loop_no_longer_beats_is_ended_by_its_guard(worker_of: Callable[..., LoneWorker]) -> None:
    worker = worker_of(settings={"beat_ttl_s": 1.0}, orders=[{"task": "a", "target": "hangs"}], beats="once")
    assert worker.process.wait(PATIENCE_S) == -signal.SIGKILL
    assert ended_processes(worker.family)
    assert "the worker's loop has not beaten for 1 s: worker ended" in worker.stderr()


def test_beats_keep_a_worker_alive(worker_of: Callable[..., LoneWorker]) -> None:
    worker = worker_of(settings={"beat_ttl_s": 1.0}, orders=[writing(Path("/dev/null"))], beats="always")
    assert worker.next_line()["event"] == "ended"  # its lease ended, later than any beat
    assert worker.process.poll() is None


def test_signals_for_the_whole_terminal_do_not_end_runs(worker_of: Callable[..., LoneWorker]) -> None:
    worker = worker_of(orders=[{"task": "a", "target": "hangs"}])
    assert os.getsid(worker.guard.pid) != os.getsid(worker.process.pid)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        worker.guard.send_signal(number)
    assert worker.guard.is_running()


def test_a_zygote_that_is_killed_ends_everything(bench: Bench, witness: Witness) -> None:
    bench.start(order("a", "hangs_holding", payload=witness.path))
    (zygote,) = named(bench.runners.guard_pid, "fencepost-zygot")
    zygote.kill()
    assert witness.all_gone()
    assert bench.ended("a") == RunEnded("a", 1, Outcome.INTERRUPTED, Cause.STOPPED, error="the guard is gone")
    with pytest.raises(GuardLost, match="the guard is gone"):
        bench.runners.take()
    with pytest.raises(GuardLost):
        bench.runners.launch([order("b", "noop")])
    assert bench.runners.wait(0.0)


def test_results_that_were_written_before_the_guard_died_count(bench: Bench) -> None:
    bench.start(order("a", "until_cancelled"))
    bench.runners.launch([order("b", "echo", payload=1)])
    assert bench.ended("b").result == 1
    psutil.Process(bench.runners.guard_pid).kill()
    assert bench.ended("a").outcome is Outcome.INTERRUPTED


# --- R07: nothing piles up


def zombies(bench: Bench) -> int:
    found = 0
    for process in family(bench.runners.guard_pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += process.status() == psutil.STATUS_ZOMBIE
    return found


def descriptors(bench: Bench) -> list[int]:
    (guard,) = named(bench.runners.guard_pid, "fencepost-guard")
    (zygote,) = named(bench.runners.guard_pid, "fencepost-zygot")
    return [len(os.listdir("/proc/self/fd")), guard.num_fds(), zygote.num_fds()]


@pytest.mark.slow
def test_300_time_outs_and_300_double_forks_leave_no_zombie_and_no_descriptor(bench: Bench) -> None:
    """Case R07."""
    bench.run(order("warm", "noop", isolation=OWN))
    bench.until(lambda: len(bench.runners._processes) == 2)
    before = descriptors(bench)
    for batch in range(15):
        names = [f"{batch}.{number}" for number in range(20)]
        limits = [
            order(
                f"limit {n}",
                "hangs",
                timeout_s=0.05,
                grace_s=0.05,
                isolation=OWN if int(n[-1]) % 2 else Isolation.SHARED,
            )
            for n in names
        ]
        forks = [
            order(f"fork {n}", "forks_and_forgets", isolation=OWN if int(n[-1]) % 2 else Isolation.SHARED)
            for n in names
        ]
        bench.run(*limits)
        bench.run(*forks)
    ends = [r for r in bench.reports if isinstance(r, RunEnded)]
    assert sum(end.outcome is Outcome.TIMED_OUT for end in ends) == 300
    assert sum(end.task.startswith("fork") and end.outcome is Outcome.SUCCEEDED for end in ends) == 300
    # Shared runners look for what was left behind once they are idle.
    bench.until(lambda: zombies(bench) == 0)
    bench.runners.close(0.0)
    assert len(os.listdir("/proc/self/fd")) < before[0]


@pytest.mark.parametrize("containment", CONTAINMENTS)
def test_descriptors_stay_flat_over_many_runs_of_their_own(bench_of: Callable[..., Bench], containment: str) -> None:
    bench = bench_of(containment=containment, shared_processes=1)
    bench.run(order("warm", "noop", isolation=OWN))
    before = descriptors(bench)
    bench.run(*[order(f"t{number}", "noop", isolation=OWN) for number in range(50)])
    bench.until(lambda: descriptors(bench) == before)  # the zygote may still be closing the last ones


def test_a_child_that_somebody_still_waits_for_keeps_its_exit_code(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(slots=1, shared_processes=1)
    (kept,) = bench.run(order("a", "keeps_a_child"))
    assert isinstance(kept, RunEnded)
    bench.run(order("b", "forks_and_forgets"))
    bench.run(order("c", "noop"))
    (asked,) = bench.run(order("d", "asks_for_kept_child"))
    assert isinstance(asked, RunEnded)
    assert asked.result == 7


# --- R11: nothing is inherited that does not survive a fork


def test_a_run_sees_no_socket_of_the_worker(bench_of: Callable[..., Bench]) -> None:
    """Case R11, without a broker: sockets that stand for the client's."""
    early = socket.create_server(("127.0.0.1", 0))
    early.set_inheritable(True)  # as a careless library would leave it
    bench = bench_of()
    with early, socket.create_connection(early.getsockname()) as late:
        late.set_inheritable(True)
        ends = bench.run(
            order("a", "lists_descriptors"),
            order("b", "lists_descriptors", isolation=OWN),
        )
    for end in ends:
        assert isinstance(end, RunEnded)
        assert not [name for name in end.result if name.startswith("socket:")]


def test_a_run_may_open_a_client_and_fork_by_itself(bench: Bench) -> None:
    """Case R11: a thread behind a socket, and multiprocessing by fork, inside a run."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        for _ in range(2):
            peer, _ = server.accept()
            with peer:
                peer.sendall(peer.recv(16).upper())

    thread = threading.Thread(target=answer)
    thread.start()
    port = server.getsockname()[1]
    with server:
        ends = bench.run(
            order("a", "opens_a_client_and_forks", payload=port),
            order("b", "opens_a_client_and_forks", payload=port, isolation=OWN),
        )
        thread.join()
    for end in ends:
        assert isinstance(end, RunEnded)
        assert end.result == ["HELLO", "1", "2"], end.error

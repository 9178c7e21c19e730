"""The benchmark's own tests: that its figures are what they say, and that nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from fencepost.core.ids import partition_of
from tests.bench import report, sink
from tests.bench.bench import Result
from tests.bench.kafka_side import PARTITIONS, Changes, ids_on
from tests.bench.machine import REPOSITORY
from tests.bench.processes import BenchError, Processes, wait_until
from tests.bench.stats import distribution, quantile, spread


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (0.999, 100.0), (1.0, 100.0)])
def test_a_quantile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert quantile([float(number) for number in range(1, 101)], share) == value


def test_the_median_of_few_rounds_is_one_of_them() -> None:
    assert spread([3.0, 1.0, 2.0]) == {"min": 1.0, "median": 2.0, "max": 3.0, "values": [1.0, 2.0, 3.0]}
    assert distribution([5.0, 1.0])["p50"] == 1.0


def test_traces_come_back_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sink"
    monkeypatch.setenv(sink.VARIABLE, str(path))
    monkeypatch.setenv(sink.WORKER_VARIABLE, "w2")
    assert sink.count(path) == 0
    writer = sink.Sink()
    for index in range(3):
        writer.write(index, epoch=index + 1)
    assert sink.count(path) == 3
    traces = sink.read(path, 1)
    assert [(trace.index, trace.epoch, trace.worker) for trace in traces] == [(1, 2, "w2"), (2, 3, "w2")]
    assert traces[0].monotonic_ns <= traces[1].monotonic_ns <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def changes(started: str, succeeded: str, others: str = "") -> Changes:
    return Changes(Counter(started.split()), Counter(succeeded.split()), Counter(others.split()), 0, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        changes("a b", "a"),
        changes("a", "a"),
        changes("a b b", "a b b"),
        changes("a b c", "a b c"),
        changes("a b", "a b", "interrupted"),
    ],
)
def test_a_run_that_is_missing_doubled_or_interrupted_is_no_figure(wrong: Changes) -> None:
    changes("a b", "b a").require_each_once(["a", "b"])
    with pytest.raises(BenchError):
        wrong.require_each_once(["a", "b"])


def test_ids_are_found_for_the_partitions_asked_for() -> None:
    found = ids_on([3, 7], "t/", each=2)
    assert sorted(found.values()) == [3, 3, 7, 7]
    assert all(partition_of(task.encode(), PARTITIONS) == partition for task, partition in found.items())


def test_a_program_that_ends_while_it_is_waited_for_is_named(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        program = processes.start("short", [sys.executable, "-c", "print('what it said'); raise SystemExit(3)"])
        with pytest.raises(BenchError, match=r"(?s)short ended with 3.*what it said"):
            wait_until(lambda: False, 30, "nothing", programs=[program])


def test_nothing_that_was_started_outlives_a_benchmark_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    script = textwrap.dedent(
        f"""
        import sys, time
        from pathlib import Path
        from tests.bench.processes import Processes
        deep = "import os, time; os.fork(); os.setsid() if os.getpid() != os.getsid(0) else None; time.sleep(600)"
        with Processes(Path({str(folder)!r})) as processes:
            program = processes.start("deep", [sys.executable, "-c", deep])
            print(program.pid, flush=True)
            time.sleep(600)
        """
    )
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=env, text=True) as bench:
        assert bench.stdout is not None
        leader = psutil.Process(int(bench.stdout.readline()))
        wait_until(lambda: bool(leader.children()), 30, "the fork")
        started = [leader, *leader.children()]
        bench.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(started, timeout=30)
    assert not alive
    assert len(gone) == 2
    wait_until(lambda: not folder.exists(), 30, "the work folder to be removed")


def test_a_program_that_hides_its_environment_does_not_outlive_the_benchmark_either(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        hidden = processes.start("hidden", ["/usr/bin/env", "-i", sys.executable, "-c", "import time; time.sleep(600)"])
        process = psutil.Process(hidden.pid)
        wait_until(lambda: not process.environ(), 30, "the environment to be gone")
    assert hidden.wait(30) == -signal.SIGKILL


def test_the_table_says_when_others_used_the_machine_and_what_was_not_reached() -> None:
    machine = {"cpu": "C", "cores": 2, "memory_gib": 4, "kernel": "6", "python": "3", "kafka": "4", "commit": "abc"}
    machine["uncommitted_changes"] = True
    result = Result("latency", figures={"other_cores": 0.7, "load_average_before": 3.0})
    result.row("what", "1 ms")
    result.goal("p50 of 10 ms or less", False)
    text = report.table(machine, [result], quick=True)
    assert "DISTURBED: other programs used 0.7 cores" in text
    assert "NOT reached: p50 of 10 ms or less" in text
    assert "not for comparing" in text
    assert "changes not committed" in text

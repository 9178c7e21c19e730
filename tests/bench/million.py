"""A million defined tasks, each with a schedule: memory, restore time, and what they cost while nothing is due."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import psutil

from tests.bench.bench import Bench, Result, say
from tests.bench.kafka_side import Namespace, Worker, cpu_s
from tests.bench.processes import running

IDLE_S = 20.0
CALM_SHARE = 0.1
SETTLE_S = 120.0
FIRST_START_S = 900.0


def measure(bench: Bench) -> Result:
    result = Result("million")
    tasks = bench.choose(1_000_000, 50_000)
    namespace = bench.namespace()
    began_s = time.monotonic()
    namespace.produce(namespace.topics.tasks, _definitions(tasks))
    result.figures |= {"tasks": tasks, "produced_s": time.monotonic() - began_s}
    result.figures["first_start_s"] = _first_start(namespace, tasks)
    say(f"{tasks:,} tasks taken up for the first time in {result.figures['first_start_s']:.1f} s")
    began_s = time.monotonic()
    worker = namespace.start_worker("again")
    with running(worker.program, 60):
        worker.wait_serving_all(FIRST_START_S)
        restore_s = time.monotonic() - began_s
        say(f"restored in {restore_s:.1f} s")
        result.figures |= {"restore_s": restore_s, **_idle(worker), **_memory(worker)}
    _report(result, tasks, restore_s)
    return result


def _definitions(tasks: int) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yearly, at one of 1,440 minutes of a day half a year away: planned, and not due while this lasts."""
    month = (datetime.now(UTC).month + 5) % 12 + 1
    for number in range(tasks):
        cron = f"{number % 60} {number // 60 % 24} 15 {month} *"
        yield f"planned/{number:07d}", {"handler": {"kind": "python", "function": "noop"}, "schedule": {"cron": cron}}


def _first_start(namespace: Namespace, tasks: int) -> float:
    """Seconds until the first worker has planned every task: each has a state record then."""
    began_s = time.monotonic()
    worker = namespace.start_worker("first")
    with running(worker.program, 60):
        namespace.wait_written(namespace.topics.state, tasks, FIRST_START_S, [worker.program])
    return time.monotonic() - began_s


def _memory(worker: Worker) -> dict[str, Any]:
    """The worker's own resident memory; and all of its processes, shared pages counted once."""
    tree = worker.tree()
    return {
        "worker_rss_gib": tree[0].memory_info().rss / 2**30,
        "all_processes_pss_gib": sum(process.memory_full_info().pss for process in tree) / 2**30,
    }


def _idle(worker: Worker) -> dict[str, float]:
    """What it costs to have the tasks while nothing is due, once the start has left nothing more to do."""
    tree: list[psutil.Process] = worker.tree()
    began_s = time.monotonic()
    while _share(tree, 1.0) > CALM_SHARE and time.monotonic() - began_s < SETTLE_S:
        pass  # `_share` waits
    settled_s = time.monotonic() - began_s
    return {"settled_after_s": settled_s, "idle_cpu_share": _share(tree, IDLE_S), "idle_s": IDLE_S}


def _share(tree: list[psutil.Process], for_s: float) -> float:
    before_s, at_s = cpu_s(tree), time.monotonic()
    time.sleep(for_s)
    return (cpu_s(tree) - before_s) / (time.monotonic() - at_s)


def _report(result: Result, tasks: int, restore_s: float) -> None:
    figures = result.figures
    rss_gib, pss_gib = figures["worker_rss_gib"], figures["all_processes_pss_gib"]
    result.row(f"{tasks:,} defined tasks: worker's memory", f"{rss_gib:.2f} GiB (all its processes {pss_gib:.2f})")
    result.row(f"{tasks:,} defined tasks: start to serving all", f"{restore_s:.1f} s")
    result.row(f"{tasks:,} defined tasks: first start, all planned", f"{figures['first_start_s']:.1f} s")
    result.row(f"{tasks:,} defined tasks: idle CPU over {IDLE_S:g} s", f"{figures['idle_cpu_share']:.1%} of a core")
    result.goal(f"{tasks:,} tasks in 1.5 GiB or less", rss_gib <= 1.5)
    result.goal(f"{tasks:,} tasks restored in 20 s or less", restore_s <= 20)

"""50,000 tasks due within one second: each runs once, nothing is rebalanced; how late they are, how long all take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from fencepost.core.times import format_ms
from tests.bench.bench import Bench, Result, say
from tests.bench.processes import BenchError
from tests.bench.stats import distribution

LEAD_S = 45.0
ARMED_S = 3.0
RUN_S = 300.0


def measure(bench: Bench) -> Result:
    result = Result("burst")
    tasks = bench.choose(50_000, 5_000)
    namespace = bench.namespace()
    with namespace.worker() as worker:
        first_ms = int((time.time() + LEAD_S) * 1000)
        due_ms = [first_ms + number * 1000 // tasks for number in range(tasks)]
        namespace.produce(namespace.topics.tasks, _definitions(due_ms))
        namespace.wait_written(namespace.topics.state, tasks, LEAD_S, [worker.program])
        if time.time() > first_ms / 1000 - ARMED_S:
            raise BenchError(f"{tasks:,} tasks were not planned in time: they were due before all were known")
        rebalances = worker.metric("fencepost_rebalances_total")
        namespace.wait_traces(tasks, LEAD_S + RUN_S, f"{tasks:,} runs", [worker.program])
        namespace.wait_written(namespace.topics.runs, 2 * tasks, RUN_S, [worker.program])
        rebalances = worker.metric("fencepost_rebalances_total") - rebalances
    traces = namespace.traces()
    namespace.changes().require_each_once(f"due/{number:05d}" for number in range(tasks))
    if sorted(trace.index for trace in traces) != list(range(tasks)):
        raise BenchError(f"{tasks:,} tasks left {len(traces):,} traces")
    late = distribution(trace.wall_ns / 1e6 - due_ms[trace.index] for trace in traces)
    all_s = max(trace.wall_ns for trace in traces) / 1e9 - first_ms / 1000
    say(f"{tasks:,} in {all_s:.1f} s")
    result.figures |= {"tasks": tasks, "all_run_s": all_s, "lateness_ms": late, "rebalances": rebalances}
    result.row(f"{tasks:,} tasks due in one second: all have run after", f"{all_s:.2f} s")
    text = f"{late['p50']:,.0f} {late['p99']:,.0f} {late['max']:,.0f} ms"
    result.row(f"{tasks:,} tasks due in one second, lateness: p50, p99, most", text)
    result.row(f"{tasks:,} tasks due in one second: rebalances", f"{rebalances:.0f}")
    result.goal(f"{tasks:,} due in one second, each once", True)  # else the check above has raised
    result.goal("no rebalance while they run", rebalances == 0)
    return result


def _definitions(due_ms: list[int]) -> Iterator[tuple[str, Mapping[str, object]]]:
    for number, at_ms in enumerate(due_ms):
        yield (
            f"due/{number:05d}",
            {
                "handler": {"kind": "python", "function": "trace"},
                "schedule": {"at": format_ms(at_ms)},
                "payload": {"n": number},
            },
        )

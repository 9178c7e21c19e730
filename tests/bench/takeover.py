"""How long tasks wait when their owner dies: SIGKILL, then SIGTERM, two workers, dynamic members, profile `quick`.

At each SIGKILL the worker holds runs on some partitions and a task waits on every other one; the survivor takes all.
At each SIGTERM a trigger is produced for every partition of the worker that leaves. Timed is from just before the
signal to the task's first line on the other worker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from tests.bench import sink
from tests.bench.bench import Bench, Result, say
from tests.bench.kafka_side import PARTITIONS, Namespace, Worker, ids_on
from tests.bench.processes import BenchError, wait_until
from tests.bench.stats import spread

HOLDING = 4
SETTLE_S = 60.0
TAKEOVER_S = 60.0


class Pair:
    """Two workers of one namespace; asks by runs who has which partition."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self._names = itertools.count(1)
        self._numbers = itertools.count(1)
        self.workers = [self._start(), self._start()]

    def _start(self) -> Worker:
        return self.namespace.start_worker(f"w{next(self._names)}")

    def take_out(self) -> Worker:
        """The older worker, from now on not one of the pair: it may end."""
        return self.workers.pop(0)

    def fill_up(self) -> None:
        self.workers.append(self._start())

    def stop(self) -> None:
        for worker in self.workers:
            worker.program.stop()

    def trigger(self, kind: str, partitions: Iterable[int]) -> dict[int, int]:
        """One trigger on each partition, each for a task of its own; partition by the number its trace will carry."""
        triggers: dict[str, int] = {}
        by_number = {}
        for task, partition in ids_on(partitions, f"{kind}/{next(self._numbers)}-").items():
            number = next(self._numbers)
            triggers[task] = number
            by_number[number] = partition
        self.namespace.trigger(triggers)
        return by_number

    def await_traces(self, numbers: Iterable[int], epoch: int, start: int = 0) -> dict[int, sink.Trace]:
        """The traces of these numbers under this epoch or a later one."""
        wanted = set(numbers)
        found: dict[int, sink.Trace] = {}

        def done() -> bool:
            for trace in self.namespace.traces(start):
                if trace.index in wanted and trace.epoch >= epoch:
                    found.setdefault(trace.index, trace)
            return found.keys() == wanted

        programs = [worker.program for worker in self.workers]
        wait_until(done, TAKEOVER_S, f"runs of {len(wanted)} tasks", 0.01, programs)
        return found

    def owners(self) -> dict[int, str]:
        """The worker that serves each partition, by asking each for a run."""
        asked = self.trigger("trace", range(PARTITIONS))
        return {asked[trace.index]: trace.worker for trace in self.await_traces(asked, 1).values()}

    def settle(self) -> dict[int, str]:
        """Waits until both workers serve half of the partitions."""
        owners: dict[int, str] = {}

        def halved() -> bool:
            nonlocal owners
            owners = self.owners()
            shares = [list(owners.values()).count(worker.name) for worker in self.workers]
            return min(shares) >= PARTITIONS // 2

        wait_until(halved, SETTLE_S, "the partitions to be shared", 0.3, [worker.program for worker in self.workers])
        return owners


def measure(bench: Bench) -> Result:
    result = Result("takeover")
    repeats = bench.choose(7, 2)
    namespace = bench.namespace("quick")
    session_s, ttl_s = namespace.info.session_timeout_s, namespace.settings.lease_ttl_s
    pair = Pair(namespace)
    try:
        killed = [_kill(pair) for _ in range(repeats)]
        left = [_terminate(pair) for _ in range(repeats)]
    finally:
        pair.stop()
    result.figures |= {"profile": "quick", "session_timeout_s": session_s, "lease_ttl_s": ttl_s}
    result.figures["group_protocol"] = namespace.info.group_protocol
    _report(result, "SIGKILL, waiting task", [waiting for waiting, _ in killed], session_s + 2)
    _report(result, "SIGKILL, interrupted run", [held for _, held in killed], max(session_s, ttl_s) + 2)
    _report(result, "SIGTERM, waiting task", left, 1.0)
    return result


def _kill(pair: Pair) -> tuple[list[float], list[float]]:
    """Seconds until each waiting task, and each interrupted run's successor, began."""
    owners = pair.settle()
    victim = pair.workers[0]
    mine = sorted(partition for partition, name in owners.items() if name == victim.name)
    holding = pair.trigger("hold", mine[:HOLDING])
    held = pair.await_traces(holding, 1)
    if {trace.worker for trace in held.values()} != {victim.name}:
        raise BenchError("a rebalance came between: the runs to be interrupted are not all on one worker")
    start = sink.count(pair.namespace.sink)
    at_s = pair.take_out().program.kill()
    waiting = pair.trigger("trace", mine[HOLDING:])
    first = pair.await_traces(waiting, 1, start)
    again = pair.await_traces(holding, 2, start)
    pair.fill_up()
    waited = [trace.monotonic_ns / 1e9 - at_s for trace in first.values()]
    interrupted = [trace.monotonic_ns / 1e9 - at_s for trace in again.values()]
    say(f"SIGKILL: waiting task {max(waited):.2f} s, interrupted run {max(interrupted):.2f} s")
    return waited, interrupted


def _terminate(pair: Pair) -> list[float]:
    """Seconds until a task on each partition of the worker that leaves began on the other one."""
    owners = pair.settle()
    victim = pair.workers[0]
    mine = sorted(partition for partition, name in owners.items() if name == victim.name)
    start = sink.count(pair.namespace.sink)
    at_s = pair.take_out().program.terminate()
    asked = pair.trigger("trace", mine)
    first = pair.await_traces(asked, 1, start)
    code = victim.program.wait(30)
    if code != 0:
        raise BenchError(f"the worker that was asked to leave ended with {code}: see {victim.program.log}")
    pair.fill_up()
    waited = [trace.monotonic_ns / 1e9 - at_s for trace in first.values() if trace.worker != victim.name]
    if not waited:
        raise BenchError("the worker that was asked to leave ran everything itself")
    say(f"SIGTERM: waiting task {max(waited):.2f} s")
    return waited


def _report(result: Result, what: str, repeats: list[list[float]], bound_s: float) -> None:
    """The slowest task of each repeat counts."""
    worst = spread(max(times) for times in repeats)
    result.figures[what] = {"bound_s": bound_s, "worst_s": worst, "all_s": repeats}
    text = f"{worst['min']:>8.2f} {worst['median']:>8.2f} {worst['max']:>8.2f} s   ({len(repeats)} repeats)"
    result.row(f"{what}: min, median, max of the slowest task", text)
    result.goal(f"{what}: {bound_s:g} s or less, each time", worst["max"] <= bound_s)

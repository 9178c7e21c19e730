"""What a worker counts, for Prometheus.

What is counted for every run is kept in plain tallies and turned into metrics when they are asked for: at tens of
thousands of runs a second the library's own counters would take a noticeable share of the lane's thread.
Every label is bounded: names that arrive in records must not be able to fill a metrics store.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from fencepost.version import __version__

OTHER = "other"
REASONS = 30

DELAY_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
TRANSACTION_BOUNDS_S = (0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
WAIT_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


class PrometheusMeters:
    """The `Meters` of a worker, in a registry of its own. Safe to call from every lane's thread.

    task_labels: how many tasks get a label of their own; runs of all further ones count under ``other``. IDs come
    with whoever sends triggers, so the first ones seen are named and no more.
    """

    def __init__(self, worker: str, task_labels: int = 100) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        Info("fencepost_worker", "Which worker this is.", registry=registry).info(
            {"worker": worker, "version": __version__}
        )
        self._lock = threading.Lock()
        self._tasks = _Names(task_labels)
        self._reasons = _Names(REASONS)
        self._delays = _Tally(DELAY_BOUNDS_S)
        self._ended: dict[tuple[str, str], int] = {}
        self._causes: dict[str, int] = {}
        self._dead: dict[str, int] = {}
        self._rebalances: dict[int, tuple[int, int]] = {}  # lane: (total, as last told)
        registry.register(_Tallies(self))
        self._transactions = Histogram(
            "fencepost_transaction_seconds",
            "How long transactions took, by how they ended.",
            ["outcome"],
            buckets=TRANSACTION_BOUNDS_S,
            registry=registry,
        )
        self._records = Counter(
            "fencepost_transaction_parts", "Partitions written to, over all transactions.", registry=registry
        )
        self._restore = Histogram(
            "fencepost_restore_seconds",
            "From the start of reading a partition's state to having it whole.",
            buckets=WAIT_BOUNDS_S,
            registry=registry,
        )
        self._restored_tasks = Counter("fencepost_restored_tasks", "Tasks read back by restores.", registry=registry)
        self._takeover = Histogram(
            "fencepost_takeover_seconds",
            "How long a run of an earlier owner was waited out.",
            buckets=WAIT_BOUNDS_S,
            registry=registry,
        )
        self._fences = Counter(
            "fencepost_node_fences",
            "Commands that fence a lost worker's node, by what they came to.",
            ["outcome"],
            registry=registry,
        )
        self._gauges = {
            name: Gauge(f"fencepost_{name}", text, ["lane"], registry=registry) for name, text in _GAUGES.items()
        }

    def run_started(self, task: str, delay_s: float) -> None:
        with self._lock:
            self._delays.add(delay_s)

    def run_ended(self, task: str, outcome: str, cause: str | None) -> None:
        with self._lock:
            label = (self._tasks.label(task), outcome)
            self._ended[label] = self._ended.get(label, 0) + 1
            if cause is not None:
                self._causes[cause] = self._causes.get(cause, 0) + 1

    def dead_letter(self, reason: str) -> None:
        with self._lock:
            label = self._reasons.label(reason)
            self._dead[label] = self._dead.get(label, 0) + 1

    def transaction(self, outcome: str, seconds: float, records: int) -> None:
        self._transactions.labels(outcome).observe(seconds)
        self._records.inc(records)

    def restored(self, seconds: float, tasks: int) -> None:
        self._restore.observe(seconds)
        self._restored_tasks.inc(tasks)

    def takeover(self, seconds: float) -> None:
        self._takeover.observe(seconds)

    def node_fenced(self, outcome: str) -> None:
        self._fences.labels(outcome).inc()

    def gauges(
        self,
        *,
        lane: int,
        in_flight: int,
        ready: int,
        backlog: int,
        oldest_waiting_s: float,
        partitions: int,
        rebalances: int,
        clock_difference_s: float,
    ) -> None:
        """`rebalances`: as the lane's present member counts them; a new member begins again at 0."""
        values = {
            "in_flight": in_flight,
            "ready": ready,
            "backlog": backlog,
            "oldest_waiting_seconds": oldest_waiting_s,
            "partitions": partitions,
            "clock_difference_seconds": clock_difference_s,
        }
        for name, value in values.items():
            self._gauges[name].labels(str(lane)).set(value)
        with self._lock:
            total, told = self._rebalances.get(lane, (0, 0))
            new = rebalances - told if rebalances >= told else rebalances
            self._rebalances[lane] = (total + new, rebalances)

    def exposition(self) -> tuple[bytes, str]:
        """All metrics in Prometheus's text format, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def tallies(self) -> Iterator[Metric]:
        """What is kept in tallies, as metrics."""
        with self._lock:
            delays, delay_sum = self._delays.cumulative(), self._delays.sum
            ended, causes, dead = dict(self._ended), dict(self._causes), dict(self._dead)
            rebalances = {str(lane): total for lane, (total, _) in self._rebalances.items()}
        yield HistogramMetricFamily(
            "fencepost_schedule_delay_seconds",
            "From when a run was due (slot, run_at or arrival) to when its start was read back.",
            buckets=delays,
            sum_value=delay_sum,
        )
        runs = CounterMetricFamily("fencepost_runs", "Ended runs, by task and outcome.", labels=["task", "outcome"])
        for label, count in ended.items():
            runs.add_metric(label, count)
        yield runs
        yield _counter("fencepost_interruptions", "Runs stopped from outside, by cause.", "cause", causes)
        yield _counter("fencepost_dead_letters", "Records that could not be handled, by field.", "reason", dead)
        yield _counter("fencepost_rebalances", "Rebalances of the group that the lane saw.", "lane", rebalances)


_GAUGES = {
    "in_flight": "Runs launched and not reported ended.",
    "ready": "Requests in state that wait for a free slot.",
    "backlog": "Triggers read from Kafka and not yet taken into state.",
    "oldest_waiting_seconds": "Age of the oldest trigger not yet taken into state.",
    "partitions": "Partitions the lane holds.",
    "clock_difference_seconds": "The brokers' clock minus this machine's, as last measured; 0 within what can be told.",
}


class _Names:
    """The first `limit` names get a label of their own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[str, str] = {}

    def label(self, name: str) -> str:
        known = self._known.get(name)
        if known is not None:
            return known
        if len(self._known) >= self._limit:
            return OTHER
        # A lone surrogate could not be written out and would take the whole page with it.
        clean = name.encode("utf-8", "replace").decode()
        self._known[name] = clean
        return clean


class _Tally:
    """A histogram: counts per bucket, and the sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, how many at or below), the last bound infinite."""
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return buckets


class _Tallies(Collector):
    def __init__(self, meters: PrometheusMeters) -> None:
        self._meters = meters

    def collect(self) -> Iterator[Metric]:
        return self._meters.tallies()


def _counter(name: str, text: str, label: str, counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family

"""Fencepost under measurement: a namespace, its workers, what was asked of it and what it wrote."""

from __future__ import annotations

import socket
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psutil
from confluent_kafka import Producer

from fencepost.broker import Cluster
from fencepost.codec import dumps, loads
from fencepost.core.ids import partition_of
from fencepost.kafka.admin import init
from fencepost.kafka.config import PARTITIONER
from fencepost.kafka.scan import open_reader, scan, watermarks
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from tests.bench import sink
from tests.bench.machine import REPOSITORY
from tests.bench.processes import BenchError, Processes, Program, running, wait_until

PARTITIONS = 16
QUIET_S = 2.0
WORKER_COMMAND = (sys.executable, "-m", "fencepost.cli.main", "worker")
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Changes:
    """What the `runs` topic says of a set of runs; times are those at which the broker appended the records, in ms."""

    started: Counter[str]
    succeeded: Counter[str]
    others: Counter[str]
    first_started_ms: int
    last_succeeded_ms: int

    def require_each_once(self, ids: Iterable[str]) -> None:
        """Raises BenchError unless every ID was started and succeeded exactly once, and nothing else was recorded."""
        expected = Counter(ids)
        if self.started != expected or self.succeeded != expected or self.others:
            raise BenchError(
                f"expected {expected.total()} runs; started: {self.started.total()} of {len(self.started)} tasks, "
                f"succeeded: {self.succeeded.total()}, other records: {dict(self.others)}"
            )


class Namespace:
    """A fresh namespace on the benchmark's Kafka. `profile`: as in the settings."""

    def __init__(self, cluster: Cluster, processes: Processes, folder: Path, profile: str) -> None:
        name = f"bench{next(_numbers)}"
        self.settings = Settings.load([], {}, {"namespace": name, "bootstrap": cluster.bootstrap, "profile": profile})
        self.topics = Topics(name)
        self.sink = folder / f"{name}.sink"
        self._processes = processes
        self._folder = folder
        self.info = init(self.settings, PARTITIONS).info

    # --- workers -----------------------------------------------------------------------------------------------------

    def start_worker(self, name: str = "w", **more: str) -> Worker:
        """One worker process; `more`: settings over the profile's."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        env = {
            "FENCEPOST_BOOTSTRAP": self.settings.bootstrap,
            "FENCEPOST_NAMESPACE": self.settings.namespace,
            "FENCEPOST_PROFILE": self.settings.profile,
            "FENCEPOST_HTTP_PORT": str(port),
            "FENCEPOST_LOG_FORMAT": "json",
            sink.VARIABLE: str(self.sink),
            sink.WORKER_VARIABLE: name,
            "PYTHONPATH": str(REPOSITORY),
            **{f"FENCEPOST_{key.upper()}": value for key, value in more.items()},
        }
        command = [*WORKER_COMMAND, "--app", "tests.bench.app:app"]
        program = self._processes.start(f"{self.settings.namespace}-{name}", command, env=env)
        return Worker(name, program, port)

    @contextmanager
    def worker(self, name: str = "w", ready_s: float = 60.0, **more: str) -> Iterator[Worker]:
        """A worker that serves all partitions it has; stopped at the end."""
        worker = self.start_worker(name, **more)
        with running(worker.program):
            worker.wait_ready(ready_s)
            yield worker

    # --- producing ---------------------------------------------------------------------------------------------------

    def producer(self, linger_ms: float) -> Producer:
        """A plain producer of anybody's."""
        return Producer(
            {
                "bootstrap.servers": self.settings.bootstrap,
                "linger.ms": linger_ms,
                "batch.num.messages": 10_000,
                "queue.buffering.max.messages": 200_000,
                **PARTITIONER,
            }
        )

    def produce(self, topic: str, records: Iterable[tuple[str, Mapping[str, object]]], linger_ms: float = 20.0) -> None:
        """Produces records as fast as it goes and waits until all are there."""
        producer = self.producer(linger_ms)
        for key, body in records:
            value = dumps(body)
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.05)
        if producer.flush(60):
            raise BenchError(f"{topic}: not all records could be produced in a minute")

    def trigger(self, tasks: Mapping[str, int]) -> None:
        """One trigger a task, with the number its trace shall carry."""
        self.produce(self.topics.triggers, ((task, {"payload": {"n": n}}) for task, n in tasks.items()), 0.0)

    # --- reading -----------------------------------------------------------------------------------------------------

    def wait_written(self, topic: str, least: int, timeout_s: float, programs: list[Program]) -> None:
        """Until the topic holds `least` records or more and nothing was added for two seconds.

        Only the ends of the logs are asked for, so that waiting takes nothing from what is measured.
        """
        consumer = open_reader(self.settings, "bench")
        seen, since_s = -1, time.monotonic()

        def done() -> bool:
            nonlocal seen, since_s
            end = sum(watermarks(consumer, topic, number, 10)[1] for number in range(PARTITIONS))
            if end != seen:
                seen, since_s = end, time.monotonic()
            return end >= least and time.monotonic() - since_s >= QUIET_S

        try:
            wait_until(done, timeout_s, f"{least} records in {topic}", 0.25, programs)
        finally:
            consumer.close()

    def changes(self) -> Changes:
        """What the history says; read after the fact."""
        by_kind: dict[str, Counter[str]] = {"started": Counter(), "succeeded": Counter()}
        others: Counter[str] = Counter()
        first_ms, last_ms = 2**62, 0
        for record in scan(self.settings, self.topics.runs):
            kind = loads(record.value or b"null")["kind"]
            if kind in by_kind:
                by_kind[kind][record.key_text] += 1
                if kind == "started":
                    first_ms = min(first_ms, record.at_ms)
                else:
                    last_ms = max(last_ms, record.at_ms)
            elif kind not in ("triggered", "defined"):
                others[kind] += 1
        return Changes(by_kind["started"], by_kind["succeeded"], others, first_ms, last_ms)

    def traces(self, start: int = 0) -> list[sink.Trace]:
        return sink.read(self.sink, start)

    def wait_traces(self, least: int, timeout_s: float, what: str, programs: list[Program]) -> None:
        wait_until(lambda: sink.count(self.sink) >= least, timeout_s, what, 0.01, programs)


class Worker:
    """One worker that was started."""

    def __init__(self, name: str, program: Program, port: int) -> None:
        self.name = name
        self.program = program
        self._url = f"http://127.0.0.1:{port}"

    @property
    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/readyz", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def wait_ready(self, timeout_s: float) -> None:
        wait_until(lambda: self.ready, timeout_s, f"worker {self.name} to be ready", 0.1, [self.program])

    def wait_serving_all(self, timeout_s: float) -> None:
        """Until it holds every partition. A member is ready with none at first, while those before it still leave."""
        wait_until(
            lambda: self.ready and self.metric("fencepost_partitions") == PARTITIONS and self.ready,
            timeout_s,
            f"worker {self.name} to hold all partitions",
            0.1,
            [self.program],
        )

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        lines = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] == name]
        if not lines:
            raise BenchError(f"worker {self.name} has no metric {name}")
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def tree(self) -> list[psutil.Process]:
        """The worker itself, then everything below it."""
        own = psutil.Process(self.program.pid)
        return [own, *own.children(recursive=True)]


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    """CPU time used so far by processes that are alive."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def ids_on(partitions: Iterable[int], prefix: str, each: int = 1) -> dict[str, int]:
    """IDs with their partitions, `each` for every one of the partitions."""
    wanted = dict.fromkeys(partitions, each)
    found: dict[str, int] = {}
    for number in count():
        if not any(wanted.values()):
            return found
        task = f"{prefix}{number}"
        partition = partition_of(task.encode(), PARTITIONS)
        if wanted.get(partition, 0):
            wanted[partition] -= 1
            found[task] = partition
    raise AssertionError

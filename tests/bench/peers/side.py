"""Celery and Dramatiq under measurement, seen from the benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import sink
from tests.bench.environments import environment, versions
from tests.bench.machine import REPOSITORY
from tests.bench.processes import BenchError, Processes, Program, running, wait_until
from tests.bench.redis_server import flush

PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Peer:
    """One of the two. `command` starts a worker of `PROCESSES` processes."""

    name: str
    module: str
    command: tuple[str, ...]
    settings: str

    @property
    def folder(self) -> Path:
        return environment(self.name)

    def versions(self) -> dict[str, str]:
        return versions(self.folder, self.name, "redis")


CELERY = Peer(
    "celery",
    "tests.bench.peers.celery_app",
    (
        *("celery", "-A", "tests.bench.peers.celery_app", "worker", "-P", "prefork", "-c", str(PROCESSES)),
        *("-l", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"),
    ),
    f"prefork, {PROCESSES} processes, task_acks_late, no results, no events, prefetch multiplier 4 (its default)",
)
DRAMATIQ = Peer(
    "dramatiq",
    "tests.bench.peers.dramatiq_app",
    ("dramatiq", "tests.bench.peers.dramatiq_app", "-p", str(PROCESSES), "-t", "8"),
    f"{PROCESSES} processes, 8 threads each (its default), acknowledges after the task (its only way)",
)


class PeerSide:
    """A peer on a Redis, with a sink file of its own."""

    def __init__(self, peer: Peer, processes: Processes, folder: Path, url: str) -> None:
        self.peer = peer
        self._processes = processes
        self._folder = folder
        self._url = url
        self._sink = folder / f"{peer.name}.sink"

    def throughput(self, tasks: int) -> dict[str, Any]:
        """Tasks are enqueued first, then the worker is started. Rate from the first task's start to the last one's."""
        self._fresh()
        self._drive("enqueue", "0", str(tasks))
        with self._worker() as worker:
            what = f"{tasks} tasks of {self.peer.name}"
            wait_until(lambda: sink.count(self._sink) >= tasks, 300, what, 0.05, [worker])
        traces = sink.read(self._sink)
        if sorted(trace.index for trace in traces) != list(range(tasks)):
            raise BenchError(f"{self.peer.name} ran {len(traces)} times for {tasks} tasks")
        times = [trace.monotonic_ns for trace in traces]
        seconds = (max(times) - min(times)) / 1e9
        return {"tasks": tasks, "seconds": seconds, "per_second": (tasks - 1) / seconds}

    def latencies_ms(self, warm_up: int, samples: int, spacing_s: tuple[float, float]) -> list[float]:
        """From just before a task is sent to its first line, the worker being idle."""
        self._fresh()
        with self._worker() as worker:
            self._drive("enqueue", "-1", "1")
            wait_until(lambda: sink.count(self._sink) >= 1, 60, f"{self.peer.name} to run a task", 0.02, [worker])
            printed = self._drive("space", "0", str(warm_up + samples), *map(str, spacing_s))
            wait_until(lambda: sink.count(self._sink) >= 1 + warm_up + samples, 30, "the last samples", 0.02, [worker])
        sent_ns = {int(index): int(at_ns) for index, at_ns in map(str.split, printed.splitlines())}
        began_ns = {trace.index: trace.monotonic_ns for trace in sink.read(self._sink)}
        return [(began_ns[index] - sent_ns[index]) / 1e6 for index in sent_ns if index >= warm_up]

    def _fresh(self) -> None:
        flush(self._url)
        self._sink.unlink(missing_ok=True)

    def _env(self) -> dict[str, str]:
        return {
            "BENCH_REDIS": self._url,
            sink.VARIABLE: str(self._sink),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    @contextmanager
    def _worker(self) -> Iterator[Program]:
        command: list[str | Path] = [self.peer.folder / "bin" / self.peer.command[0], *self.peer.command[1:]]
        program = self._processes.start(self.peer.name, command, env=self._env(), cwd=self._folder)
        with running(program):
            yield program

    def _drive(self, *arguments: str) -> str:
        python = self.peer.folder / "bin" / "python"
        return self._processes.run([python, "-m", self.peer.module, *arguments], env=self._env())

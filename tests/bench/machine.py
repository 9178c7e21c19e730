"""On what the figures were taken."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from fencepost.broker.java import find_java, java_text

REPOSITORY = Path(__file__).resolve().parents[2]


def describe() -> dict[str, Any]:
    """Machine, software and commit; no host name."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release(),
        "system": _system(),
        "clock_source": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "python": platform.python_version(),
        "java": java_text(find_java()).splitlines()[0],
        "versions": {name: metadata.version(name) for name in ("confluent-kafka", "orjson", "psutil")},
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--", "streams", "schemas", "config", "tests/bench")),
        "load_average_at_start": os.getloadavg()[0],
    }


class Busy:
    """How much of the machine programs that are not the benchmark's use: figures taken under load say so.

    What is ours is known without looking while a measurement runs: our own time, that of every child that has ended,
    and that of the processes in `alive`, which were there before and are there after.
    """

    def __init__(self, alive: Sequence[int]) -> None:
        self._alive = [psutil.Process(pid) for pid in alive]
        self._start = self._now()

    def other_cores(self) -> float:
        """Cores used by others since this was made."""
        all_s, ours_s, wall_s = (now - then for now, then in zip(self._now(), self._start, strict=True))
        return max(0.0, all_s - ours_s) / wall_s

    def _now(self) -> tuple[float, float, float]:
        times = psutil.cpu_times()
        busy_s = times.user + times.nice + times.system + times.irq + times.softirq
        ours_s = sum(process.cpu_times().user + process.cpu_times().system for process in self._alive)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            used = resource.getrusage(who)
            ours_s += used.ru_utime + used.ru_stime
        return busy_s, ours_s, time.monotonic()


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _system() -> str:
    names = dict(
        line.split("=", 1) for line in _read("/etc/os-release").splitlines() if "=" in line and not line.startswith("#")
    )
    return names.get("PRETTY_NAME", platform.system()).strip('"')


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"

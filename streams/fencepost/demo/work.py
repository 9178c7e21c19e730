"""The demo's tasks, and the plain producer that triggers some of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from fencepost.cli.taskfile import read_task_files
from fencepost.codec import dumps
from fencepost.core.ids import partition_of
from fencepost.core.task import Definition
from fencepost.demo import beat
from fencepost.kafka.producer import Outgoing, Producer, Sent
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings

PARTITIONS = 6
INTERVALS_MS = {"pulse": 2_000, "backup": 5_000, "report": 60_000}  # of the tasks below, for the check of their slots

_TASK_FILE = """\
[[task]]
id = "pulse"
every = "2s"
handler = {{kind = "python", function = "pulse"}}

[[task]]
id = "report"
cron = "* * * * *"
handler = {{kind = "python", function = "report"}}

[[task]]
id = "backup"
every = "5s"
handler = {{kind = "command", argv = [{argv}]}}
"""


def write_task_file(folder: Path, witness: Path) -> Path:
    """The demo's tasks.toml. The command is a bare interpreter: no shell, no package."""
    argv = [sys.executable, "-I", "-S", str(beat.__file__), str(witness), "1.2"]
    path = folder / "tasks.toml"
    path.write_text(_TASK_FILE.format(argv=", ".join(dumps(part).decode() for part in argv)), encoding="utf-8")
    return path


def read_tasks(path: Path) -> list[Definition]:
    return read_task_files([path])


@dataclass(frozen=True, slots=True)
class Raw:
    """A trigger as it lies in Kafka."""

    key: str
    value: bytes
    sent: Sent


class Shop:
    """A plain producer: key = task ID, value = a little JSON, no headers, no client of ours."""

    def __init__(self, settings: Settings) -> None:
        self._producer = Producer(settings)
        self._topic = Topics(settings.namespace).triggers

    def send(self, tasks: list[str], body: dict[str, object]) -> list[Raw]:
        value = dumps(body)
        sent = self._producer.send_all(Outgoing(self._topic, task, value) for task in tasks)
        return [Raw(task, value, place) for task, place in zip(tasks, sent, strict=True)]

    def close(self) -> None:
        self._producer.close()


def one_per_partition(kind: str) -> dict[int, str]:
    """By partition, a task ID `kind/n` that belongs to it, as any producer with Java's partitioner would find."""
    found: dict[int, str] = {}
    number = 1
    while len(found) < PARTITIONS:
        task = f"{kind}/{number}"
        found.setdefault(partition_of(task.encode(), PARTITIONS), task)
        number += 1
    return dict(sorted(found.items()))

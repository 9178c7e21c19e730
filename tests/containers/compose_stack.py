"""docker-compose.yml, up under a name of its own, and seen from outside: by the engine, in Kafka, in the ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from fencepost.broker.keeper import Keeper
from fencepost.cli.owned import read_owners
from fencepost.client import Client
from fencepost.demo.watch import Watch
from fencepost.demo.witness import check_folder
from fencepost.kafka.scan import scan_key
from fencepost.settings import Settings
from tests.containers.conftest import COMPOSE, run

LIMIT_S = 120.0
PARTITIONS = 12


def host_of(lane: str) -> str:
    """A container's host name, which a lane's name begins with, is the first part of its ID."""
    return lane[:12]


@dataclass(slots=True)
class Stack:
    """`project` names everything the engine holds of it; `ledger` is the folder that all workers' runs write to."""

    project: str
    port: int
    ledger: Path
    worker_image: str

    @property
    def settings(self) -> Settings:
        return Settings.load(files=(), env={}, overrides={"bootstrap": f"127.0.0.1:{self.port}", "profile": "swift"})

    def watch(self) -> Watch:
        return Watch(self.settings, self.ledger, host_of)

    def compose(self, *arguments: object) -> str:
        mine = {
            "COMPOSE_PROJECT_NAME": self.project,
            "FENCEPOST_WORKER_IMAGE": self.worker_image,
            "FENCEPOST_KAFKA_PORT": str(self.port),
            "FENCEPOST_LEDGER": str(self.ledger),
        }
        done = run(COMPOSE / "compose.sh", *arguments, env={**os.environ, **mine})
        assert done.returncode == 0, f"compose {arguments}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def scale(self, workers: int) -> None:
        """Up, with so many workers; returns when they are healthy and all of them hold partitions."""
        self.compose("up", "-d", "--no-build", "--scale", f"worker={workers}")
        self.until(lambda: len(self.workers()) == workers, f"{workers} workers running")
        self.until_settled()

    def until_settled(self) -> None:
        """Every worker healthy, every partition held by one of them, every one of them holding some."""
        self.until(lambda: all(self.health(worker) == "healthy" for worker in self.workers()), "workers healthy")
        self.until(lambda: self.holders() == set(self.workers()), "partitions shared by all workers")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        give_up_at = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < give_up_at, f"{what}: not within {LIMIT_S:.0f} s\n{self.last_words()}"
            time.sleep(0.25)

    def workers(self) -> list[str]:
        """The host names of running workers; they stand for their containers too."""
        return self.listed("ps", "--filter", "label=com.docker.compose.service=worker", "--format", "{{.ID}}")

    def listed(self, *question: str) -> list[str]:
        found = run("docker", *question, "--filter", f"label=com.docker.compose.project={self.project}")
        assert found.returncode == 0, found.stderr
        return sorted(found.stdout.split())

    def lanes(self) -> list[str]:
        """The lane that holds each partition, by the owners topic."""
        return [fence.lane for fence in read_owners(self.settings).fences.values() if not fence.released]

    def holders(self) -> set[str]:
        """Who holds partitions; nobody as long as one is not held."""
        lanes = self.lanes()
        return {host_of(lane) for lane in lanes} if len(lanes) == PARTITIONS else set()

    def health(self, container: str) -> str:
        return str(self.inspect(container)["State"]["Health"]["Status"])

    def inspect(self, container: str) -> dict:  # type: ignore[type-arg]
        found = run("docker", "inspect", container)
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout)[0]  # type: ignore[no-any-return]

    def engine(self, *command: str) -> None:
        done = run("docker", *command)
        assert done.returncode == 0, done.stderr

    def trigger(self, tasks: list[str], seconds: float) -> None:
        """By a plain producer with its stock partitioner, which is not Kafka's own: owners have to forward records."""
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{self.port}"})
        for task in tasks:
            producer.produce("fencepost.triggers", json.dumps({"payload": {"seconds": seconds}}), task)
        assert producer.flush(30) == 0

    def history(self, task: str) -> list[dict[str, Any]]:
        """Committed history of a task, in its order."""
        found = scan_key(self.settings, "fencepost.runs", task, PARTITIONS)
        return [json.loads(record.value) for record in found if record.value is not None]

    def cancel(self, tasks: list[str]) -> None:
        with Client(self.settings) as client:
            for task in tasks:
                client.cancel(task)

    @contextmanager
    def outside_worker(self, log: Path, **variables: str) -> Iterator[str]:
        """A worker on this machine beside those in containers. Yields its worker ID once it holds partitions."""
        name = f"outside-{self.project[-8:]}"
        env = {**os.environ, **variables, "FENCEPOST_BOOTSTRAP": f"127.0.0.1:{self.port}", "FENCEPOST_PROFILE": "swift"}
        command = [sys.executable, "-m", "fencepost.cli.main", "worker", "--app", "shop:app", "--worker-id", name]
        with log.open("wb") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said, env=env, cwd=COMPOSE / "app")
        keeper = Keeper()
        try:
            keeper.keep(process.pid)
            self.until(lambda: any(lane.startswith(f"{name}/") for lane in self.lanes()), f"{name} holding partitions")
            yield name
            process.terminate()
            assert process.wait(60) == 0, log.read_text(errors="replace")[-3000:]
        finally:
            keeper.close()
            process.wait()

    def check(self) -> None:
        """No overlap, no epoch run twice: by what the runs wrote, and by the topics alone."""
        assert check_folder(self.ledger).problems == []
        verdict = run("docker", "exec", self.workers()[0], "fencepost", "verify")
        assert verdict.returncode == 0, verdict.stdout + verdict.stderr

    def last_words(self) -> str:
        """What containers said last, for a failure's message."""
        words = []
        for container in self.listed("ps", "--all", "--format", "{{.Names}}"):
            logs = run("docker", "logs", "--tail", "15", container)
            words.append(f"--- {container}\n{logs.stdout[-3000:]}{logs.stderr[-3000:]}")
        return "\n".join(words)

    def down(self) -> list[str]:
        """Removes it all, whatever state it is in. Returns what is left nevertheless."""
        for container in self.listed("ps", "--filter", "status=paused", "--format", "{{.ID}}"):
            self.engine("unpause", container)
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "10")
        run("docker", "rmi", self.worker_image)  # what it was made of stays, as the cache of the next build
        kinds = (("ps", "--all"), ("volume", "ls"), ("network", "ls"))
        return [name for kind in kinds for name in self.listed(*kind, "--quiet")]

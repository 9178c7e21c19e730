"""Who is there: workers that join and leave at a slot's second, two with one ID, more partitions than agreed."""

from __future__ import annotations

import signal
import subprocess
import time

from confluent_kafka.admin import AdminClient, NewPartitions

from tests.faults.arena import PARTITIONS, Arena
from tests.faults.fault import Fault, Target

SLOT_S = 20  # at its multiples most schedules fire together
EXTRA = "w4"
LOUD_LIMIT_S = 90.0


def wait_for_slot(ahead_s: float = 0.0) -> None:
    """Until a slot's second, or so long before it."""
    now_s = time.time()
    due_s = now_s // SLOT_S * SLOT_S + SLOT_S - ahead_s
    time.sleep((due_s - now_s) % SLOT_S)


class WorkerLeaves(Fault):
    name, target, weight = "worker: leaves (SIGTERM) at a slot's second", Target.WORKER, 2

    def prepare(self) -> None:
        wait_for_slot()

    def inject(self) -> None:
        self.arena.remember(self.worker)
        self.worker.told = True
        self.worker.process.send_signal(signal.SIGTERM)

    def heal(self) -> None:
        self.code = self.worker.process.wait(60)

    def check(self) -> str | None:
        return None if self.code == 0 else f"{self}: it ended with {self.code}"


class WorkerJoins(Fault):
    """One more worker joins at a slot's second, and leaves at another one."""

    name, target = "worker: joins, and leaves, at a slot's second", Target.GROUP

    def prepare(self) -> None:
        self.brief_s = self.dice.uniform(0.0, 6.0)
        wait_for_slot(1.2)  # about as long as a worker takes until it asks to join

    def inject(self) -> None:
        self.arena.start_worker(EXTRA)

    def heal(self) -> None:
        wait_for_slot()
        worker = self.arena.workers[EXTRA]
        self.arena.remember(worker)
        worker.process.send_signal(signal.SIGTERM)
        self.code = worker.process.wait(60)
        self.arena.dismiss(EXTRA)

    def check(self) -> str | None:
        # On a busy machine it may be told to go before it has even begun to listen.
        return None if self.code in (0, -signal.SIGTERM) else f"{self}: it ended with {self.code}"


class SameIdTwice(Fault):
    """A second process with the worker's ID: the one that announced itself earlier has to end itself."""

    name, target = "two workers with one ID", Target.WORKER

    @classmethod
    def why_not(cls, arena: Arena) -> str | None:
        return None if arena.setting.static else "the workers of this arena have no ID of their own"

    def inject(self) -> None:
        self.arena.remember(self.worker)
        self.older = self.worker
        self.older.told = True
        self.arena.start_worker(self.worker.slot, twin=True)

    def heal(self) -> None:
        try:
            self.code: int | None = self.older.process.wait(90)
        except subprocess.TimeoutExpired:
            self.code = None
            self.older.process.kill()
            self.older.process.wait()

    def check(self) -> str | None:
        return None if self.code == 1 else f"{self}: the older one ended with {self.code}, not with 1"


class PartitionsAdded(Fault):
    """Somebody gives a topic more partitions. Every worker has to refuse it, out loud, and none may go on beside."""

    name, target = "partitions added: 12 to 16", Target.NAMESPACE

    def inject(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.arena.settings.bootstrap, "log_level": 0})
        for done in admin.create_partitions([NewPartitions(self.arena.topics.triggers, 16)]).values():
            done.result(30)
        for worker in self.arena.workers.values():
            self.arena.remember(worker)
            worker.told = True

    def heal(self) -> None:
        """Those that run may go on with what they hold or refuse; one that starts has to refuse."""
        worker = self.arena.start_worker("w5")
        worker.told = True
        self.newcomer = worker.process.wait(60)
        self.words = self.arena.last_words(worker)
        self.arena.dismiss("w5")

    def check(self) -> str | None:
        said = str(PARTITIONS) in self.words and "16" in self.words
        return None if self.newcomer == 1 and said else f"{self}: a new worker ended with {self.newcomer}: {self.words}"


GROUP_FAULTS: list[type[Fault]] = [WorkerLeaves, WorkerJoins, SameIdTwice, PartitionsAdded]

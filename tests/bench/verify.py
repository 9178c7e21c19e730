"""How fast `verify` reads, and how much memory it takes: `python -m tests.bench.verify [records] [tasks]`.

A broker of its own, four partitions, history of so many runs of so many tasks, written as a worker writes it. Memory is
the most that the command's process held at once (VmHWM), as the kernel counts it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from fencepost.broker import Cluster
from fencepost.core.commands import History
from fencepost.core.ids import partition_of
from fencepost.core.ownership import FenceRecord
from fencepost.core.task import LastRun, Outcome, TaskState
from fencepost.kafka.admin import init
from fencepost.kafka.topics import Topics
from fencepost.settings import PROFILES, Settings
from fencepost.wire.history import encode_history
from fencepost.wire.owners import encode_fence
from fencepost.wire.state import encode_state
from fencepost.worker.restore import FENCE_KEY

PARTITIONS = 4
LANE, NONCE = "w1-7f3c/0", "b2e19c"
# In a process of its own: what it held at most would otherwise be this program's.
_CHILD = """
import sys
from fencepost.cli.main import run
code = run(sys.argv[1:])
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak, file=sys.stderr)
sys.exit(code)
"""


def main(records: int = 300_000, tasks: int = 1_000) -> None:
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder) / "kafka", heap_mb=512) as cluster:
        settings = Settings(bootstrap=cluster.bootstrap, namespace="bench", profile="quick", **PROFILES["quick"])
        init(settings, partitions=PARTITIONS)
        _write(settings, records, tasks)
        began_s = time.monotonic()
        command = [sys.executable, "-c", _CHILD, "verify", "--json", "--bootstrap", cluster.bootstrap]
        done = subprocess.run(
            [*command, "--namespace", "bench"], capture_output=True, text=True, check=False, env={**os.environ}
        )
        took_s = time.monotonic() - began_s
        document = json.loads(done.stdout)
        peak_mb = int(done.stderr.splitlines()[-1]) // 1024
        print(
            f"{document['events']:,} events and {document['tasks']:,} tasks in {took_s:.1f} s "
            f"({document['events'] / took_s:,.0f} events/s), at most {peak_mb} MB; holds: {document['holds']}"
        )


def _write(settings: Settings, records: int, tasks: int) -> None:
    topics = Topics(settings.namespace)
    producer = Producer({"bootstrap.servers": settings.bootstrap, "linger.ms": 20, "batch.size": 1_000_000})
    at_ms = time.time_ns() // 1_000_000
    for number in range(PARTITIONS):
        fence = encode_fence(FenceRecord(number, LANE, NONCE, ring=(), worker="w1"))
        producer.produce(topics.owners, fence, str(number).encode(), number)
        producer.produce(topics.state, fence, FENCE_KEY, number)
    epochs = max(1, records // 2 // tasks)
    for number in range(tasks):
        task = f"task/{number}"
        last = LastRun(epochs, Outcome.SUCCEEDED, None, at_ms)
        _send(producer, topics.state, task, encode_state(TaskState(task, epochs, last=last), LANE, NONCE))
    for epoch in range(1, epochs + 1):
        for number in range(tasks):
            task = f"task/{number}"
            begun = {"attempt": 1, "lease_ttl_s": 15.0, "waited_s": 0.0, "trigger": f"t{epoch}"}
            over = {"attempt": 1, "duration_s": 0.0, "trigger": f"t{epoch}"}
            for event in (History("started", epoch, at_ms, begun), History("succeeded", epoch, at_ms, over)):
                _send(producer, topics.runs, task, encode_history(task, event, LANE, NONCE))
    assert producer.flush(60) == 0


def _send(producer: Producer, topic: str, task: str, value: bytes) -> None:
    key = task.encode()
    while True:
        try:
            producer.produce(topic, value, key, partition_of(key, PARTITIONS))
            return
        except BufferError:
            producer.poll(0.1)


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:3]))

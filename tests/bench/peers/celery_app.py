"""Celery: JSON, Redis, late acknowledgement, no results. Run as a module it enqueues."""

from __future__ import annotations

import os
import sys

from celery import Celery

from tests.bench.peers.driver import drive
from tests.bench.sink import Sink

app = Celery("bench", broker=os.environ.get("BENCH_REDIS", ""))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=int(os.environ.get("BENCH_PREFETCH", "4")),  # 4: Celery's own default
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)
sink = Sink()


@app.task(name="bench.trace")
def trace(index: int) -> None:
    sink.write(index)


if __name__ == "__main__":
    drive(sys.argv[1:], trace.delay)

"""Dramatiq: JSON, Redis; it acknowledges after the task by itself. Run as a module it enqueues."""

from __future__ import annotations

import os
import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.bench.peers.driver import drive
from tests.bench.sink import Sink

dramatiq.set_broker(RedisBroker(url=os.environ.get("BENCH_REDIS", "")))
sink = Sink()


@dramatiq.actor
def trace(index: int) -> None:
    sink.write(index)


if __name__ == "__main__":
    drive(sys.argv[1:], trace.send)

"""From producing a trigger to the task's first line, everything being idle.

One clock for both ends: CLOCK_MONOTONIC, read just before the trigger is handed to the client, and by the task.
"""

from __future__ import annotations

import random
import time

from tests.bench import sink
from tests.bench.bench import Bench, Result, say
from tests.bench.kafka_side import Namespace
from tests.bench.peers.side import CELERY, DRAMATIQ, PeerSide
from tests.bench.redis_server import redis
from tests.bench.stats import distribution

SPACING_S = (0.04, 0.08)
WARM_UP = 100  # the broker compiles its code as it goes


def measure(bench: Bench) -> Result:
    result = Result("latency")
    samples = bench.choose(500, 60)
    taken = {"fencepost": _fencepost(bench.namespace(), samples)}
    with redis(bench.processes, bench.folder) as url:
        for peer in (CELERY, DRAMATIQ):
            taken[peer.name] = PeerSide(peer, bench.processes, bench.folder, url).latencies_ms(
                WARM_UP, samples, SPACING_S
            )
    for name, values in taken.items():
        figures = distribution(values)
        say(f"{name}: p50 {figures['p50']:.1f} ms, p99 {figures['p99']:.1f} ms")
        result.figures[name] = {**figures, "values_ms": [round(value, 3) for value in values]}
        text = f"{figures['p50']:>8.1f} {figures['p99']:>8.1f} {figures['max']:>8.1f} ms   ({len(values)} samples)"
        result.row(f"trigger to first line, {name}: p50, p99, most", text)
    own = result.figures["fencepost"]
    result.goal("p50 of 10 ms or less", own["p50"] <= 10)
    result.goal("p99 of 30 ms or less", own["p99"] <= 30)
    return result


def _fencepost(namespace: Namespace, samples: int) -> list[float]:
    """A plain producer (linger 0) and one idle worker; every trigger is for another task."""
    sent_ns: list[int] = []
    spacing = random.Random(1)
    producer = namespace.producer(linger_ms=0)
    with namespace.worker() as worker:
        for number in range(WARM_UP + samples):
            time.sleep(spacing.uniform(*SPACING_S))
            value = b'{"payload":{"n":%d}}' % number
            sent_ns.append(time.clock_gettime_ns(time.CLOCK_MONOTONIC))
            producer.produce(namespace.topics.triggers, value, f"trace/{number}")
            producer.poll(0)
        producer.flush(10)
        namespace.wait_traces(WARM_UP + samples, 30, "the last samples", [worker.program])
    began_ns: dict[int, int] = {trace.index: trace.monotonic_ns for trace in sink.read(namespace.sink)}
    return [(began_ns[number] - sent_ns[number]) / 1e6 for number in range(WARM_UP, WARM_UP + samples)]

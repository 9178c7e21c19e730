"""How many no-op runs a second pass through launch() and take(), without Kafka: python -m tests.worker.benchmark

Prints one JSON line. Not a test: it says how fast this machine was while others used it too.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import psutil

from fencepost.worker.guard import linux
from fencepost.worker.guard.client import GuardedRunners
from fencepost.worker.orders import RunEnded, RunOrder
from tests.worker.bench import family, order, settings

PARTITIONS = 16
IN_FLIGHT = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--target", default="noop", choices=["noop", "async_echo"])
    asked = parser.parse_args()
    with GuardedRunners(settings(slots=IN_FLIGHT, shared_processes=asked.processes)) as runners:
        for partition in range(PARTITIONS):
            runners.lease(partition, "n1", linux.boot_s())
        orders = [
            order(f"t{number}", asked.target, partition=number % PARTITIONS, payload={"n": number}, lease_ttl_s=600.0)
            for number in range(asked.runs)
        ]
        began, own = time.perf_counter(), time.process_time()
        _run(runners, orders)
        took_s, own_s = time.perf_counter() - began, time.process_time() - own
        theirs_s = sum(sum(process.cpu_times()[:2]) for process in family(runners.guard_pid))
    print(
        json.dumps(
            {
                "runs": asked.runs,
                "target": asked.target,
                "processes": asked.processes,
                "runs_per_s": round(asked.runs / took_s),
                "worker_us_per_run": round(own_s / asked.runs * 1e6, 1),
                "runners_us_per_run": round(theirs_s / asked.runs * 1e6, 1),
                "cpus": os.cpu_count(),
                "load_1_min": round(psutil.getloadavg()[0], 1),
            }
        )
    )


def _run(runners: GuardedRunners, orders: list[RunOrder]) -> None:
    sent = done = 0
    while done < len(orders):
        room = min(IN_FLIGHT - runners.in_flight(), len(orders) - sent)
        if room > IN_FLIGHT // 4 or 0 < room == len(orders) - sent:
            runners.launch(orders[sent : sent + room])
            sent += room
        runners.wait(1.0)
        done += sum(type(report) is RunEnded for report in runners.take())


if __name__ == "__main__":
    main()

"""A worker process of its own, for tests that freeze or kill it: runs what it is told, says how it goes.

argv: JSON of settings, of orders (changes to the defaults) and how to go on. One JSON line each is printed.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from fencepost.core.task import Isolation
from fencepost.worker.guard.client import GuardLost
from fencepost.worker.orders import RunEnded
from tests.worker.bench import Bench, GuardedRunners, linux, order, settings


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    asked = json.loads(sys.argv[1])
    runners = GuardedRunners(settings(commands=("/bin/sh",), **asked.get("settings", {})))
    bench = Bench(runners)
    orders = []
    for each in asked["orders"]:
        isolation = Isolation(each.pop("isolation", "shared"))
        target = each.pop("target")
        orders.append(order(target=tuple(target) if isinstance(target, list) else target, isolation=isolation, **each))
    if asked.get("beats"):
        runners.beat()
    began = linux.boot_s()
    runners.lease(0, "n1", began)
    bench.start(*orders)
    say(event="started", guard=runners.guard_pid, began=began)
    try:
        while True:
            if asked.get("renews"):
                runners.lease(0, "n1", linux.boot_s())
            if asked.get("beats") != "once":
                runners.beat()
            runners.wait(0.05)
            for report in runners.take():
                if isinstance(report, RunEnded):
                    say(event="ended", task=report.task, outcome=report.outcome, cause=report.cause)
    except GuardLost as lost:
        say(event="lost", why=str(lost), at=time.clock_gettime(time.CLOCK_BOOTTIME))
        sys.exit(1)


if __name__ == "__main__":
    main()

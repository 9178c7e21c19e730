"""A worker that does one thing wrong, at a point that no signal from outside could hit.

`python -m tests.scenarios.bent worker …` is `fencepost worker …` after what SCENARIO_BEND (JSON) says was bent:

- `clock_s`: its wall clock is so many seconds ahead (negative: behind). `trusting`: and it never compares it.
- `unguarded`: the guard lets runs live an hour beyond their lease, as if its machine's clock had stood still.
- `die`: SIGKILL to itself where a batch that holds `task` is "before start", "in start" (records written, transaction
  open), "after start", "before end", "in end", "after end" on its way.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any

from fencepost.cli.main import main
from fencepost.worker import worker
from fencepost.worker.batch import Batch
from fencepost.worker.clock import Clock
from fencepost.worker.commit import Committer, Pushed
from fencepost.worker.guard.client import GuardedRunners
from fencepost.worker.orders import RunOrder


def bend_clock(shift_s: float, trusting: bool) -> None:
    shift_ms = int(shift_s * 1000)

    class BentClock(Clock):
        def now_ms(self) -> int:
            return int(time.time() * 1000) + shift_ms + self.correction_ms

        @staticmethod
        def wall_ms() -> int:
            return int(time.time() * 1000) + shift_ms

        def observe(self, sent_wall_ms: int, appended_ms: int, read_wall_ms: int) -> bool:
            return False if trusting else super().observe(sent_wall_ms, appended_ms, read_wall_ms)

    worker.Clock = BentClock  # type: ignore[misc,attr-defined]


def bend_commits(where: str, task: str) -> None:
    when, what = where.split()
    push, check = Committer.push, Committer._check
    concerned = [False]

    def holds(batch: Batch) -> bool:
        for part in batch.parts.values():
            tasks = [name for name, _ in part.launches] if what == "start" else [item.task for item in part.reports]
            if any(name == task or name.startswith(f"{task}/") for name in tasks):
                return True
        return False

    def bent_push(self: Committer, batch: Batch) -> Pushed:
        concerned[0] = holds(batch)
        if when == "before" and concerned[0]:
            die()
        pushed = push(self, batch)
        if when == "after" and pushed is Pushed.CONFIRMED and concerned[0]:
            die()
        return pushed

    def bent_check(self: Committer, nonces: dict[int, str]) -> None:
        # Called when the records were flushed and the offsets were not sent yet: the transaction is open.
        if when == "in" and concerned[0]:
            die()
        check(self, nonces)

    Committer.push = bent_push  # type: ignore[method-assign]
    Committer._check = bent_check  # type: ignore[method-assign]


def bend_leases() -> None:
    launch = GuardedRunners._launch

    def bent_launch(self: GuardedRunners, order: RunOrder, now: float) -> None:
        launch(self, replace(order, lease_ttl_s=order.lease_ttl_s + 3600), now)

    GuardedRunners._launch = bent_launch  # type: ignore[method-assign]


def die() -> None:
    print(json.dumps({"event": "dying by its own hand"}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def bend(how: dict[str, Any]) -> None:
    if "clock_s" in how:
        bend_clock(how["clock_s"], how.get("trusting", False))
    if how.get("unguarded"):
        bend_leases()
    if "die" in how:
        bend_commits(how["die"], how["task"])


if __name__ == "__main__":
    bend(json.loads(os.environ["SCENARIO_BEND"]))
    sys.argv[0] = "fencepost"
    main()

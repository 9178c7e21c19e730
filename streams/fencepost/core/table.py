"""Every transition of a task, in one table.

A task has the status of its run: idle, running, or in backoff (its work waits for the next attempt). The table says,
for each status and kind of event, what handles it and in which statuses the task may be afterwards. A pair that is not
here is illegal: the machine raises and nothing changes. The state diagram in the documentation is made from this table.

                idle        running               backoff
    Defined     same        same                  same, idle (*)
    Deleted     same        same (may still end)  idle
    Triggered   same        same                  same, idle (overlap = cancel, terminate)
    Woken       same        same                  same, idle (overlap = cancel, terminate)
    Started     running (**) illegal              running
    Ended       illegal     idle, backoff         illegal
    Interrupted illegal     idle, backoff         illegal
    Adopted     illegal     same                  illegal
    Checkpointed illegal    same                  illegal
    Cancelled   same        same (asked to stop)  idle
    Paused      same        same                  same, idle (*)
    Resumed     same        same                  same
    Backfilled  same        same                  same
    Rerun       same        same                  same, idle (overlap = cancel, terminate)
    Signalled   same        same                  same, idle (overlap = cancel, terminate)

(*) A slot that is due under the old schedule, or before the pause, is decided on first, by the overlap policy.
(**) idle where the request becomes runs of the task's shards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fencepost.core.commands import Command
from fencepost.core.events import (
    Adopted,
    Backfilled,
    Cancelled,
    Checkpointed,
    Defined,
    Deleted,
    Ended,
    Event,
    Interrupted,
    Paused,
    Rerun,
    Resumed,
    Signalled,
    Started,
    Triggered,
    Woken,
)
from fencepost.core.steps.backfill import backfill
from fencepost.core.steps.move import defined, deleted, ended, interrupted
from fencepost.core.steps.operator import cancelled, paused, resumed
from fencepost.core.steps.rerun import rerun
from fencepost.core.steps.signal import signalled
from fencepost.core.steps.start import adopted, checkpointed, started
from fencepost.core.steps.time import woken
from fencepost.core.steps.trigger import triggered
from fencepost.core.task import Status, Task

# (task, event, now_ms) -> (task afterwards, commands). The event has the kind of the table's row.
Handler = Callable[[Task, Any, int], tuple[Task, tuple[Command, ...]]]


@dataclass(frozen=True, slots=True)
class Transition:
    """What handles an event, and in which statuses the task may be afterwards."""

    handler: Handler
    leads_to: tuple[Status, ...]


IDLE, RUNNING, BACKOFF = Status.IDLE, Status.RUNNING, Status.BACKOFF

TABLE: Final[dict[tuple[Status, type[Event]], Transition]] = {
    (IDLE, Defined): Transition(defined, (IDLE,)),
    (RUNNING, Defined): Transition(defined, (RUNNING,)),
    (BACKOFF, Defined): Transition(defined, (BACKOFF, IDLE)),
    (IDLE, Deleted): Transition(deleted, (IDLE,)),
    (RUNNING, Deleted): Transition(deleted, (RUNNING,)),
    (BACKOFF, Deleted): Transition(deleted, (IDLE,)),
    (IDLE, Triggered): Transition(triggered, (IDLE,)),
    (RUNNING, Triggered): Transition(triggered, (RUNNING,)),
    (BACKOFF, Triggered): Transition(triggered, (BACKOFF, IDLE)),
    (IDLE, Woken): Transition(woken, (IDLE,)),
    (RUNNING, Woken): Transition(woken, (RUNNING,)),
    (BACKOFF, Woken): Transition(woken, (BACKOFF, IDLE)),
    (IDLE, Started): Transition(started, (RUNNING, IDLE)),
    (BACKOFF, Started): Transition(started, (RUNNING,)),
    (RUNNING, Ended): Transition(ended, (IDLE, BACKOFF)),
    (RUNNING, Interrupted): Transition(interrupted, (IDLE, BACKOFF)),
    (RUNNING, Adopted): Transition(adopted, (RUNNING,)),
    (RUNNING, Checkpointed): Transition(checkpointed, (RUNNING,)),
    (IDLE, Cancelled): Transition(cancelled, (IDLE,)),
    (RUNNING, Cancelled): Transition(cancelled, (RUNNING,)),
    (BACKOFF, Cancelled): Transition(cancelled, (IDLE,)),
    (IDLE, Paused): Transition(paused, (IDLE,)),
    (RUNNING, Paused): Transition(paused, (RUNNING,)),
    (BACKOFF, Paused): Transition(paused, (BACKOFF, IDLE)),
    (IDLE, Backfilled): Transition(backfill, (IDLE,)),
    (RUNNING, Backfilled): Transition(backfill, (RUNNING,)),
    (BACKOFF, Backfilled): Transition(backfill, (BACKOFF,)),
    (IDLE, Rerun): Transition(rerun, (IDLE,)),
    (RUNNING, Rerun): Transition(rerun, (RUNNING,)),
    (BACKOFF, Rerun): Transition(rerun, (BACKOFF, IDLE)),
    (IDLE, Resumed): Transition(resumed, (IDLE,)),
    (RUNNING, Resumed): Transition(resumed, (RUNNING,)),
    (BACKOFF, Resumed): Transition(resumed, (BACKOFF,)),
    (IDLE, Signalled): Transition(signalled, (IDLE,)),
    (RUNNING, Signalled): Transition(signalled, (RUNNING,)),
    (BACKOFF, Signalled): Transition(signalled, (BACKOFF, IDLE)),
}

"""What the end of a run is reported as. A run that was asked to stop never succeeded, whatever it says itself."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

from fencepost.core.task import CANCELLED, INTERRUPTED, SUCCEEDED, Cause, Outcome
from fencepost.worker.guard import wire
from fencepost.worker.guard.control import Kind, Why
from fencepost.worker.guard.process import Run, RunnerProcess
from fencepost.worker.orders import Refused, RunEnded, RunReport

STOP_OUTCOMES = {
    "cancelled": CANCELLED,
    "timed_out": Outcome.TIMED_OUT,
    "interrupted": INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class Death:
    """How a runner's process ended. `status` is a wait status, -1 where it is not known."""

    why: Why
    token: int = 0  # LIMITED: the run that had passed its limit
    status: int = -1
    expired: tuple[tuple[int, float], ...] = ()  # FENCED: lease numbers and lives
    current: int = 0  # the run that was on, in a process that takes one at a time


def said(run: Run, item: Any) -> RunReport:
    """The end that a runner reported."""
    _, _, code, result, error, _, exit_code = item[:7]
    task, epoch = run.order.task, run.order.epoch
    if run.stop_reason is not None:
        return stopped(run, error, exit_code)
    if code == wire.SUCCEEDED:
        return RunEnded(task, epoch, SUCCEEDED, None, result, None, exit_code)
    if code == wire.REFUSED:
        return Refused(task, epoch, False)
    if code == wire.FENCED:
        return RunEnded(task, epoch, INTERRUPTED, Cause.FENCED, None, error, exit_code)
    if code == wire.TIMED_OUT:
        text = error or f"time limit of {run.order.timeout_s:g} s"
        return RunEnded(task, epoch, Outcome.TIMED_OUT, None, None, text, exit_code)
    if error is None and exit_code is not None:
        error = exit_text(exit_code, run.process.tail if run.process is not None else b"")
    names = tuple(item[7]) if len(item) > 7 else ()
    return RunEnded(task, epoch, Outcome.FAILED, None, None, error, exit_code, names, final=code == wire.FINAL)


def killed(run: Run, process: RunnerProcess, death: Death) -> RunEnded:
    """The end of a run whose process is gone without a word about it."""
    task, epoch = run.order.task, run.order.epoch
    if death.why is Why.FENCED and (run.lease.number, run.life_s) in death.expired:
        return RunEnded(task, epoch, INTERRUPTED, Cause.FENCED)
    if run.stop_reason is not None:
        return stopped(run)
    if death.why is Why.LIMITED and run.token == death.token:
        text = f"time limit of {run.order.timeout_s:g} s: killed after its grace"
        return RunEnded(task, epoch, Outcome.TIMED_OUT, error=text)
    # Of coroutines nobody can tell which one did it; if none were blamed, the one that did would be run for ever.
    if death.why is Why.ENDED and (process.own or process.kind is not Kind.SYNC or run.token == death.current):
        return failed(run, _status_text(death.status, len(process.runs)))
    cause = Cause.STOPPED if death.why is Why.KILLED else Cause.NEIGHBOUR
    return RunEnded(task, epoch, INTERRUPTED, cause)


def stopped(run: Run, error: str | None = None, exit_code: int | None = None) -> RunEnded:
    """The end of a run as what it was stopped for."""
    outcome = STOP_OUTCOMES[run.stop_reason or "interrupted"]
    cause = (run.stop_cause or Cause.STOPPED) if outcome is INTERRUPTED else None
    if run.limit is not None and outcome is Outcome.TIMED_OUT:
        error = error or f"no {run.limit} for {run.order.heartbeat_s:g} s"
    return RunEnded(run.order.task, run.order.epoch, outcome, cause, None, error, exit_code, limit=run.limit)


def failed(run: Run, error: str) -> RunEnded:
    return RunEnded(run.order.task, run.order.epoch, Outcome.FAILED, error=error)


def exit_text(exit_code: int, stderr_tail: bytes = b"") -> str:
    """For people. Negative, or above 128 as shells have it: ended by a signal."""
    name = _signal_name(-exit_code if exit_code < 0 else exit_code - 128)
    text = f"exit code {exit_code}" if name is None else f"ended by {name}"
    last = stderr_tail.decode("utf-8", "replace").strip()
    return f"{text}: {last}" if last else text


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _status_text(status: int, runs: int) -> str:
    how = "" if status == -1 else f" ({exit_text(os.waitstatus_to_exitcode(status))})"
    among = "" if runs == 1 else f" with {runs} runs in it"
    return f"its process ended{how}{among}"

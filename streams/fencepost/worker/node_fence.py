"""Fencing of the node: a command that makes certain that a lost worker runs nothing any more.

The lease protocol waits until a lost worker's runs are over for certain. Where somebody can make certain of that at
once (a hypervisor, a cluster manager, a switch, a power strip), the new owner asks: `fence.command` runs with the lost
worker's identity, and its exit code 0 ends the wait. Any other end, and none within `fence.timeout_s`, is recorded and
changes nothing: the wait is served. One command a lost lane and process; other new owners may run it too, so it has to
be harmless to repeat. An earlier process of this worker's own name is never fenced: that would be the own node.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from fencepost.core.task import NodeFenced
from fencepost.worker.meters import Meters, NoMeters

AT_ONCE = 4  # commands; more lost workers than that wait their turn
TOLD_BYTES = 500  # of what a failed command said

Whereabouts = tuple[str, int]  # host, process ID


@dataclass(frozen=True, slots=True)
class LostLane:
    """Whom to fence. host and pid are those of the workers topic: empty and None where it no longer knows."""

    lane: str
    worker: str
    incarnation: str
    host: str = ""
    pid: int | None = None

    def variables(self, namespace: str) -> dict[str, str]:
        """What the command is told, as environment and, in braces, in its arguments: `{worker}`, `{host}`, …"""
        return {
            "worker": self.worker,
            "incarnation": self.incarnation,
            "lane": self.lane,
            "host": self.host,
            "pid": "" if self.pid is None else str(self.pid),
            "namespace": namespace,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one command."""

    lane: str
    outcome: NodeFenced
    took_s: float
    why: str = ""


def parse_lane(lane: str) -> LostLane:
    """The identity that a lane ID holds: worker/ordinal/incarnation."""
    rest, _, incarnation = lane.rpartition("/")
    worker, _, _ordinal = rest.rpartition("/")
    return LostLane(lane, worker, incarnation)


class NodeFence:
    """Of one lane, whose thread makes all calls; the commands run beside it. Without a command it fences nothing.

    `find` gives host and process ID of (worker, incarnation), or None, and may raise; it is called beside the lane.
    """

    def __init__(
        self,
        command: Sequence[str] = (),
        limit_s: float = 10.0,
        *,
        namespace: str = "",
        own_worker: str = "",
        find: Callable[[str, str], Whereabouts | None] = lambda _worker, _incarnation: None,
        meters: Meters | None = None,
        log: Any = None,
    ) -> None:
        self._command, self._limit_s = tuple(command), limit_s
        self._namespace, self._own_worker = namespace, own_worker
        self._find = find
        self._meters = NoMeters() if meters is None else meters
        self._log = structlog.get_logger("fencepost.worker") if log is None else log
        self._side = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fencepost-fence") if self._command else None
        self._asked: set[str] = set()
        self._done: list[Verdict] = []  # appended to beside the lane; a list's append and pop are atomic
        self._verdicts: dict[str, Verdict] = {}

    def ask(self, lane: str) -> None:
        """Fence the node of a lost lane, once."""
        lost = parse_lane(lane)
        if self._side is None or lane in self._asked or lost.worker == self._own_worker:
            return
        self._asked.add(lane)
        self._log.info("fencing a lost worker's node", lost=lost.worker, lost_lane=lane)
        self._side.submit(self._work, lost)

    def take(self) -> bool:
        """Whether a verdict came since the last call; what was said is logged and counted here."""
        came = False
        while self._done:
            verdict = self._done.pop(0)
            self._verdicts[verdict.lane] = verdict
            came = True
            self._meters.node_fenced(verdict.outcome.value)
            if verdict.outcome is NodeFenced.CONFIRMED:
                self._log.info("node fenced", lost_lane=verdict.lane, took_s=verdict.took_s)
            else:
                self._log.warning(
                    "node not fenced: its leases are waited for",
                    lost_lane=verdict.lane,
                    outcome=verdict.outcome.value,
                    why=verdict.why,
                )
        return came

    def outcome(self, lane: str) -> NodeFenced | None:
        """What the command for this lane came to, so far as `take` has seen it."""
        verdict = self._verdicts.get(lane)
        return None if verdict is None else verdict.outcome

    def confirmed(self, lane: str) -> bool:
        return self.outcome(lane) is NodeFenced.CONFIRMED

    def close(self) -> None:
        if self._side is not None:
            self._side.shutdown(wait=False, cancel_futures=True)

    def _work(self, lost: LostLane) -> None:
        began_s = time.monotonic()
        try:
            where = self._find(lost.worker, lost.incarnation)
            if where is not None:
                lost = LostLane(lost.lane, lost.worker, lost.incarnation, *where)
            outcome, why = self._run(lost)
        except Exception as failure:  # noqa: BLE001 - whatever it was, nothing is confirmed
            outcome, why = NodeFenced.FAILED, f"{type(failure).__name__}: {failure}"
        self._done.append(Verdict(lost.lane, outcome, round(time.monotonic() - began_s, 3), why))

    def _run(self, lost: LostLane) -> tuple[NodeFenced, str]:
        told = lost.variables(self._namespace)
        command = [_filled(argument, told) for argument in self._command]
        env = {**os.environ, **{f"FENCEPOST_LOST_{name.upper()}": value for name, value in told.items()}}
        return run_command(command, env, self._limit_s)


def _filled(argument: str, told: Mapping[str, str]) -> str:
    """Raises ValueError where the command wants to know what nobody knows any more."""
    for name, value in told.items():
        place = "{" + name + "}"
        if place in argument:
            if not value:
                raise ValueError(f"{name} of the lost worker is not known any more")
            argument = argument.replace(place, value)
    return argument


def run_command(command: list[str], env: Mapping[str, str], limit_s: float) -> tuple[NodeFenced, str]:
    """Run it without a shell, in a session of its own, which ends with it. Returns (outcome, why).

    What it says goes to a file: a grandchild that keeps a pipe open would hold up whoever reads it.
    """
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=env, start_new_session=True
            )
        except OSError as error:
            return NodeFenced.FAILED, f"{command[0]}: {error.strerror}"
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return NodeFenced.TIMED_OUT, f"no end after {limit_s:g} s"
        finally:
            _sweep(process)
        if code == 0:
            return NodeFenced.CONFIRMED, ""
        said.seek(0)
        text = said.read(TOLD_BYTES).decode("utf-8", "replace").strip()
        return NodeFenced.FAILED, f"exit code {code}" + (f": {text}" if text else "")


def _sweep(process: subprocess.Popen[bytes]) -> None:
    """What the command left behind in its session goes with it; then its own end is collected."""
    with suppress(ProcessLookupError):  # nothing is left, which is how it should be
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

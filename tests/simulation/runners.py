"""Guard and runners of one process, without processes: the rules of `worker/guard/` in virtual time.

The guard goes by the real `Deadlines`. It lives on while the worker is paused, ends runs before their deadline, and is
ended itself by its kernel timer, paused or not, with the runs behind it. What is simulated is how long each takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.core.task import Cause, Outcome
from fencepost.worker.guard.client import GuardLost
from fencepost.worker.guard.deadlines import DIE_EARLY_S, Deadlines, Key
from fencepost.worker.orders import Refused, RunEnded, RunOrder, RunReport
from tests.simulation.kernel import Event

if TYPE_CHECKING:
    from tests.simulation.process import Process

KILL_US = (500, 150_000)  # from the guard's decision until nothing of a run lives
BEHIND_US = (0, 89_000)  # from the guard's own death until its runners are gone
PIPE_US = (20, 400)
BEAT_LOOK_S = 5.0
OUTCOMES = {
    "cancelled": Outcome.CANCELLED,
    "timed_out": Outcome.TIMED_OUT,
    "interrupted": Outcome.INTERRUPTED,
}


@dataclass(slots=True, eq=False)
class SimRun:
    """One run, from its order to its end."""

    number: int
    order: RunOrder
    key: Key
    alive: bool = False
    over: bool = False  # reported, or gone with the process
    stop_reason: str | None = None
    stop_cause: Cause | None = None
    ends: Event | None = None
    failed: bool = False


class SimRunners:
    """The `Runners` protocol. `guarded` False: deadlines mean nothing (the safeguard is off)."""

    guarded = True

    def __init__(self, process: Process, capacity: int, margin_s: float, beat_ttl_s: float) -> None:
        self._process = process
        self._kernel = process.world.kernel
        self._random = process.world.random
        self._clock = process.clock
        self._facts = process.world.facts
        self._margin_s = margin_s
        self._beat_ttl_s = beat_ttl_s
        self.capacity = capacity
        self.runs: dict[tuple[str, int], SimRun] = {}
        self.had: dict[str, int] = {}
        self._reports: list[RunReport] = []
        self._leases: dict[tuple[int, str], tuple[int, float]] = {}  # (partition, nonce) -> number, began
        self._numbers = 0
        self._lost = False
        self.beaten_for = False  # by a thread of its own, while the lane is not open yet
        self._on_reports: Callable[[], None] = lambda: None
        # the guard's side
        self.guard_dead = False
        self._guard_paused = False
        self._held_up: list[Callable[[], None]] = []
        self._deadlines = Deadlines()
        self._by_number: dict[int, SimRun] = {}
        self._look: Event | None = None
        self._kernel_timer: Event | None = None
        self._beat_at_us = self._kernel.now_us
        self._kernel.after(self._clock.true_us(BEAT_LOOK_S), self._look_at_beat)

    def on_reports(self, wake: Callable[[], None]) -> None:
        self._on_reports = wake

    # -- what the lane calls --

    def lease(self, partition: int, nonce: str, began_boot_s: float) -> None:
        known = self._leases.get((partition, nonce))
        if known is None:
            self._numbers += 1
            known = (self._numbers, float("-inf"))
        if began_boot_s > known[1]:
            number = known[0]
            self._leases[partition, nonce] = (number, began_boot_s)
            self._to_guard(lambda: self._renewed(number, began_boot_s))

    def launch(self, orders: Sequence[RunOrder]) -> None:
        if self._lost:
            raise GuardLost("the guard is gone")
        now = self._clock.boot_s()
        for order in orders:
            self._launch(order, now)

    def _launch(self, order: RunOrder, now: float) -> None:
        if self.had.get(order.task, 0) >= order.epoch:
            self._reports.append(Refused(order.task, order.epoch, True))
            return
        lease = self._leases.get((order.partition, order.nonce))
        life_s = order.lease_ttl_s - self._margin_s
        if lease is None or (self.guarded and now >= lease[1] + life_s - 0.3):
            self._reports.append(Refused(order.task, order.epoch, False))
            return
        self.had[order.task] = order.epoch
        self._numbers += 1
        run = SimRun(self._numbers, order, (lease[0], life_s))
        self.runs[order.task, order.epoch] = run
        self._to_guard(lambda: self._spawn(run))

    def stop(self, task: str, epoch: int, reason: str, cause: Cause | None, grace_s: float) -> None:
        run = self.runs.get((task, epoch))
        if run is None:
            return
        if run.stop_reason is None:
            run.stop_reason, run.stop_cause = reason, cause
        if self._random.random() < 0.5:  # it heeds the request
            self._kernel.after(self._random.randint(1_000, 400_000), lambda: self._ended_by_itself(run))
        limit_us = self._clock.true_us(grace_s)
        self._to_guard(lambda: self._guard_after(limit_us, lambda: self._kill(run)))

    def rebind(self, partition: int, old_nonce: str, new_nonce: str) -> None:
        old = self._leases.pop((partition, old_nonce), None)
        if old is None:
            return
        new = self._leases.get((partition, new_nonce))
        if new is None:
            self._leases[partition, new_nonce] = old
            return
        self._leases[partition, new_nonce] = (new[0], max(old[1], new[1]))
        for run in self.runs.values():
            if run.key[0] == old[0]:
                run.key = (new[0], run.key[1])
        self._to_guard(lambda: self._rebound(old[0], new[0]))

    def holds(self, task: str, epoch: int) -> bool:
        return (task, epoch) in self.runs

    def beat(self) -> None:
        self._beat_at_us = self._kernel.now_us

    def wait(self, timeout_s: float) -> bool:
        raise NotImplementedError("the lane does not wait here")

    def take(self) -> list[RunReport]:
        reports, self._reports = self._reports, []
        if not reports and self._lost:
            raise GuardLost("the guard is gone")
        return reports

    @property
    def has_reports(self) -> bool:
        return bool(self._reports) or self._lost

    def in_flight(self) -> int:
        return len(self.runs)

    def room(self) -> int:
        return 0 if self._lost else max(0, self.capacity - len(self.runs))

    def close(self, grace_s: float) -> None:
        self.end_all()

    # -- what befalls the worker and the guard --

    def worker_died(self) -> None:
        """The guard sees the end of its pipe and sweeps."""
        self._to_guard(self.end_all)

    def end_all(self) -> None:
        """Guard and runs are gone, now."""
        self.guard_dead = True
        for run in list(self._by_number.values()):
            self._dies(run)

    def guard_dies(self) -> None:
        """It was killed, by somebody or by its own timer; its runs follow."""
        if self.guard_dead:
            return
        self.guard_dead = True
        self._process.say("guard dies")
        last_us = 0
        for run in list(self._by_number.values()):
            delay_us = self._random.randint(*BEHIND_US)
            last_us = max(last_us, delay_us)
            self._kernel.after(delay_us, lambda run=run: self._dies(run))  # type: ignore[misc]
        self._kernel.after(last_us + 1_000, lambda: self._process.when_running(self._guard_is_gone))

    def pause_guard(self) -> None:
        self._guard_paused = True

    def resume_guard(self) -> None:
        self._guard_paused = False
        held_up, self._held_up = self._held_up, []
        for action in held_up:
            if not self.guard_dead:
                action()

    # -- the guard --

    def _to_guard(self, message: Callable[[], None]) -> None:
        # One pipe: what was sent first comes first, as all take the same time.
        self._kernel.after(PIPE_US[0], lambda: self._in_guard(message))

    def _in_guard(self, action: Callable[[], None]) -> None:
        if self.guard_dead:
            return
        if self._guard_paused:
            self._held_up.append(action)
            return
        action()

    def _guard_after(self, delay_us: int, action: Callable[[], None]) -> None:
        self._kernel.after(delay_us, lambda: self._in_guard(action))

    def _renewed(self, number: int, began_s: float) -> None:
        self._deadlines.renew(number, began_s)
        self._set_timers()

    def _rebound(self, old: int, new: int) -> None:
        self._deadlines.rebind(old, new)
        self._set_timers()

    def _spawn(self, run: SimRun) -> None:
        order = run.order
        if not self._deadlines.bind(run.number, run.key, self._clock.boot_s()) and self.guarded:
            self._report(run, Refused(order.task, order.epoch, False))
            return
        run.alive = True
        self._by_number[run.number] = run
        self._facts.run_started(self._process, order)
        self._set_timers()
        length_us, run.failed = self._process.world.plan_of_run(order.task)
        run.ends = self._kernel.after(self._clock.true_us(length_us / 1e6), lambda: self._ended_by_itself(run))
        if order.timeout_s is not None:
            limit_us = self._clock.true_us(order.timeout_s + order.grace_s)
            self._guard_after(limit_us, lambda: self._timed_out(run))

    def _timed_out(self, run: SimRun) -> None:
        if run.alive:
            run.stop_reason = run.stop_reason or "timed_out"
            self._kill(run)

    def _set_timers(self) -> None:
        if not self.guarded or self.guard_dead:
            return
        self._kernel.call_off(self._look)
        self._kernel.call_off(self._kernel_timer)
        look_s, first_s = self._deadlines.next_look(), self._deadlines.first()
        if look_s is not None:
            self._look = self._kernel.at(self._clock.at_boot_us(look_s), lambda: self._in_guard(self._look_round))
        if first_s is not None:
            self._kernel_timer = self._kernel.at(self._clock.at_boot_us(first_s - DIE_EARLY_S), self.guard_dies)

    def _look_round(self) -> None:
        now_s = self._clock.boot_s()
        self._deadlines.to_ask(now_s)
        for number, keys in self._deadlines.expired(now_s).items():
            for key in keys:
                self._deadlines.told(key)
            run = self._by_number.get(number)
            if run is not None:
                run.stop_reason, run.stop_cause = "interrupted", Cause.FENCED
                self._kill(run)
        self._set_timers()

    def _kill(self, run: SimRun) -> None:
        if run.alive:
            self._kernel.after(self._random.randint(*KILL_US), lambda: self._killed(run))

    def _killed(self, run: SimRun) -> None:
        if run.alive:
            self._dies(run)
            self._say_stopped(run)

    def _ended_by_itself(self, run: SimRun) -> None:
        if self._process.frozen:
            self._kernel.after(50_000, lambda: self._ended_by_itself(run))  # it does not get on either
            return
        if not run.alive:
            return
        self._dies(run)
        if run.stop_reason is not None:
            self._say_stopped(run)
        else:
            order = run.order
            outcome = Outcome.FAILED if run.failed else Outcome.SUCCEEDED
            self._report(run, RunEnded(order.task, order.epoch, outcome, None, None, "failed" if run.failed else None))

    def _dies(self, run: SimRun) -> None:
        if not run.alive:
            return
        run.alive = False
        self._kernel.call_off(run.ends)
        self._by_number.pop(run.number, None)
        self._facts.run_ended(self._process, run.order)
        if not self.guard_dead:
            self._deadlines.drop(run.number)
            self._set_timers()

    def _look_at_beat(self) -> None:
        if self.guard_dead or self._process.dead:
            return
        silent_s = (self._kernel.now_us - self._beat_at_us) * self._clock.rate / 1e6
        if self.beaten_for and not self._process.paused:
            self.beat()
        elif silent_s > self._beat_ttl_s and not self._guard_paused:
            self._process.say("the guard ends the worker: its loop does not beat")
            self._process.kill("no beat")
            return
        self._kernel.after(self._clock.true_us(BEAT_LOOK_S), self._look_at_beat)

    # -- reports, on their way to the worker --

    def _say_stopped(self, run: SimRun) -> None:
        outcome = OUTCOMES[run.stop_reason or "interrupted"]
        cause = (run.stop_cause or Cause.STOPPED) if outcome is Outcome.INTERRUPTED else None
        self._report(run, RunEnded(run.order.task, run.order.epoch, outcome, cause))

    def _report(self, run: SimRun, report: RunEnded | Refused) -> None:
        delay_us = self._random.randint(*PIPE_US)
        self._kernel.after(delay_us, lambda: self._process.when_running(lambda: self._reported(run, report)))

    def _reported(self, run: SimRun, report: RunEnded | Refused) -> None:
        if not run.over:
            run.over = True
            self.runs.pop((report.task, report.epoch), None)
            self._reports.append(report)
            self._on_reports()

    def _guard_is_gone(self) -> None:
        for run in list(self.runs.values()):
            reason = run.stop_reason or "interrupted"
            outcome = OUTCOMES[reason]
            cause = (run.stop_cause or Cause.STOPPED) if outcome is Outcome.INTERRUPTED else None
            self._reported(run, RunEnded(run.order.task, run.order.epoch, outcome, cause))
        self._lost = True
        self._on_reports()

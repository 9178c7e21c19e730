"""Runs of a world: a user's function in a fiber, with its limits in virtual time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fencepost.core.events import Ended, Interrupted
from fencepost.core.task import CommandHandler, Handler, HttpHandler, Outcome, PythonHandler
from fencepost.run_context import RunContext
from fencepost.testing import loop
from fencepost.testing.fiber import Fiber, Killed
from fencepost.worker.guard.results import Failed, describe, names_of, unfit
from fencepost.worker.orders import RunOrder, more_for_context

Function = Callable[[RunContext], Any]


class _Context(RunContext):
    """Its time is the world's."""

    __slots__ = ("_running",)

    def __init__(self, running: Running) -> None:
        order = running.order
        super().__init__(
            order.task,
            order.epoch,
            order.attempt,
            order.payload,
            order.headers,
            order.scheduled_for_ms,
            order.idempotency_key,
            order.checkpoint,
            link=running,
            token=order.epoch,
            **(more_for_context(order) or {}),
        )
        self._running = running

    @property
    def remaining_s(self) -> float | None:
        limit_ms = self._running.limit_ms
        return None if limit_ms is None else (limit_ms - self._running.now_ms()) / 1000

    @property
    def deadline(self) -> datetime | None:
        limit_ms = self._running.limit_ms
        return None if limit_ms is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=limit_ms)


@dataclass(slots=True)
class Running:
    """One run that is on."""

    order: RunOrder
    function: Function
    now_ms: Callable[[], int]
    save: Callable[[str, int, Any], None]  # a checkpoint
    lines: list[str]
    fiber: Fiber = field(init=False)
    limit_ms: int | None = None
    stop_reason: str | None = None  # why it was asked to stop
    stop_limit: str | None = None
    kill_ms: int | None = None
    said_ms: int = 0  # when it last said that it gets on
    coroutine: bool = False  # then a stop wakes it

    def __post_init__(self) -> None:
        order, now_ms = self.order, self.now_ms()
        self.said_ms = now_ms
        if order.timeout_s is not None:
            self.limit_ms = now_ms + round(order.timeout_s * 1000)
        self.fiber = Fiber(self._call, f"{order.task} epoch {order.epoch}")

    def _call(self) -> Any:
        made = self.function(_Context(self))
        if inspect.iscoroutine(made):
            self.coroutine = True
            return loop.run(made, self.fiber, self.now_ms, lambda: self.asked)
        return made

    # --- time --------------------------------------------------------------------------------------------------------

    @property
    def asked(self) -> bool:
        return self.stop_reason is not None

    def next_ms(self) -> int | None:
        """When something about it is due; None: never by itself."""
        times = [self.fiber.wake_ms, self.kill_ms]
        if not self.asked:
            times += [self.limit_ms, self._silent_ms()]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def go_on(self) -> bool:
        """Do what is due now. True: something was."""
        now_ms = self.now_ms()
        if not self.asked:
            if self.limit_ms is not None and now_ms >= self.limit_ms:
                self.stop("timed_out", self.order.grace_s)
                return True
            silent_ms = self._silent_ms()
            if silent_ms is not None and now_ms >= silent_ms:
                self.stop_limit = "heartbeat"
                self.stop("timed_out", self.order.grace_s)
                return True
        if self.kill_ms is not None and now_ms >= self.kill_ms and not self.fiber.over:
            self.fiber.kill()
            return True
        if not self.fiber.started or (self.fiber.wake_ms is not None and now_ms >= self.fiber.wake_ms):
            self.fiber.wake_ms = None
            self.fiber.resume()
            return True
        return False

    def stop(self, reason: str, grace_s: float) -> None:
        """Ask: `ctx.cancelled` is true from now on, a coroutine is cancelled. Killed after the grace."""
        if self.asked or self.fiber.over:
            return
        self.stop_reason = reason
        self.kill_ms = self.now_ms() + round(grace_s * 1000)
        if not self.fiber.started:
            self.fiber.over = True
        elif self.coroutine:
            self.fiber.wake_ms = None
            self.fiber.resume()

    def look_outside(self) -> None:
        """It waits for something that is not of this world: perhaps that has come."""
        if self.fiber.started and not self.fiber.over and self.fiber.wake_ms is None:
            self.fiber.resume()

    def _silent_ms(self) -> int | None:
        heartbeat_s = self.order.heartbeat_s
        return None if heartbeat_s is None else self.said_ms + round(heartbeat_s * 1000)

    # --- the end -----------------------------------------------------------------------------------------------------

    def ended(self, spread: float) -> Ended | Interrupted:
        """What is told of its end, as a worker tells it."""
        epoch, error = self.order.epoch, self.fiber.error
        if isinstance(error, Killed):
            error = None
        text = None if error is None else describe(error)
        if self.stop_reason == "timed_out":
            limit = self.stop_limit
            said = (
                f"no heartbeat for {self.order.heartbeat_s:g} s"
                if limit
                else f"time limit of {self.order.timeout_s:g} s"
            )
            return Ended(epoch, Outcome.TIMED_OUT, None, text or said, spread, limit=limit)
        if self.stop_reason is not None:
            return Ended(epoch, Outcome.CANCELLED, None, text, spread)
        if error is None and self.limit_ms is not None and self.now_ms() >= self.limit_ms:
            return Ended(epoch, Outcome.TIMED_OUT, None, f"time limit of {self.order.timeout_s:g} s", spread)
        if isinstance(error, Failed):
            return Ended(epoch, Outcome.FAILED, None, str(error), spread, error.names, final=error.final)
        if error is not None:
            return Ended(epoch, Outcome.FAILED, None, text, spread, names_of(error))
        if isinstance(self.order.handler, CommandHandler):
            code = self.fiber.result or 0
            if code:
                return Ended(epoch, Outcome.FAILED, None, f"exit code {code}", spread, exit_code=code)
            return Ended(epoch, Outcome.SUCCEEDED)
        why = unfit(self.fiber.result)
        if why is not None:
            return Ended(epoch, Outcome.FAILED, None, why, spread)
        return Ended(epoch, Outcome.SUCCEEDED, self.fiber.result)

    # --- RunLink: what its context asks ------------------------------------------------------------------------------

    def cancelled(self, token: int) -> bool:
        return self.asked or self.fiber.over

    def checkpoint(self, token: int, data: Any) -> None:
        self.said_ms = self.now_ms()
        self.save(self.order.task, self.order.epoch, data)

    def heartbeat(self, token: int) -> None:
        self.said_ms = self.now_ms()

    def log(self, token: int, text: str) -> None:
        self.said_ms = self.now_ms()
        self.lines.append(text.rstrip("\n"))


def function_of(
    handler: Handler, functions: Mapping[str, Function], stand_ins: Mapping[str, Function]
) -> Function | None:
    """What is called for it; None where this world has nothing. Commands and URLs are never called in earnest."""
    if isinstance(handler, PythonHandler):
        return functions.get(handler.function)
    if isinstance(handler, HttpHandler):
        return stand_ins.get(handler.url)
    return stand_ins.get(handler.argv[0])

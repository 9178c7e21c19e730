"""The worker's side of one runner process."""

from __future__ import annotations

import codecs
import os
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from fencepost.core.task import Cause
from fencepost.worker.guard import wire
from fencepost.worker.guard.control import Kind
from fencepost.worker.guard.leases import Lease
from fencepost.worker.guard.page import PAGE_BYTES, Page, new_memory
from fencepost.worker.guard.pricing import BUDGET_S
from fencepost.worker.orders import RunOrder

_TAIL_BYTES = 4096
_SLOW_S = 0.02  # without a word from a process that has a slow run
_ASTRAY_S = 1.0  # from one whose runs should all be quick


@dataclass(slots=True, eq=False)
class Run:
    """A run on its way: launched, not yet reported ended."""

    token: int
    order: RunOrder
    lease: Lease
    life_s: float
    process: RunnerProcess | None = None
    cost_s: float = 0.0
    sent: bool = False  # to its process: from here on it may have started
    stop_reason: str | None = None
    stop_cause: Cause | None = None
    ended: Any = None  # what its runner said, kept until its process is gone too
    heard_s: float | None = None  # when it last said something, from its start on; kept where it has to
    limit: str | None = None  # the limit it was stopped for, if that was not its own


@dataclass(slots=True, eq=False)
class Binding:
    """A process and a lease of which it holds runs."""

    lease: Lease
    life_s: float
    bound: bool = False
    waiting: list[Run] = field(default_factory=list)
    runs: int = 0
    idle_since: float = 0.0


class RunnerProcess:
    """Pipes, memory page and the runs of one process."""

    def __init__(self, number: int, kind: Kind, own: bool) -> None:
        self.number = number
        self.kind = kind
        self.own = own
        self.runs: dict[int, Run] = {}
        self.bindings: dict[tuple[int, float], Binding] = {}
        self.load_s = 0.0
        self.leaving = False  # its pipe was closed, or it is being killed
        self.worked = False  # it has said something
        self.idle_since = 0.0
        self.progress_at = 0.0
        self.watched_s = 0.0  # shortest time limit the guard was told of
        self.timed = 0  # runs in it that have one
        self.tail = b""  # of what it wrote to stderr, for a process of its own
        self._unsent: deque[memoryview] = deque()
        self._stops = 0  # told, but perhaps not all in the pipe yet
        in_read, self.in_fd = os.pipe2(os.O_CLOEXEC)
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        page_fd = new_memory("fencepost-page", PAGE_BYTES)
        self.page = Page(page_fd)
        self.out = wire.Reader(out_read)
        self.printed: dict[int, str] = {}
        self.given: list[int] = [in_read, out_write, page_fd]  # to be sent to the process
        if own:
            for stream in ("out", "err"):
                read, write = os.pipe2(os.O_CLOEXEC)
                self.printed[read] = stream
                self.given.append(write)
        for fd in (self.in_fd, out_read, *self.printed):
            os.set_blocking(fd, False)
        self._decoders = {fd: codecs.getincrementaldecoder("utf-8")("replace") for fd in self.printed}
        self._left = dict.fromkeys(self.printed.values(), wire.OUTPUT_MAX_BYTES)

    def leave(self, run: Run) -> None:
        """The run is no longer in this process."""
        del self.runs[run.token]
        self.load_s -= run.cost_s
        now = time.monotonic()
        binding = self.bindings.get((run.lease.number, run.life_s))
        if binding is not None:
            binding.runs -= 1
            binding.idle_since = now
        if not self.runs:
            self.load_s = 0.0
            self.idle_since = now

    def stuck(self, now: float) -> bool:
        """Whether it takes runs one by one and has long been at the one it has."""
        patience_s = _SLOW_S if self.load_s > BUDGET_S else _ASTRAY_S
        return bool(self.runs) and now - self.progress_at >= patience_s

    def send(self, message: Any) -> bool:
        """Write to the process or keep it; whether all is written. A process that is gone is told of elsewhere."""
        self._unsent.append(memoryview(wire.frame(message)))
        return self.flush()

    def send_stop(self, token: int) -> bool:
        self._stops += 1
        return self.send((wire.STOP, token))

    def flush(self) -> bool:
        while self._unsent:
            try:
                written = os.write(self.in_fd, self._unsent[0])
            except BlockingIOError:
                return False
            except BrokenPipeError:
                self._unsent.clear()
                break
            if written == len(self._unsent[0]):
                self._unsent.popleft()
            else:
                self._unsent[0] = self._unsent[0][written:]
        while self._stops:
            self._stops -= 1
            self.page.count_stop()  # only now: the runner that looks finds it whole
        return True

    def read_printed(self, fd: int) -> tuple[str, bool]:
        """What it printed since; and whether that was the end. Beyond 1 MiB it is read and not kept."""
        stream, taken, ended = self.printed[fd], bytearray(), False
        while True:
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                break
            if not data:
                ended = True
                break
            if stream == "err":
                self.tail = (self.tail + data)[-_TAIL_BYTES:]
            left = self._left[stream]
            taken += data[: max(0, left)]
            if len(data) > left >= 0:
                taken += wire.CUT.encode()
            self._left[stream] = max(-1, left - len(data))
            if len(taken) >= wire.OUTPUT_MAX_BYTES:
                break
        return self._decoders[fd].decode(bytes(taken), ended), ended

    def close_input(self) -> None:
        if self.in_fd != -1:
            os.close(self.in_fd)
            self.in_fd = -1
        self._unsent.clear()

    def close(self) -> None:
        self.close_input()
        os.close(self.out.fd)
        for fd in self.printed:
            os.close(fd)
        self.page.close()

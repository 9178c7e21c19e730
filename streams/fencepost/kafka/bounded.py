"""Calls of the client library that do not keep to their time limit, made in a thread that can be left behind.

`send_offsets_to_transaction` is one: a producer remembers which broker coordinates the group; when that broker is away
for so long that the others no longer name it, the client forgets the broker but not that it is the coordinator, and
waits for it to come up for ever (librdkafka 2.16.1). Whoever is left behind stays there with its producer; a new
producer asks anew.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Overdue(Exception):
    """The call did not come back in time: what it was made on must not be used again."""


class _Caller:
    """One thread, and the two ends of it."""

    def __init__(self) -> None:
        self.work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        # A daemon: a call that never comes back must not keep the process.
        threading.Thread(target=self._serve, name="fencepost-call", daemon=True).start()

    def _serve(self) -> None:
        while (work := self.work.get()) is not None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - raised where the call was asked for
                self.answers.put(error)
            else:
                self.answers.put(None)


class BoundedCalls:
    """Makes one call at a time, each within a limit. For one thread."""

    def __init__(self) -> None:
        self._caller: _Caller | None = None

    def call(self, work: Callable[[], object], limit_s: float) -> None:
        """Raises what `work` raises, and Overdue when it is not back after `limit_s`."""
        caller = self._caller = self._caller or _Caller()
        caller.work.put(work)
        try:
            error = caller.answers.get(timeout=limit_s)
        except queue.Empty:
            caller.work.put(None)  # should it ever come back, its thread ends
            self._caller = None
            raise Overdue(f"the client library did not answer within {limit_s:g} s") from None
        if error is not None:
            raise error

    def close(self) -> None:
        if self._caller is not None:
            self._caller.work.put(None)
            self._caller = None

"""A process that reads topics until it is told to stop: signals, probes, the way out."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Any, Protocol

from fencepost.settings import Settings
from fencepost.views.intake import Handle, Intake
from fencepost.worker.http import Exposition, HttpServer

SAY_EVERY_S = 60.0


class Reader(Protocol):
    """What is done with the records. `tick` runs every `tick_s` seconds, in the event loop's thread pool."""

    tick_s: float

    def handle(self) -> Handle: ...

    def tick(self) -> None: ...

    def counts(self) -> dict[str, Any]: ...


def serve(settings: Settings, intake: Callable[[], Intake], reader: Reader, metrics: Exposition, log: Any) -> int:
    """Until SIGTERM or SIGINT, or an error. Returns the exit code."""
    if settings.log_level != "debug":
        for name in ("faust", "mode", "aiokafka", "fencepost.views.intake"):  # they tell of every step
            logging.getLogger(name).setLevel(logging.WARNING)
    return asyncio.run(_Serving(settings, reader, metrics, log).run(intake))


class _Serving:
    def __init__(self, settings: Settings, reader: Reader, metrics: Exposition, log: Any) -> None:
        self._reader, self._log = reader, log
        self._intake: Intake | None = None
        self._stop = asyncio.Event()
        self._http = HttpServer(settings, self._live, self._ready, metrics, log)

    async def run(self, make: Callable[[], Intake]) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._http.start()
        intake = self._intake = make()
        ticking = asyncio.create_task(self._tick())
        try:
            await intake.start()
            self._log.info("reading", group=intake.group, topics=list(intake.topics))
            await intake.run(self._reader.handle(), self._stop)
            return 0
        except Exception:  # noqa: BLE001 - said, and the exit code
            # Nothing is committed for what was not handled; whoever starts this process again begins there.
            self._log.exception("ends on an error")
            return 1
        finally:
            ticking.cancel()
            self._log.info("stopping", **self._reader.counts())
            await intake.stop()
            self._http.stop()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        said_s = loop.time()
        while True:
            await asyncio.sleep(self._reader.tick_s)
            try:
                await asyncio.to_thread(self._reader.tick)
            except Exception:  # noqa: BLE001 - said; reading goes on
                self._log.exception("a round of checks failed; the next one tries again")
            if loop.time() - said_s >= SAY_EVERY_S:
                said_s = loop.time()
                self._log.info("counts", **self._reader.counts())

    def _live(self) -> tuple[bool, dict[str, Any]]:
        failed = self._intake is not None and self._intake.failure is not None
        return not failed, {"failed": failed}

    def _ready(self) -> tuple[bool, dict[str, Any]]:
        ready = self._intake is not None and self._intake.ready and not self._stop.is_set()
        return ready, {"joined": ready, "stopping": self._stop.is_set()}

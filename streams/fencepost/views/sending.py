"""Sends records until Kafka has acknowledged all of them, however long it is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from fencepost.kafka.errors import KafkaProblem
from fencepost.kafka.producer import Outgoing, Producer
from fencepost.settings import Settings

LIMIT_S = 30.0
RETRY_FIRST_S = 0.5
RETRY_MOST_S = 10.0


class Sending:
    """A producer that is made anew after trouble. One thread at a time."""

    def __init__(self, settings: Settings, log: Any, sleep: Callable[[float], None] = time.sleep) -> None:
        self._settings, self._log, self._sleep = settings, log, sleep
        self._producer: Producer | None = None

    def send(self, records: Sequence[Outgoing]) -> None:
        """Returns when all are written. Some may be written twice: whoever reads them knows them by their IDs."""
        left, delay_s = list(records), RETRY_FIRST_S
        while left:
            if self._producer is None:
                self._producer = Producer(self._settings, LIMIT_S)
            results = self._producer.send_each(left)
            problems = [result for result in results if isinstance(result, KafkaProblem)]
            left = [each for each, result in zip(left, results, strict=True) if isinstance(result, KafkaProblem)]
            if problems:
                self._log.warning(
                    "not all could be sent; trying again", left=len(left), why=str(problems[0]), in_s=delay_s
                )
                self.close()  # what is left in it must not come late
                self._sleep(delay_s)
                delay_s = min(RETRY_MOST_S, delay_s * 2)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

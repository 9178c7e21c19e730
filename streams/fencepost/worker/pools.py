"""Which pools of the namespace there are: asked when a definition first names one."""

from __future__ import annotations

import time
from typing import Any, Final

from fencepost.kafka.bounds import Bounds
from fencepost.kafka.errors import RetryLater
from fencepost.kafka.topics import Topics

ASK_AGAIN_S: Final = 5.0
ASK_LIMIT_S: Final = 3.0


class Pools:
    """Of one lane. A pool that is there stays; one that is not may be made at any time."""

    def __init__(self, topics: Topics, bounds: Bounds, log: Any) -> None:
        self._topics = topics
        self._bounds = bounds
        self._log = log
        self._there: set[str] = set()
        self._missing: dict[str, float] = {}

    def has(self, pool: str, *, by_now: bool = False) -> bool | None:
        """Whether the pool's topics exist; None: Kafka does not say now. `by_now`: what it said lately is no answer."""
        if pool in self._there:
            return True
        if not by_now and time.monotonic() < self._missing.get(pool, 0.0):
            return False
        topics = self._topics.of(pool)
        try:
            missing = self._bounds.missing((topics.owners, topics.tasks, topics.triggers, topics.control), ASK_LIMIT_S)
        except RetryLater as problem:
            self._log.warning("Kafka does not answer", why=str(problem))
            return None
        if missing:
            self._missing[pool] = time.monotonic() + ASK_AGAIN_S
            self._log.warning("a pool is not initialised: its tasks wait", pool=pool)
            return False
        self._there.add(pool)
        return True

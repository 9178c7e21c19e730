"""Where the highest epochs are kept, for resources that have no place of their own for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from fencepost.fencing.stale import StaleEpoch
from fencepost.fencing.token import Token


class EpochStore(Protocol):
    """Lets runs in, one after the other, and never one behind a newer one."""

    def admit(self, token: Token, /) -> AbstractContextManager[None]:
        """While inside, no other run of the task is let in; what the run asks for is done there.

        The epoch is kept before the inside begins, and stays kept however that ends. Raises StaleEpoch.
        """
        ...


class MemoryStore:
    """For one process that never forgets while it matters: after a restart an old epoch is as good as a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: dict[tuple[str, str], int] = {}
        self._inside: dict[tuple[str, str], threading.Lock] = {}

    @contextmanager
    def admit(self, token: Token, /) -> Iterator[None]:
        key = (token.namespace, token.task_id)
        with self._lock:
            inside = self._inside.setdefault(key, threading.Lock())
        with inside:
            newest = self._epochs.get(key, 0)
            if token.epoch < newest:
                raise StaleEpoch(token.task_id, token.epoch, newest)
            self._epochs[key] = token.epoch
            yield

"""Headers of our own records: CloudEvents in binary mode, so that any UI and any consumer can tell what a record is."""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import count

Headers = list[tuple[str, bytes]]


_PROCESS = os.urandom(6).hex()
_COUNT = count()


def ce_headers(kind: str, task: str, source: str, event_id: str | None = None) -> Headers:
    """CloudEvents 1.0 headers (Kafka protocol binding, binary mode) of a record.

    `kind` becomes the type ``fencepost.<kind>``, `task` the subject; `source` and `event_id` together name the event,
    so a record that is offered again after an aborted transaction should keep its ID. Without one it gets a new one.
    """
    if event_id is None:
        event_id = f"{_PROCESS}-{next(_COUNT)}"
    return [*_fixed(kind, source), ("ce_subject", task.encode()), ("ce_id", event_id.encode())]


@lru_cache(maxsize=1024)
def _fixed(kind: str, source: str) -> tuple[tuple[str, bytes], ...]:
    return (
        ("content-type", b"application/json"),
        ("ce_specversion", b"1.0"),
        ("ce_type", f"fencepost.{kind}".encode()),
        ("ce_source", source.encode()),
    )

"""Client properties: what Fencepost needs of every client, with the user's ``[kafka.client]`` on top.

The stock `socket.timeout.ms` (60 s) decides how late a frozen broker is noticed, and stock back-offs how long a client
sleeps after a broker returned: both are far longer than a lease.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from itertools import count
from typing import Any

from fencepost.settings import OWNED_CLIENT_PROPERTIES, Settings, SettingsError

log = logging.getLogger("fencepost.kafka.client")

_DEFAULTS: Mapping[str, Any] = {
    "socket.timeout.ms": 3000,
    "socket.keepalive.enable": True,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 5000,
    "allow.auto.create.topics": False,  # a topic made by accident would have the broker's default settings
    "enable.metrics.push": False,
    # A broker that was frozen longer than its session names no broker for a moment; the client then forgets those
    # it knew. With "none" it never asks anybody again. What hangs on a forgotten one still waits for ever: see
    # `bounded.py` for calls, `Reader.renew` for what is read.
    "metadata.recovery.strategy": "rebootstrap",
}
PARTITIONER: Mapping[str, Any] = {"partitioner": "murmur2_random"}  # agrees with Java; the stock one (CRC32) does not

_ordinals = count()


def next_ordinal() -> int:
    """A number no other client of this process has."""
    return next(_ordinals)


def client_id(role: str, ordinal: int) -> str:
    """role-host-ordinal, as it shows in the brokers' logs and metrics."""
    return f"{role}-{socket.gethostname()}-{ordinal}"


def client_config(settings: Settings, role: str, ordinal: int | None = None, **extra: Any) -> dict[str, Any]:
    """Properties of one client. `extra` holds what its role needs, and goes before the user's.

    Example: ``client_config(settings, "reader", 0, **{"isolation.level": "read_committed"})``.
    Raises SettingsError for a property in ``[kafka.client]`` that Fencepost must own.
    """
    for name in settings.client:
        if name in OWNED_CLIENT_PROPERTIES:
            raise SettingsError(f"kafka.client.{name} cannot be set: {OWNED_CLIENT_PROPERTIES[name]}")
    return {
        **_DEFAULTS,
        **settings.client,
        **extra,
        "bootstrap.servers": settings.bootstrap,
        "client.id": client_id(role, next_ordinal() if ordinal is None else ordinal),
        "logger": log,
    }

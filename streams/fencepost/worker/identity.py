"""Who a worker is: its name, and the incarnation that tells this process from an earlier one of the same name."""

from __future__ import annotations

import os
import re
import secrets
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """`worker` is configured (static membership) or made of host and process; `incarnation` is new in each process."""

    worker: str
    incarnation: str
    static: bool

    def lane_id(self, ordinal: int) -> str:
        return f"{self.worker}/{ordinal}/{self.incarnation}"


def new_identity(worker_id: str | None) -> Identity:
    incarnation = secrets.token_hex(6)
    if worker_id is not None:
        return Identity(worker_id, incarnation, static=True)
    host = re.sub(r"[^a-zA-Z0-9._-]", "-", socket.gethostname()) or "host"
    # The incarnation is in the name too: two containers may share host name and process number.
    return Identity(f"{host}-{os.getpid()}-{incarnation[:4]}", incarnation, static=False)


def new_nonce() -> str:
    """Fresh for each acquisition."""
    return secrets.token_hex(8)

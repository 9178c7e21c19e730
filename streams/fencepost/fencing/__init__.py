"""Fencing at the resource: guards that refuse what a stale run writes, by its epoch.

The epoch of a task only grows. A resource that keeps the highest one it has seen, and refuses a lower one in the very
step that writes, cannot be written by a run that was frozen, cut off or thought dead once a newer run has written.

- `postgres` (psycopg) and `sqlalchemy`: within the caller's own transaction.
- `http`: headers for the client, a check for the server.
- `files`: a lock and a sidecar file.
- `objects`: an object store that can put under a condition.

Only the module that is used imports its library: `pip install fencepost[postgres]`, or `[sqlalchemy]`.
"""

from __future__ import annotations

from fencepost.fencing.stale import StaleEpoch
from fencepost.fencing.store import EpochStore, MemoryStore
from fencepost.fencing.token import Run, Token, token_of

__all__ = ["EpochStore", "MemoryStore", "Run", "StaleEpoch", "Token", "token_of"]

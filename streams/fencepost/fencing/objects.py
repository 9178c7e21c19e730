"""Objects in a store that can put under a condition: S3 and its like (`If-Match`), GCS (generations), Azure (ETags).

    objects.write(store, "reports/today.csv", data, ctx)

The epoch lies with the object, in its metadata, and is looked at first; then the put says "only if the object is still
the one I looked at". Whoever came in between makes it fail, and the look is repeated: a stale run then sees the newer
epoch. The store needs no lock, and no clock is asked. An object that is deleted takes its epoch with it: write an empty
one instead where old runs may still be about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from fencepost.fencing.stale import StaleEpoch
from fencepost.fencing.token import Run, token_of

NAMESPACE_KEY: Final = "fencepost-namespace"
TASK_KEY: Final = "fencepost-task"
EPOCH_KEY: Final = "fencepost-epoch"
_TRIES: Final = 20


class Contended(Exception):
    """Others wrote the object again and again between the look and the put. Nothing of this run was written."""


class AnothersObject(Exception):
    """The object belongs to another task: epochs of two tasks say nothing about each other."""


@dataclass(frozen=True, slots=True)
class Head:
    """What the store says of an object: `tag` changes with every put, also of equal bytes (a generation).

    An ETag that is a hash of the bytes, as S3's, does not: there the bytes have to hold the epoch as well.
    """

    tag: str
    metadata: Mapping[str, str]


class ObjectStore(Protocol):
    """What the guard needs of a store."""

    def head(self, key: str, /) -> Head | None:
        """The object as it is now, read from where puts are decided, not from a cache; None: there is none."""
        ...

    def put_if(self, key: str, data: bytes, metadata: Mapping[str, str], tag: str | None, /) -> bool:
        """Put it if its tag is still this one; None: if there is still none. False: it is not, nothing was put."""
        ...


def write(store: ObjectStore, key: str, data: bytes, run: Run) -> None:
    """Put the object unless a newer run has. Raises StaleEpoch, Contended, AnothersObject; what the store raises."""
    token = token_of(run)
    metadata = {NAMESPACE_KEY: token.namespace, TASK_KEY: token.task_id, EPOCH_KEY: str(token.epoch)}
    for _ in range(_TRIES):
        head = store.head(key)
        if head is not None and EPOCH_KEY in head.metadata:
            owner = (head.metadata.get(NAMESPACE_KEY), head.metadata.get(TASK_KEY))
            if owner != (token.namespace, token.task_id):
                raise AnothersObject(f"{key} was written by {owner[1]!r} of {owner[0]!r}, not by {token.task_id!r}")
            newest = int(head.metadata[EPOCH_KEY])
            if newest > token.epoch:
                raise StaleEpoch(token.task_id, token.epoch, newest)
        if store.put_if(key, data, metadata, None if head is None else head.tag):
            return
    raise Contended(f"{key}: written by others {_TRIES} times between the look and the put")

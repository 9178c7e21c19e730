"""The worker's side of leases: a name (partition, nonce), a number for the guard, table slots for the runners."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.worker.guard import control, linux
from fencepost.worker.guard.control import ToGuard
from fencepost.worker.guard.page import TABLE_SLOTS, LeaseTable

FORGET_AFTER_S = 3600.0  # without renewals and without runs; each acquisition of a partition makes a new nonce


@dataclass(slots=True, eq=False)
class Lease:
    number: int
    partition: int
    nonce: str
    began: float
    slots: list[int]
    users: int = 0  # runs launched under it and not yet ended, and processes bound to it


class Leases:
    def __init__(self, channel: control.Channel, table: LeaseTable) -> None:
        self._channel = channel
        self._table = table
        self._named: dict[tuple[int, str], Lease] = {}
        self._of_partition: dict[int, list[Lease]] = {}
        self._free = list(range(TABLE_SLOTS - 1, -1, -1))
        self._next = 1

    def find(self, partition: int, nonce: str) -> Lease | None:
        return self._named.get((partition, nonce))

    def renew(self, partition: int, nonce: str, began: float) -> None:
        """A proven renewal; one that began earlier than the last known changes nothing."""
        lease = self._named.get((partition, nonce))
        if lease is None:
            self._forget_unused(partition)
            lease = Lease(self._next, partition, nonce, float("-inf"), [self._free.pop()])
            self._next += 1
            self._named[partition, nonce] = lease
            self._of_partition.setdefault(partition, []).append(lease)
        self._move(lease, began)

    def rebind(self, partition: int, old_nonce: str, new_nonce: str) -> tuple[Lease, Lease] | None:
        """Returns (old, new) if both were known: what stood under the old one must be moved. Else the name changed."""
        old = self._named.pop((partition, old_nonce), None)
        if old is None:
            return None
        new = self._named.get((partition, new_nonce))
        if new is None:
            old.nonce = new_nonce
            self._named[partition, new_nonce] = old
            return None
        self._of_partition[partition].remove(old)
        new.slots += old.slots
        self._channel.send(control.rebind(old.number, new.number))
        self._move(new, max(old.began, new.began), again=True)
        return old, new

    def _move(self, lease: Lease, began: float, again: bool = False) -> None:
        if began > lease.began or again:
            lease.began = began
            # The guard first: a runner must not think that it has longer than the guard knows.
            self._channel.send(control.lease(lease.number, began))
            for slot in lease.slots:
                self._table.set(slot, began)

    def _forget_unused(self, partition: int) -> None:
        kept = []
        for lease in self._of_partition.get(partition, ()):
            if lease.users or lease.began > linux.boot_s() - FORGET_AFTER_S:
                kept.append(lease)
                continue
            del self._named[partition, lease.nonce]
            self._channel.send(control.one(ToGuard.FORGET, lease.number))
            self._free += lease.slots
        self._of_partition[partition] = kept

"""Leases: how long a run may live without news from Kafka, and how long the next owner waits for it.

The rules come from the model-checked protocol. Every time here is read from CLOCK_BOOTTIME of one machine and ends
in ``_boot_s``; two machines' clocks are never compared, only their rates are assumed to agree within ``rate_error``.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OffsetStamp:
    """The metadata that a lane commits with an offset of partition p.

    It comes back from ``committed`` and names the last renewal that can have extended a lease of p: renewal number
    `renewal` of lane `renewed_by`. A fence transaction carries an earlier holder's forward.
    """

    lane: str
    nonce: str
    renewed_by: str | None = None
    renewal: int = 0


@dataclass(frozen=True, slots=True)
class Renewal:
    """One lease record of a lane: its number and the partitions it names with their nonces."""

    lane: str
    number: int
    held: tuple[tuple[int, str], ...]


def wait_s(ttl_s: float, rate_error: float) -> float:
    """How long to wait for a lease of `ttl_s` so that it is over on any clock within `rate_error` of true rate."""
    return ttl_s * (1 + rate_error) / (1 - rate_error)


@dataclass(slots=True)
class Watch:
    """When this lane saw the newest renewal of every other lane, on its own clock."""

    seen: dict[str, tuple[int, float]] = field(default_factory=dict)

    def note(self, renewal: Renewal, now_boot_s: float) -> None:
        """A renewal was read. Only a higher number counts, and from the moment it was seen."""
        known = self.seen.get(renewal.lane)
        if known is None or renewal.number > known[0]:
            self.seen[renewal.lane] = (renewal.number, now_boot_s)

    def waits_from(self, stamp: OffsetStamp | None, answered_boot_s: float) -> float:
        """From when a lease of the partition is counted.

        From the stable answer, unless the answer names the very renewal this lane has seen: then from when it was
        seen. Counting from an older renewal than the last one is an overlap, so a number below the named one is
        no help; a higher one was seen later and is safe.
        """
        if stamp is None or stamp.renewed_by is None:
            return answered_boot_s
        known = self.seen.get(stamp.renewed_by)
        if known is None or known[0] < stamp.renewal:
            return answered_boot_s
        return min(known[1], answered_boot_s)


@dataclass(frozen=True, slots=True)
class SentRenewal:
    """A renewal on its way: it counts only once read back, and then from when it began to be sent."""

    number: int
    began_boot_s: float
    held: tuple[tuple[int, str], ...]


@dataclass(slots=True)
class Lease:
    """The renewals of one lane. One is on its way at a time."""

    ttl_s: float
    every_s: float
    number: int = 0
    proven: dict[tuple[int, str], float] = field(default_factory=dict)  # (partition, nonce) -> began
    sent: SentRenewal | None = None

    def due(self, live: dict[int, str], now_boot_s: float) -> bool:
        """Whether a renewal must go now: a partition with live runs has none proven, or an old one."""
        if self.sent is not None:
            return False
        return any(now_boot_s - self.proven.get(key, float("-inf")) >= self.every_s for key in live.items())

    def send(self, live: dict[int, str], now_boot_s: float) -> SentRenewal:
        """The next renewal, for the partitions with live runs and their nonces."""
        self.number += 1
        self.sent = SentRenewal(self.number, now_boot_s, tuple(sorted(live.items())))
        return self.sent

    def drop(self) -> None:
        """The renewal on its way did not become readable; its number is not used again."""
        self.sent = None

    def prove(self) -> SentRenewal:
        """The renewal on its way was read back and its offsets were accepted."""
        sent = self.sent
        if sent is None:
            raise ValueError("no renewal is on its way")
        self.sent = None
        for key in sent.held:
            self.proven[key] = sent.began_boot_s
        return sent

    def forget(self, partition: int) -> None:
        """The partition is no longer held."""
        for key in [key for key in self.proven if key[0] == partition]:
            del self.proven[key]

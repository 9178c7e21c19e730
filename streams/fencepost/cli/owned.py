"""What the owners topic says: who holds each partition, and the leases of the lanes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fencepost.codec import BadRecord
from fencepost.core.lease import Renewal
from fencepost.core.ownership import FenceRecord
from fencepost.kafka.namespace import KEY
from fencepost.kafka.scan import Record, scan
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.wire.owners import decode_fence, decode_renewal


@dataclass(slots=True)
class Owners:
    """The newest record of each partition and of each lane, and when it was appended."""

    fences: dict[int, FenceRecord] = field(default_factory=dict)
    leases: dict[str, Renewal] = field(default_factory=dict)
    at_ms: dict[str, int] = field(default_factory=dict)  # by partition number as text, or lane ID
    unreadable: list[str] = field(default_factory=list)


def read_owners(settings: Settings, partitions: Iterable[int] | None = None) -> Owners:
    """Raises KafkaProblem."""
    owners = Owners()
    for record in scan(settings, Topics(settings.namespace).owners, partitions):
        if record.key is not None and record.value is not None and record.key != KEY:
            _take(owners, record, record.value)
    return owners


def _take(owners: Owners, record: Record, value: bytes) -> None:
    key = record.key_text
    try:
        if key.isdecimal():
            owners.fences[int(key)] = decode_fence(value)
        elif key.isprintable():
            renewal = decode_renewal(value)
            known = owners.leases.get(key)
            if known is not None and known.number > renewal.number:
                return
            owners.leases[key] = renewal
        else:
            return  # the partition's own marks
        owners.at_ms[key] = record.at_ms
    except BadRecord as error:
        owners.unreadable.append(f"{key}: {error}")

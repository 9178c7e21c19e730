"""The check behind `fencepost verify`: what the topics alone say about the promise.

One partition at a time is fed to a `PartitionCheck`, each record with the offset it lies at:

1. the definitions and the state topic, record by record in the order of the log, superseded ones too;
2. then the history, in order. State goes in first: what is in it must be in the history that is read after it.

**The bound.** Nothing of a record is kept. For each task there is one small `Known` (some numbers, the runs that are
on, the slots that wait); it lies in a store that the caller gives, which may put all but the last few on disk, as
`fencepost.audit.spill` does. In memory there are: what that store keeps there; one entry for each fence that is still
in the partition's log of owners; at most `MAX_FINDINGS` findings, the others are counted; and for a task with a gap in
its slots at most `MAX_BEYOND` slots beyond it. None of this grows with the length of the history.

What it cannot see is whether a process really died when its run was recorded as ended: for that the tasks' own effects
have to be looked at.
"""

from __future__ import annotations

from fencepost.core.verify.fences import Fence, Fences, Stamp
from fencepost.core.verify.finding import MAX_FINDINGS, Counts, Finding, Kind, Place
from fencepost.core.verify.known import Known, Store
from fencepost.core.verify.partition import PartitionCheck
from fencepost.core.verify.slots import MAX_BEYOND

__all__ = [
    "MAX_BEYOND",
    "MAX_FINDINGS",
    "Counts",
    "Fence",
    "Fences",
    "Finding",
    "Kind",
    "Known",
    "PartitionCheck",
    "Place",
    "Stamp",
    "Store",
]

"""Whether `verify` finds fault with what a world wrote."""

from __future__ import annotations

from fencepost.core.commands import History
from fencepost.core.ids import split_key
from fencepost.core.verify import Finding, PartitionCheck
from fencepost.testing import World
from fencepost.wire.definition import read_definition
from fencepost.wire.state import decode_state
from fencepost.wire.work import WORK, decode_work


def findings(world: World) -> list[Finding]:
    """As `fencepost verify` reads a partition."""
    declared = {item.task: item.schedule for item in world.app.definitions() if item.schedule is not None}
    check = PartitionCheck(True, declared)
    for key, value in world.records("tasks"):
        task, definition = read_definition(key, value)
        check.defined(task, None if definition is None else definition.schedule)
    for key, value in world.records("state"):
        task, kind, seq = split_key((key or b"").decode())
        if kind is None:
            check.state(decode_state(value or b""))
        elif kind == WORK:
            check.waits(task, seq, None if value is None else decode_work(value).slot_ms)
    for offset, event in enumerate(world.history()):
        check.event(event.task, History(event.kind, event.epoch, event.at_ms, event.fields), offset)
    return check.finish()[0]

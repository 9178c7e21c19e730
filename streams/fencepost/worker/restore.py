"""Step 3 of an acquisition: the records of state-p and tasks-p, read from the start until the own nonce comes back.

The newest record of each key counts. Not the watermark tells the end: an open transaction would hold it down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencepost.codec import BadRecord, loads_own
from fencepost.core.ids import SEPARATOR, partition_of, side_key, split_key
from fencepost.core.limits import Claim, Group
from fencepost.core.links import Fan, Join, Links
from fencepost.core.machine import new_task, restored_task
from fencepost.core.task import Definition, Task, TaskState, Work
from fencepost.wire.definition import read_definition
from fencepost.wire.fan import FAN, decode_fan
from fencepost.wire.floor import FLOOR, decode_floor
from fencepost.wire.left_out import LEFT_OUT, decode_left_out
from fencepost.wire.limit import CLAIM, GROUP, decode_claim, decode_group
from fencepost.wire.links import JOIN, LINKS, decode_join, decode_links
from fencepost.wire.state import decode_state
from fencepost.wire.work import CHECKPOINT, WORK, decode_checkpoint, decode_work

if TYPE_CHECKING:
    from fencepost.kafka.reader import Message

FENCE_KEY = side_key("", "fence", 0).encode()
SENTINEL_KEY = side_key("", "sentinel", 0).encode()
MARK_KEY = side_key("", "mark", 0).encode()
FLOOR_KEY = side_key("", FLOOR, 0).encode()
_OWN_PREFIX = SEPARATOR.encode()


@dataclass(slots=True)
class Restored:
    """What came out: tasks with a state or a schedule, all definitions, and what could not be read."""

    tasks: dict[str, Task] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)  # task -> why
    bad_definitions: dict[str, str] = field(default_factory=dict)
    misplaced: list[tuple[bytes, bytes]] = field(default_factory=list)  # definitions that belong on another partition
    floor: int = 0  # epochs of IDs nothing is known of start above it


class Restore:
    """Collects one partition's records. `nonce` is the own one; `tasks_end` how far tasks-p must be read.

    place: (partition, partition count), to tell definitions that belong elsewhere.
    """

    def __init__(self, nonce: str, tasks_end: int, place: tuple[int, int]) -> None:
        self.nonce = nonce
        self._number, self._count = place
        self.tasks_end = tasks_end
        self.nonce_read = False
        self._floor: bytes | None = None
        self._state: dict[bytes, bytes] = {}
        self._definitions: dict[bytes, bytes] = {}

    def state_record(self, message: Message) -> str | None:
        """Take one record of state-p. Returns the nonce if it is a fence, own or foreign."""
        key, value = message.key(), message.value()
        if key == FENCE_KEY:
            nonce = fence_nonce(value)
            if nonce == self.nonce:
                self.nonce_read = True
            return nonce
        if key == FLOOR_KEY:
            self._floor = value
        if key is None or key.startswith(_OWN_PREFIX):
            return None
        if value is None:
            self._state.pop(key, None)
        else:
            self._state[key] = value
        return None

    def task_record(self, message: Message) -> None:
        key, value = message.key(), message.value()
        if key is None:
            return
        if value is None:
            self._definitions.pop(key, None)
        else:
            self._definitions[key] = value

    def finish(self) -> Restored:
        """Decode the newest of each. What cannot be read is set aside by ID, never overwritten.

        Raises BadRecord for a floor that cannot be read: without it no new ID of the partition may start.
        """
        out = Restored(floor=0 if self._floor is None else decode_floor(self._floor))
        states: dict[str, TaskState] = {}
        works: dict[str, list[Work]] = {}
        checkpoints: dict[str, Any] = {}
        left_out: dict[str, tuple[int, ...]] = {}
        links: dict[str, Links] = {}
        joins: dict[str, list[Join]] = {}
        fans: dict[str, list[Fan]] = {}
        claims: dict[str, list[Claim]] = {}
        next_ms: dict[str, float] = {}
        for raw_key, value in self._state.items():
            try:
                task_id, kind, _number = split_key(raw_key.decode())
                if kind is None:
                    states[task_id] = decode_state(value)
                elif kind == WORK:
                    works.setdefault(task_id, []).append(decode_work(value))
                elif kind == CHECKPOINT:
                    checkpoints[task_id] = decode_checkpoint(value)
                elif kind == LEFT_OUT:
                    left_out[task_id] = decode_left_out(value)
                elif kind == LINKS:
                    links[task_id] = decode_links(value)
                elif kind == CLAIM:
                    claims.setdefault(task_id, []).append(decode_claim(value))
                elif kind == GROUP:
                    next_ms[task_id] = decode_group(value)
                elif kind == JOIN:
                    joins.setdefault(task_id, []).append(decode_join(value))
                elif kind == FAN:
                    fans.setdefault(task_id, []).append(decode_fan(value))
            except (BadRecord, ValueError) as error:
                out.unreadable[raw_key.decode("utf-8", "backslashreplace").split(SEPARATOR)[0]] = str(error)
        self._read_definitions(out, states)
        named = works.keys() | links.keys() | joins.keys() | fans.keys() | claims.keys() | next_ms.keys()
        for task_id in named - states.keys():
            states[task_id] = new_task(task_id, out.floor).state
        for task_id, state in states.items():
            group = None
            if task_id in claims or task_id in next_ms:
                in_order = tuple(sorted(claims.get(task_id, ()), key=lambda claim: claim.number))
                group = Group(in_order, next_ms.get(task_id, 0.0))
            out.tasks[task_id] = restored_task(
                state,
                works.get(task_id, ()),
                checkpoints.get(task_id),
                links.get(task_id),
                joins.get(task_id, ()),
                fans.get(task_id, ()),
                group,
                left_out.get(task_id, ()),
            )
        for task_id in out.unreadable:
            out.tasks.pop(task_id, None)
        self._state, self._definitions = {}, {}
        return out

    def _read_definitions(self, out: Restored, states: dict[str, TaskState]) -> None:
        for raw_key, value in self._definitions.items():
            try:
                task_id, definition = read_definition(raw_key, value)
            except BadRecord as error:
                out.bad_definitions[raw_key.decode("utf-8", "backslashreplace")] = str(error)
                continue
            # A task with a state here belongs here: no need to compute where else it might.
            if task_id not in states and partition_of(raw_key, self._count) != self._number:
                out.misplaced.append((raw_key, value))
            elif definition is not None:
                out.definitions[task_id] = definition


def fence_nonce(value: bytes | None) -> str:
    body = loads_own(value or b"null")
    return str(body.get("nonce", "")) if isinstance(body, dict) else ""

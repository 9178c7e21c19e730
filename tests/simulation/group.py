"""The group coordinator: members under both protocols, and the group's offsets.

Two things it does not do, as the real one does not: it accepts metadata without member and generation unchecked, and of
a member it checks the generation, not which partitions are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.kernel import Event
from tests.simulation.log import Place

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

Reply = Callable[[Any], None]
Mark = tuple[int, str]  # offset, metadata


@dataclass(frozen=True, slots=True)
class Joined:
    """What a join or, under the newer protocol, each heartbeat says. `epoch`: generation, or member epoch."""

    member: str
    epoch: int
    assigned: frozenset[int]


@dataclass(slots=True, eq=False)
class GroupMember:
    name: str
    instance: str | None
    session_us: int
    epoch: int = 0
    previous: int = -1
    owned: frozenset[int] = frozenset()  # as it says itself
    assigned: set[int] = field(default_factory=set)
    assigned_at: dict[int, int] = field(default_factory=dict)
    revoking: set[int] = field(default_factory=set)
    reply: Reply | None = None  # of a join that waits for the others
    expiry: Event | None = None


class Group:
    """One group. `newer`: KIP-848."""

    def __init__(self, broker: Broker, partitions: int, newer: bool) -> None:
        self._broker = broker
        self._partitions = partitions
        self.newer = newer
        self.generation = 0
        self.members: dict[str, GroupMember] = {}
        self._preparing = False
        self._names = 0
        self.offsets: dict[Place, Mark] = {}
        self.pending: dict[int, dict[Place, Mark]] = {}
        self._targets: dict[str, set[int]] = {}
        self.shuffled = False  # the next assignment moves what it can

    # -- offsets --

    def commit(self, producer: int, epoch: int, member: str, marks: dict[Place, Mark]) -> str | None:
        """Offsets in a transaction. The transaction itself was verified already."""
        refusal = self._refusal(epoch, member, [place[1] for place in marks])
        if refusal is None:
            self.pending.setdefault(producer, {}).update(marks)
        return refusal

    def _refusal(self, epoch: int, member: str, partitions: Iterable[int]) -> str | None:
        if epoch < 0 and not member:
            return None  # a client that is no member: not checked at all
        known = self.members.get(member)
        if known is None:
            return "UNKNOWN_MEMBER_ID"
        if not self.newer:
            return None if epoch == self.generation else "ILLEGAL_GENERATION"
        if epoch == known.epoch:
            return None
        mine = all(
            known.assigned_at.get(number, epoch + 1) <= epoch for number in partitions if number in known.assigned
        )
        if epoch < known.epoch and mine and set(partitions) <= known.assigned:
            return None
        return "ILLEGAL_GENERATION"

    def fetch(self, place: Place) -> Mark | None:
        """The committed offset; None while a transaction that names it is open."""
        if any(place in marks for marks in self.pending.values()):
            return None
        return self.offsets.get(place, (-1, ""))

    def mark(self, producer: int, committed: bool) -> None:
        marks = self.pending.pop(producer, {})
        if committed:
            self.offsets.update(marks)

    # -- membership: what both protocols share --

    def leave(self, name: str) -> None:
        member = self.members.get(name)
        if member is not None:
            self._remove(member)

    def evict(self, name: str) -> None:
        """Its session is over. A coordinator that is away counts no sessions."""
        member = self.members.get(name)
        if member is not None and self._broker.kernel.now_us >= self._broker.group_down_until_us:
            self._broker.say(f"group: {name} is thrown out")
            self._remove(member)

    def _remove(self, member: GroupMember) -> None:
        self._broker.kernel.call_off(member.expiry)
        del self.members[member.name]
        if self.newer:
            self._retarget()
        elif self._preparing:
            self._complete_if_all_joined()
        elif self.members:
            self._preparing = True
        else:
            self.generation += 1

    def _alive(self, member: GroupMember) -> None:
        kernel = self._broker.kernel
        kernel.call_off(member.expiry)
        member.expiry = kernel.after(member.session_us, lambda: self.evict(member.name))

    def _new_name(self) -> str:
        self._names += 1
        return f"m{self._names}"

    def _same_instance(self, instance: str | None) -> GroupMember | None:
        if instance is None:
            return None
        return next((member for member in self.members.values() if member.instance == instance), None)

    def sessions_begin_again(self) -> None:
        """The coordinator moved: the new one gives every member a whole session."""
        for member in self.members.values():
            if member.expiry is not None and member.reply is None:
                self._alive(member)

    # -- classic --

    def join(self, name: str, instance: str | None, owned: frozenset[int], session_us: int, reply: Reply) -> None:
        if name and name not in self.members:
            reply("UNKNOWN_MEMBER_ID")
            return
        if not name:
            before = self._same_instance(instance)
            name = self._new_name()
            member = self.members[name] = GroupMember(name, instance, session_us)
            if before is not None:
                self._take_seat(before, member, reply)
                return
        member = self.members[name]
        self._broker.kernel.call_off(member.expiry)
        member.owned, member.reply = owned, reply
        self._preparing = True
        self._complete_if_all_joined()

    def _take_seat(self, before: GroupMember, member: GroupMember, reply: Reply) -> None:
        """A static member came back: it takes the old one's place, and nothing moves."""
        self._broker.kernel.call_off(before.expiry)
        del self.members[before.name]
        member.assigned = before.assigned
        given = sum(len(each.assigned) for each in self.members.values())
        if self._preparing or not before.assigned or given < self._partitions:  # a round of it was still to come
            member.reply = reply
            self._preparing = True
            self._complete_if_all_joined()
            return
        self._alive(member)
        reply(Joined(member.name, self.generation, frozenset(member.assigned)))

    def heartbeat(self, name: str, generation: int) -> str | None:
        member = self.members.get(name)
        if member is None:
            return "UNKNOWN_MEMBER_ID"
        if member.reply is None:
            self._alive(member)
        if generation != self.generation:
            return "ILLEGAL_GENERATION"
        return "REBALANCE_IN_PROGRESS" if self._preparing else None

    def _complete_if_all_joined(self) -> None:
        if not self._preparing or not self.members or any(member.reply is None for member in self.members.values()):
            return
        self._preparing = False
        self.generation += 1
        targets = self._divide({name: set(member.owned) for name, member in self.members.items()})
        taken = {number: name for name, member in self.members.items() for number in member.owned}
        for name, member in self.members.items():
            # What another still owns is withheld until that one has given it up and joined again.
            member.assigned = {number for number in targets[name] if taken.get(number, name) == name}
            reply, member.reply = member.reply, None
            self._alive(member)
            assert reply is not None
            reply(Joined(name, self.generation, frozenset(member.assigned)))

    # -- KIP-848 --

    def beat(self, name: str, epoch: int, instance: str | None, owned: frozenset[int], session_us: int) -> Joined | str:
        if epoch == 0:
            before = self._same_instance(instance)
            if before is not None:
                return "UNRELEASED_INSTANCE_ID"
            name = self._new_name()
            member = self.members[name] = GroupMember(name, instance, session_us)
            self._retarget()
        else:
            known = self.members.get(name)
            if known is None:
                return "UNKNOWN_MEMBER_ID"
            if epoch not in (known.epoch, known.previous):
                return "FENCED_MEMBER_EPOCH"
            member = known
        self._alive(member)
        member.owned = owned
        self._reconcile(member)
        return Joined(member.name, member.epoch, frozenset(member.assigned))

    def release(self, name: str) -> None:
        """A static member leaves for a while: its seat is free at once here."""
        self.leave(name)

    def _retarget(self) -> None:
        self.generation += 1
        if self.members:
            self._targets = self._divide({name: set(member.assigned) for name, member in self.members.items()})

    def _reconcile(self, member: GroupMember) -> None:
        target = self._targets[member.name]
        going = member.assigned - target
        member.assigned -= going
        member.revoking |= going
        if member.revoking & member.owned:
            return
        if going:
            return  # it has to be told first, even if it never heard of them
        member.revoking = set()
        if member.epoch != self.generation:
            member.previous, member.epoch = member.epoch, self.generation
        others = {
            number
            for other in self.members.values()
            if other is not member
            for number in (*other.assigned, *other.revoking)
        }
        for number in target - member.assigned - others:
            member.assigned.add(number)
            member.assigned_at[number] = member.epoch

    # -- who gets what --

    def _divide(self, has: dict[str, set[int]]) -> dict[str, set[int]]:
        """Balanced, and sticky unless `shuffled`. Two that claim one partition: the later name keeps it."""
        names = sorted(has)
        if self.shuffled:
            self.shuffled = False
            self._broker.random.shuffle(names)
            return {name: set(range(place, self._partitions, len(names))) for place, name in enumerate(names)}
        most = -(-self._partitions // len(names))
        out: dict[str, set[int]] = {name: set() for name in names}
        free = set(range(self._partitions))
        for name in reversed(names):
            kept = sorted(has[name] & free)[:most]
            out[name].update(kept)
            free.difference_update(kept)
        for number in sorted(free):
            out[min(names, key=lambda name: (len(out[name]), name))].add(number)
        while True:
            least, fullest = (min(names, key=lambda n: (len(out[n]), n)), max(names, key=lambda n: (len(out[n]), n)))
            if len(out[fullest]) - len(out[least]) < 2:
                return out
            moved = max(out[fullest])
            out[fullest].remove(moved)
            out[least].add(moved)

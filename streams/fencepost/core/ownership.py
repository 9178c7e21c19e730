"""Who may run the tasks of one partition: the ownership protocol as a table.

One `Holding` per assigned partition goes through these phases::

    ENDING -> ASKING -> FENCING -> READING -> HELD -> DRAINING -> RELEASING -> GONE
       ^________________________________________|  (fenced, or a foreign nonce)

ENDING     the producers of every earlier holder are being ended
ASKING     step 1: committed() is asked until its answer is stable
FENCING    step 2: the fence transaction with a fresh nonce is under way
READING    step 3: state, owners and definitions are read until the own nonce has come back
HELD       step 4: what was found RUNNING is waited out task by task; everything else may start
DRAINING   nothing new starts; runs in flight end
RELEASING  "released" is under way
GONE       nothing is left to do; the callback may return

`step` is pure: the shell does what the commands say and reports back with events. The safeguards it stands for are
those of the model: the fence transaction, the end of earlier holders' producers (again, with a new nonce, if reading
shows one that was not known), nonces per acquisition, release only when drained and only after step 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from fencepost.core.lease import OffsetStamp


class Phase(StrEnum):
    ENDING = "ending"
    ASKING = "asking"
    FENCING = "fencing"
    READING = "reading"
    HELD = "held"
    DRAINING = "draining"
    RELEASING = "releasing"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Holder:
    """A lane that had the partition, with the transactional IDs of its ring."""

    lane: str
    ring: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """What `owners` holds of a partition: who has it under which nonce, and which holders were not ended yet."""

    partition: int
    lane: str
    nonce: str
    ring: tuple[str, ...]
    open: tuple[Holder, ...] = ()  # earlier holders known to its writer and not ended by it
    ended: tuple[str, ...] = ()  # lanes whose producers its writer ended before this nonce
    released: bool = False
    worker: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """What the fence records of one partition add up to, in the order of the log."""

    last: FenceRecord | None = None
    open: tuple[Holder, ...] = ()  # holders since the last release whose producers nobody has ended

    def fold(self, record: FenceRecord) -> Picture:
        """The picture after one more record. A release counts for its own nonce only."""
        if record.released:
            if self.last is not None and record.nonce == self.last.nonce:
                return Picture(record, ())
            return self
        known = {holder.lane: holder for holder in (*self.open, *record.open)}
        for lane in record.ended:
            known.pop(lane, None)
        known[record.lane] = Holder(record.lane, record.ring)
        return Picture(record, tuple(known.values()))

    def to_end(self, me: str, ended: frozenset[str]) -> tuple[Holder, ...]:
        """The holders that lane `me` still has to end."""
        return tuple(holder for holder in self.open if holder.lane != me and holder.lane not in ended)


@dataclass(frozen=True, slots=True)
class Holding:
    """Where one lane stands with one partition."""

    partition: int
    lane: str
    phase: Phase = Phase.ENDING
    nonce: str = ""
    picture: Picture = Picture()
    ended: frozenset[str] = frozenset()  # lanes whose producers were ended for this acquisition
    offset: int = -1
    stamp: OffsetStamp | None = None
    answered_boot_s: float = 0.0
    waited: bool = False  # step 4 is done for every task


# -- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HoldersEnded:
    lanes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Answered:
    """committed() gave a stable answer. offset -1: nothing was ever committed."""

    offset: int
    stamp: OffsetStamp | None
    at_boot_s: float


@dataclass(frozen=True, slots=True)
class FenceSent:
    """The fence transaction of this nonce committed by the client's word; reading begins."""

    nonce: str


@dataclass(frozen=True, slots=True)
class FenceFailed:
    """It did not; the same step is tried again."""


@dataclass(frozen=True, slots=True)
class OwnNonceRead:
    """State, owners and definitions were read until the own nonce: `picture` is what owners said up to it."""

    picture: Picture


@dataclass(frozen=True, slots=True)
class WaitsOver:
    """Step 4 is done for every task that was found RUNNING."""


@dataclass(frozen=True, slots=True)
class ForeignNonce:
    """A later nonce than the own one, of another acquisition, was read."""

    picture: Picture


@dataclass(frozen=True, slots=True)
class ProducerFenced:
    """Somebody ended this lane's producers."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """The group wants the partition back."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Every run of the partition is gone and its end was read back, or the limit has passed and they were killed."""


@dataclass(frozen=True, slots=True)
class ReleaseRead:
    """The own "released" was read back."""


@dataclass(frozen=True, slots=True)
class ReleaseFailed:
    """It cannot be written any more; the next owner will wait."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The partition is gone already."""


Event = (
    HoldersEnded | Answered | FenceSent | FenceFailed | OwnNonceRead | WaitsOver | ForeignNonce | ProducerFenced
    | Revoked | Drained | ReleaseRead | ReleaseFailed | Lost
)  # fmt: skip

# -- commands -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EndProducers:
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    pass


@dataclass(frozen=True, slots=True)
class SendFence:
    """With a fresh nonce of the shell's."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Read state-p, owners-p and tasks-p from the start until `nonce` has come back."""

    nonce: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The partition is held: restore it, wait out what was found RUNNING, start the rest."""


@dataclass(frozen=True, slots=True)
class LetGo:
    """Forget what was restored; runs stay with the guard until the acquisition finds them again."""


@dataclass(frozen=True, slots=True)
class KillRuns:
    """At once: the partition may belong to somebody else."""


@dataclass(frozen=True, slots=True)
class Drain:
    pass


@dataclass(frozen=True, slots=True)
class SendRelease:
    pass


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nothing is left: the partition may go back to the group."""


Command = EndProducers | Ask | SendFence | ReadBack | Hold | LetGo | KillRuns | Drain | SendRelease | GiveUp
Result = tuple[Holding, tuple[Command, ...]]


class IllegalOwnershipEvent(Exception):
    """An event that the table does not know in this phase: a bug of the shell. Nothing was changed."""


def acquire(partition: int, lane: str, picture: Picture) -> Result:
    """Begin at step 1 with what the own watch of `owners` knows so far."""
    return _begin(Holding(partition, lane, picture=picture))


def step(holding: Holding, event: Event) -> Result:
    """What `event` makes of the holding, and what the shell must do. Raises IllegalOwnershipEvent."""
    move = TABLE.get((holding.phase, type(event)))
    if move is None:
        raise IllegalOwnershipEvent(f"{type(event).__name__} in phase {holding.phase} of partition {holding.partition}")
    return move(holding, event)


def _begin(holding: Holding) -> Result:
    fresh = Holding(holding.partition, holding.lane, picture=holding.picture)
    to_end = fresh.picture.to_end(fresh.lane, frozenset())
    if to_end:
        return fresh, (EndProducers(to_end),)
    return replace(fresh, phase=Phase.ASKING), (Ask(),)


def _again(holding: Holding, _event: Event) -> Result:
    begun, commands = _begin(holding)
    return begun, (LetGo(), *commands)


def _foreign(holding: Holding, event: ForeignNonce) -> Result:
    return _again(replace(holding, picture=event.picture), event)


def _holders_ended(holding: Holding, event: HoldersEnded) -> Result:
    holding = replace(holding, ended=holding.ended | event.lanes, phase=Phase.ASKING)
    return holding, (Ask(),)


def _answered(holding: Holding, event: Answered) -> Result:
    holding = replace(
        holding, phase=Phase.FENCING, offset=event.offset, stamp=event.stamp, answered_boot_s=event.at_boot_s
    )
    return holding, (SendFence(),)


def _fence_sent(holding: Holding, event: FenceSent) -> Result:
    return replace(holding, phase=Phase.READING, nonce=event.nonce), (ReadBack(event.nonce),)


def _fence_failed(holding: Holding, _event: Event) -> Result:
    # The answer of step 1 may be out of date by now: nothing of it is reused.
    return _begin(holding)


def _own_nonce_read(holding: Holding, event: OwnNonceRead) -> Result:
    holding = replace(holding, picture=event.picture)
    to_end = event.picture.to_end(holding.lane, holding.ended)
    if to_end:  # a holder that step 1 could not know of: only a nonce after its end counts
        return replace(holding, phase=Phase.ENDING), (LetGo(), EndProducers(to_end))
    return replace(holding, phase=Phase.HELD), (Hold(),)


def _waits_over(holding: Holding, _event: Event) -> Result:
    return replace(holding, waited=True), ()


def _revoked_early(holding: Holding, _event: Event) -> Result:
    return replace(holding, phase=Phase.GONE), (KillRuns(), GiveUp())


def _revoked(holding: Holding, _event: Event) -> Result:
    return replace(holding, phase=Phase.DRAINING), (Drain(),)


def _drained(holding: Holding, _event: Event) -> Result:
    if not holding.waited:  # some earlier run may still live: the next owner has to wait as this one did
        return replace(holding, phase=Phase.GONE), (GiveUp(),)
    return replace(holding, phase=Phase.RELEASING), (SendRelease(),)


def _gone(holding: Holding, _event: Event) -> Result:
    return replace(holding, phase=Phase.GONE), (GiveUp(),)


def _lost(holding: Holding, _event: Event) -> Result:
    return replace(holding, phase=Phase.GONE), (KillRuns(), GiveUp())


def _stay(holding: Holding, _event: Event) -> Result:
    return holding, ()


#: The whole protocol. (phase, event) not named here is illegal.
TABLE: dict[tuple[Phase, type], Callable[..., Result]] = {
    (Phase.ENDING, HoldersEnded): _holders_ended,
    (Phase.ASKING, Answered): _answered,
    (Phase.FENCING, FenceSent): _fence_sent,
    (Phase.FENCING, FenceFailed): _fence_failed,
    (Phase.READING, OwnNonceRead): _own_nonce_read,
    (Phase.HELD, WaitsOver): _waits_over,
    (Phase.DRAINING, WaitsOver): _waits_over,
    (Phase.DRAINING, Drained): _drained,
    (Phase.RELEASING, ReleaseRead): _gone,
    (Phase.RELEASING, ReleaseFailed): _gone,
    **{(phase, Revoked): _revoked_early for phase in (Phase.ENDING, Phase.ASKING, Phase.FENCING, Phase.READING)},
    (Phase.HELD, Revoked): _revoked,
    (Phase.DRAINING, Revoked): _stay,
    (Phase.RELEASING, Revoked): _stay,
    **{(phase, ForeignNonce): _foreign for phase in (Phase.READING, Phase.HELD)},
    # While giving away, a foreign nonce means the group moved on without us: as good as lost.
    **{(phase, ForeignNonce): _lost for phase in (Phase.DRAINING, Phase.RELEASING)},
    **{
        (phase, ProducerFenced): _again
        for phase in (Phase.ENDING, Phase.ASKING, Phase.FENCING, Phase.READING, Phase.HELD)
    },
    # A fenced lane cannot write "released": its runs are killed and the next owner waits.
    **{(phase, ProducerFenced): _lost for phase in (Phase.DRAINING, Phase.RELEASING)},
    **{(phase, Lost): _lost for phase in Phase if phase is not Phase.GONE},
    **{(Phase.GONE, event): _stay for event in (Lost, Revoked, ProducerFenced, ForeignNonce, WaitsOver, Drained)},
}

"""The safeguards, by the names that the model uses too, and how the simulation runs without one of them.

Each is taken away by putting something else in its place, in this process only: the product has no switch for it. The
simulation must find a violation without it, within `within` histories of its `theme`; a test holds it to that.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import fencepost.core.machine
import fencepost.core.steps.move
import fencepost.kafka.transaction
import fencepost.worker.acquisition
import fencepost.worker.takeover
from fencepost.core.commands import Send
from fencepost.core.place import Place
from fencepost.core.signals import GiveBack
from fencepost.core.task import Cause
from fencepost.kafka.member import GroupMetadata
from fencepost.worker.acquisition import Acquisitions
from fencepost.worker.batch import Batch
from fencepost.worker.commit import Committer
from fencepost.worker.context import LaneContext
from fencepost.worker.hanging import Hanging
from fencepost.worker.lane import Lane
from fencepost.worker.partition import Partition
from fencepost.worker.restore import SENTINEL_KEY, Restore
from tests.simulation.runners import SimRunners

Off = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Safeguard:
    """`finds`: the kinds of violation that its absence leads to, one of which has to be found."""

    name: str
    what: str
    off: Off
    theme: str
    finds: frozenset[str]
    within: int


@contextmanager
def _instead(place: Any, name: str, stand_in: Any) -> Iterator[None]:
    before = getattr(place, name)
    setattr(place, name, stand_in)
    try:
        yield
    finally:
        setattr(place, name, before)


@contextmanager
def _all(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    with ExitStack() as held:
        for change in changes:
            held.enter_context(_instead(*change))
        yield


def _starts_when_sent() -> AbstractContextManager[None]:
    """A run starts when its record is offered, whatever becomes of the transaction."""
    real_offer, real_act = Lane._offer, Lane._act
    early: set[tuple[str, str, int]] = set()

    def offer(self: Any, batch: Batch) -> None:
        context = self._context
        for part in batch.parts.values():
            partition = context.partitions.get(part.partition)
            if partition is None or (part.partition, part.nonce) not in context.lease.proven:
                continue  # the guard would refuse: it has no lease of it yet
            for task_id, launch in part.launches:
                key = (part.nonce, task_id, launch.run.epoch)
                if key not in early:
                    early.add(key)
                    context.runners.launch([self._order(partition, task_id, part.after[task_id], launch)])
        real_offer(self, batch)

    def act(self: Any, batch: Batch) -> None:
        for part in batch.parts.values():
            partition = self._context.partitions.get(part.partition)
            kept = []
            for task_id, launch in part.launches:
                if (part.nonce, task_id, launch.run.epoch) not in early:
                    kept.append((task_id, launch))
                elif partition is not None and self._context.runners.holds(task_id, launch.run.epoch):
                    partition.live[task_id] = launch.run.epoch
            part.launches = kept
        real_act(self, batch)

    return _all((Lane, "_offer", offer), (Lane, "_act", act))


def _renewals_when_sent() -> AbstractContextManager[None]:
    """A renewal counts from when it is sent, whether or not it ever becomes readable."""
    real = Committer._offsets

    def offsets(self: Any, *arguments: Any) -> Any:
        made = real(self, *arguments)
        sent = self._context.lease.sent
        if sent is not None:
            for partition, nonce in sent.held:
                self._context.runners.lease(partition, nonce, sent.began_boot_s)
        return made

    return _all((Committer, "_offsets", offsets))


def _no_wait() -> AbstractContextManager[None]:
    """What is found RUNNING counts as lost at once."""
    return _all((fencepost.worker.takeover, "wait_s", lambda _ttl_s, _rate_error: -1e9))


def _unvalidated_metadata() -> AbstractContextManager[None]:
    """Offsets are sent with whatever metadata the client has, also that of no member at all."""
    return _all((GroupMetadata, "joined", property(lambda _self: True)))


def _no_fencing() -> AbstractContextManager[None]:
    """Nobody ends the producers of earlier holders; what they left open ends with its time limit."""
    return _all(
        (fencepost.worker.acquisition, "end_producers", lambda _settings, _ids, _timeout_s: None),
        (Hanging, "look", lambda _self, _waiting: {}),
    )


class _Kept(dict[int, Any]):
    """Partitions, with what is left of those that were let go."""

    def __init__(self) -> None:
        super().__init__()
        self.left: dict[int, Any] = {}

    def __missing__(self, number: int) -> Any:
        return self.left[number]


def _no_ownership_check() -> AbstractContextManager[None]:
    """What was decided while a partition was held is written later too: to the group any member will do."""
    real_init, real_let_go = LaneContext.__init__, Acquisitions._let_go

    def init(self: Any, *arguments: Any, **named: Any) -> None:
        real_init(self, *arguments, **named)
        self.partitions = _Kept()

    def let_go(self: Any, partition: Any) -> None:
        if partition.nonce and partition.triggers_offset >= 0:
            self._context.partitions.left[partition.number] = copy.copy(partition)
        real_let_go(self, partition)

    def holds(self: Any, partition: int, nonce: str) -> bool:
        known = self.partitions.get(partition)
        if known is not None and known.served and known.nonce == nonce:
            return True
        left = self.partitions.left.get(partition)
        return left is not None and left.nonce == nonce

    return _all(
        (LaneContext, "__init__", init),
        (LaneContext, "holds", holds),
        (Acquisitions, "_let_go", let_go),
        (Lane, "_let_go", lambda _self, _partition: None),
    )


def _epochs_forgotten() -> AbstractContextManager[None]:
    """A deleted task is forgotten with its epoch."""
    real = Restore.finish

    def finish(self: Any) -> Any:
        restored = real(self)
        for task_id in [name for name, task in restored.tasks.items() if task.state.deleted]:
            del restored.tasks[task_id]
        return restored

    return _all((Restore, "finish", finish))


def _no_floor() -> AbstractContextManager[None]:
    """What is forgotten is forgotten with its epoch."""

    def forget(self: Any, task_id: str) -> None:
        self.tasks.pop(task_id)
        self._timers.set(task_id, None)
        self._timers_running.set(task_id, None)

    return _all((Partition, "forget", forget))


def _claims_forgotten() -> AbstractContextManager[None]:
    """Who holds and who waits under a limit's key is in the memory of its owner alone."""
    real = Restore.finish

    def finish(self: Any) -> Any:
        restored = real(self)
        for task_id, task in restored.tasks.items():
            if task.group is not None:
                restored.tasks[task_id] = replace(task, group=None)
        return restored

    return _all((Restore, "finish", finish))


def _back_at_once() -> AbstractContextManager[None]:
    """A task that is called back from a pool counts as the namespace's without the pool's word."""
    move: Any = fencepost.core.steps.move
    real = move._defined_while_away

    def at_once(task: Any, event: Any, place: Any, pool: str, now_ms: int) -> Any:
        if event.definition.pool == pool:
            return real(task, event, place, pool, now_ms)
        here = replace(task, state=replace(task.state, place=Place(place.number)), definition=None)
        return move.defined(here, event, now_ms)

    return _all((move, "_defined_while_away", at_once))


def _grants_of_the_lost_kept() -> AbstractContextManager[None]:
    """What a lost run held is not given back."""
    real = fencepost.core.machine.follow

    def follow(task: Any, now_ms: int) -> Any:
        after, commands = real(task, now_ms)
        last = task.state.last
        if last is not None and last.cause is Cause.LOST:
            commands = tuple(
                [each for each in commands if not (isinstance(each, Send) and isinstance(each.signal, GiveBack))]
            )
        return after, commands

    return _all((fencepost.core.machine, "follow", follow))


def _no_guard() -> AbstractContextManager[None]:
    """Nobody ends a run when its lease ends."""
    return _all((SimRunners, "guarded", False))


def _no_sentinel_and_no_suspicion() -> AbstractContextManager[None]:
    """No last record after the offsets; and a producer whose end was slow or torn is used again."""
    ring = fencepost.kafka.transaction.Ring
    place = fencepost.kafka.transaction._Place
    return _all(
        *_without_sentinel(),
        (fencepost.kafka.transaction, "SLOW_END_S", float("inf")),
        (place, "_on_error", lambda _self, _error: None),
        (ring, "settle", _settle_by_waiting),
    )


def _settle_by_waiting(self: Any, _timeout_s: float) -> None:
    for place in self._places:
        place.ready(10.0)


def _without_sentinel() -> list[tuple[Any, str, Any]]:
    ring = fencepost.kafka.transaction.Ring
    real_send, real_frame, real_doubt = ring._send, Committer._frame, Committer._doubt

    def send(self: Any, producer: Any, records: Any, timeout_s: float) -> None:
        if [record.key for record in records] != [SENTINEL_KEY]:
            real_send(self, producer, records, timeout_s)

    def frame(self: Any, records: Any, expected: Any, partition: int) -> Any:
        sentinel = real_frame(self, records, expected, partition)
        del expected[sentinel.topic, sentinel.partition, SENTINEL_KEY]
        return sentinel

    def doubt(self: Any, *arguments: Any) -> None:
        real_doubt(self, *arguments)
        self._unclear.read = False

    return [(ring, "_send", send), (Committer, "_frame", frame), (Committer, "_doubt", doubt)]


SAFEGUARDS: dict[str, Safeguard] = {
    safeguard.name: safeguard
    for safeguard in (
        Safeguard(
            "read_back_starts", "a run starts only when its record was read back",
            _starts_when_sent, "late", frozenset({"twice", "unrecorded", "overlap", "epochs"}), 300,
        ),
        Safeguard(
            "read_back_renewals", "a renewal counts only when it was read back",
            _renewals_when_sent, "cut", frozenset({"overlap"}), 1500,
        ),
        Safeguard(
            "wait_for_lease", "a run that was found RUNNING is waited out",
            _no_wait, "evicted", frozenset({"overlap"}), 800,
        ),
        Safeguard(
            "validated_metadata", "offsets are never sent with the metadata of no member",
            _unvalidated_metadata, "unheard", frozenset({"trigger", "twice", "epochs", "history"}), 1500,
        ),
        Safeguard(
            "fence_dead_transaction", "the transactions of earlier holders are ended",
            _no_fencing, "kills", frozenset({"stuck"}), 300,
        ),
        Safeguard(
            "ownership_check", "nothing is written for a partition that is not held under its nonce any more",
            _no_ownership_check, "evicted", frozenset({"twice", "overlap", "epochs", "history", "unrecorded"}), 300,
        ),
        Safeguard(
            "kept_epoch", "a deleted task keeps its epoch",
            _epochs_forgotten, "deletions", frozenset({"twice", "epochs"}), 400,
        ),
        Safeguard(
            "epoch_floor", "what is new, or was forgotten, starts above all epochs that were forgotten",
            _no_floor, "forgetting", frozenset({"twice", "epochs"}), 100,
        ),
        Safeguard(
            "kept_claims", "who holds and who waits under a limit's key is on record",
            _claims_forgotten, "limits", frozenset({"limit"}), 300,
        ),
        Safeguard(
            "given_back", "whoever records that a run was lost gives back what it held",
            _grants_of_the_lost_kept, "limits", frozenset({"grant"}), 100,
        ),
        Safeguard(
            "given_over", "a task that was called back from a pool is the namespace's when the pool has given it back",
            _back_at_once, "pools", frozenset({"twice", "epochs", "overlap"}), 100,
        ),
        Safeguard(
            "guard", "a run is ended when its lease ends", _no_guard, "cut", frozenset({"overlap"}), 300,
        ),
        Safeguard(
            "sentinel", "a last record after the offsets; and producers with a doubtful end are not used again",
            _no_sentinel_and_no_suspicion, "late", frozenset({"history", "twice", "epochs", "unrecorded"}), 800,
        ),
    )
}  # fmt: skip

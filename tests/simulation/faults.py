"""Faults while a history runs: those that wait for a step of a process, and what befalls single requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.plan import Fault

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

_QUIET_KINDS: Final = {"Heartbeat", "ConsumerGroupHeartbeat", "JoinGroup", "DescribeTopics"}
_OF_REQUESTS: Final = ("hold", "lose_answer", "reset")
_LATE: Final = "late_end"
_ASKING: Final = "evict_asking"


@dataclass(slots=True)
class Fate:
    """What befalls one request. `hold_us`: it arrives that much later; None: never. `late`: in the next transaction."""

    hold_us: int | None = 0
    reset: bool = False
    lose_answer: bool = False
    late: bool = False


_NOTHING: Final = Fate()
_FOLLOWS: Final = 0.35


def _of_request(fault: Fault) -> bool:
    return fault.action in _OF_REQUESTS or fault.action in (_LATE, _ASKING)


class Faults:
    """`over` ends all of it: the quiet time at the end of a history."""

    def __init__(self, world: World, random: Random, chaos: float) -> None:
        self._world = world
        self._random = random
        self._chaos = chaos
        self._waiting: dict[int, list[Fault]] = {}
        self._late: dict[str, list[Callable[[], None]]] = {}
        self.over = False

    def arm(self, fault: Fault) -> None:
        """It waits for its request from now on."""
        if not self.over:
            self._waiting.setdefault(fault.seat, []).append(fault)

    def end(self) -> None:
        self.over = True
        self._waiting.clear()

    def step(self, process: Process, kind: str, phase: str) -> None:
        """A request of the process was sent, has arrived, or was answered."""
        waiting = self._waiting.get(process.seat)
        if not waiting:
            return
        for fault in list(waiting):
            if fault.phase == phase and not _of_request(fault) and self._counts(fault, kind):
                waiting.remove(fault)
                self._world.kernel.after(0, lambda fault=fault: self._world.strike(fault, process))  # type: ignore[misc]

    def fate(self, process: Process, kind: str) -> Fate:
        waiting = self._waiting.get(process.seat)
        if waiting:
            for fault in waiting:
                if _of_request(fault) and self._counts(fault, kind):
                    waiting.remove(fault)
                    process.say(f"{fault.action} {kind} for {fault.length_s:.2f} s")
                    if fault.action == _ASKING:
                        self._world.broker.group_of(process.namespace).evict(process.member_name())
                    return self._fate_of(fault.action, fault.length_s)
        if self._chaos and not self.over and self._random.random() < self._chaos:
            action, length_s = self._random.choice(_OF_REQUESTS), self._random.uniform(0.01, 4.0)
            process.say(f"chaos: {action} {kind} for {length_s:.2f} s")
            return self._fate_of(action, length_s)
        return _NOTHING

    def delay_us(self, process: Process, fate: Fate) -> int | None:
        now_us = self._world.kernel.now_us
        if process.cut_out_until_us > now_us:
            if self._random.random() < 0.5:
                return None
            return process.cut_out_until_us - now_us + (fate.hold_us or 0)  # sent again when the way is free
        return fate.hold_us

    def lost_on_the_way_back(self, process: Process, fate: Fate) -> bool:
        return fate.lose_answer or process.cut_in_until_us > self._world.kernel.now_us

    def keep(self, sender: str, arrive: Callable[[], None]) -> None:
        """A copy of a request that comes in the midst of the sender's next transaction."""
        self._late.setdefault(sender, []).append(arrive)

    def let_late_ones_follow(self, sender: str, kind: str) -> None:
        late = self._late.get(sender)
        if late and kind != "EndTxn" and self._random.random() < _FOLLOWS:
            self._world.kernel.after(self._random.randint(20, 900), late.pop())

    def _counts(self, fault: Fault, kind: str) -> bool:
        if fault.kind != kind and (fault.kind != "" or kind in _QUIET_KINDS):
            return False
        fault.count -= 1
        return fault.count <= 0

    def _fate_of(self, action: str, length_s: float) -> Fate:
        if action == "lose_answer":
            return Fate(lose_answer=True)
        if action == _LATE:
            return Fate(None, reset=True, late=True)
        return Fate(hold_us=int(length_s * 1e6), reset=action == "reset")

"""All kinds of faults, and the deck they are drawn from."""

from __future__ import annotations

import random

from tests.faults.arena import Arena
from tests.faults.broker_faults import BROKER_FAULTS
from tests.faults.clock_faults import CLOCK_FAULTS
from tests.faults.fault import Fault, Target
from tests.faults.group_faults import GROUP_FAULTS
from tests.faults.network_faults import NETWORK_FAULTS
from tests.faults.process_faults import PROCESS_FAULTS

ALL: list[type[Fault]] = [*PROCESS_FAULTS, *NETWORK_FAULTS, *BROKER_FAULTS, *CLOCK_FAULTS, *GROUP_FAULTS]
TOGETHER = {Target.WORKER, Target.RUN}


class Deck:
    """Draws the kinds that an arena allows, each as often as its weight before any comes again.

    The deck outlives arenas: what one could not do comes first in the next. `only`: words that names must hold.
    """

    def __init__(self, dice: random.Random, only: tuple[str, ...] = ()) -> None:
        self._dice = dice
        self._kinds = [kind for kind in ALL if not only or any(word in kind.name for word in only)]
        if not self._kinds:
            raise ValueError(f"no fault is called so: {', '.join(only)}; there are: {', '.join(k.name for k in ALL)}")
        self._cards: list[type[Fault]] = []

    def draw(self, arena: Arena, most: int) -> list[type[Fault]]:
        """What goes into one round: one fault alone, or up to `most` of workers and runs. Empty: none is possible."""
        first = self._take(arena, set(Target) - {Target.NAMESPACE})
        if first is None:
            return []
        drawn = [first]
        while first.target in TOGETHER and len(drawn) < most:
            following = self._take(arena, TOGETHER, refill=False)
            if following is None:
                break
            drawn.append(following)
        return drawn

    def _take(self, arena: Arena, targets: set[Target], refill: bool = True) -> type[Fault] | None:
        for attempt in range(2):
            for place, kind in enumerate(self._cards):
                if kind.target in targets and kind.why_not(arena) is None:
                    return self._cards.pop(place)
            if not refill or attempt:
                return None
            fresh = [kind for kind in self._kinds for _ in range(kind.weight) if kind.target is not Target.NAMESPACE]
            self._dice.shuffle(fresh)
            self._cards += fresh
        return None

    def last(self) -> list[type[Fault]]:
        """Those after which nothing goes on."""
        return [kind for kind in self._kinds if kind.target is Target.NAMESPACE]

"""How long a function is likely to take, learnt from its last runs.

Runs wait behind each other in a process only where that takes little time: a slow function must not hold up others.
"""

from __future__ import annotations

BUDGET_S = 0.006  # of work at a time in a process that takes runs one by one
REFILL_S = 0.003  # it is given more once so little is left: large batches cost less
AHEAD_S = 0.1  # of work that a shared process may have before it in all: that much may be given out beyond the slots
MOST_AHEAD = 4096  # runs
_UNKNOWN_S = 1.0  # alone in a process until it is known
_OVERHEAD_S = 8e-6
_WEIGHT = 0.2
_OUTLIER = 10  # so many times the usual: perhaps it only waited for the processor
_OUTLIER_WEIGHT = 0.02


class Prices:
    def __init__(self) -> None:
        self._known: dict[str, float] = {}
        self._typical_s = _UNKNOWN_S
        self._ahead_s = 0.0  # what is given out and not ended; a long run counts as one process's share

    def of(self, function: str) -> float:
        return self._known.get(function, _UNKNOWN_S)

    def given(self, cost_s: float) -> None:
        self._ahead_s += min(cost_s, AHEAD_S)

    def ended(self, cost_s: float) -> None:
        self._ahead_s -= min(cost_s, AHEAD_S)

    def room(self, processes: int) -> int:
        """How many more runs of the usual price fit into the work that may lie ahead of `processes`."""
        return max(0, int((AHEAD_S * processes - self._ahead_s) / self._typical_s))

    def learn(self, function: str, took_us: int) -> None:
        took_s = took_us * 1e-6 + _OVERHEAD_S
        before = self._known.get(function)
        if before is None:
            self._known[function] = took_s
        else:
            weight = _WEIGHT if took_s < _OUTLIER * before else _OUTLIER_WEIGHT
            self._known[function] = before + weight * (took_s - before)
        self._typical_s += _WEIGHT * (took_s - self._typical_s)

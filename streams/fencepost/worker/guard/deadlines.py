"""Which runner must be gone by when. Pure bookkeeping: the guard asks it, the clock is the caller's.

A runner is bound to leases: it holds runs of them. A lease moves only by a proven renewal that names it, and only
forward. All times are seconds on CLOCK_BOOTTIME.
"""

from __future__ import annotations

END_EARLY_S = 0.3  # the guard ends runners so long before the deadline
DIE_EARLY_S = 0.1  # and is killed itself, by its kernel timer, if they are not gone by then
_ASK_SHARE = 0.1  # the last tenth of a lease's life is for ending by oneself
_ASK_AT_MOST_S = 1.0

Key = tuple[int, float]  # lease number, life_s


class Deadlines:
    def __init__(self) -> None:
        self._began: dict[int, float] = {}
        self._bound: dict[Key, set[int]] = {}
        self._asked: dict[Key, float] = {}  # the deadline that was near when its runners were asked to stop
        self._told: dict[Key, float] = {}  # the deadline for which its runners are being ended

    def renew(self, lease: int, began: float) -> None:
        if began > self._began.get(lease, float("-inf")):
            self._began[lease] = began

    def rebind(self, old: int, new: int) -> None:
        """What was bound to the old lease goes on under the new one; until that is renewed, on the old one's time."""
        began = self._began.pop(old, None)
        if began is not None:
            self.renew(new, began)
        for lease, life_s in [key for key in self._bound if key[0] == old]:
            self._bound.setdefault((new, life_s), set()).update(self._bound.pop((lease, life_s)))

    def forget(self, lease: int) -> None:
        """The worker will not name this lease again. Ignored while a runner is bound to it."""
        if not any(key[0] == lease for key in self._bound):
            self._began.pop(lease, None)

    def deadline(self, key: Key) -> float | None:
        began = self._began.get(key[0])
        return None if began is None else began + key[1]

    def bind(self, runner: int, key: Key, now: float) -> bool:
        """Whether there is time left on the lease; only then is the runner bound."""
        deadline = self.deadline(key)
        if deadline is None or now >= deadline - END_EARLY_S:
            return False
        self._bound.setdefault(key, set()).add(runner)
        return True

    def unbind(self, runner: int, key: Key) -> None:
        runners = self._bound.get(key)
        if runners is not None:
            runners.discard(runner)
            if not runners:
                del self._bound[key]
                self._asked.pop(key, None)
                self._told.pop(key, None)

    def drop(self, runner: int) -> None:
        """The runner is certainly gone."""
        for key in [key for key, runners in self._bound.items() if runner in runners]:
            self.unbind(runner, key)

    def first(self) -> float | None:
        """The earliest deadline that any runner is bound to."""
        return min((self._began[lease] + life_s for lease, life_s in self._bound), default=None)

    def expired(self, now: float) -> dict[int, list[Key]]:
        """Runners that must be ended now, with the leases that ran out."""
        found: dict[int, list[Key]] = {}
        for key, runners in self._bound.items():
            if now >= self._began[key[0]] + key[1] - END_EARLY_S:
                for runner in runners:
                    found.setdefault(runner, []).append(key)
        return found

    def told(self, key: Key) -> None:
        """Its runners are being ended: there is nothing more to look at before they are gone."""
        self._told[key] = self._began[key[0]] + key[1]

    def to_ask(self, now: float) -> set[int]:
        """Runners to be asked to stop, because a lease of theirs is about to end; each once for a deadline."""
        found: set[int] = set()
        for key, runners in self._bound.items():
            deadline = self._began[key[0]] + key[1]
            if now >= deadline - ask_early_s(key[1]) and self._asked.get(key) != deadline:
                self._asked[key] = deadline
                found |= runners
        return found

    def next_look(self) -> float | None:
        """When `expired` or `to_ask` will next have something new."""
        times = []
        for key in self._bound:
            deadline = self._began[key[0]] + key[1]
            if self._told.get(key) == deadline:
                continue
            early_s = END_EARLY_S if self._asked.get(key) == deadline else ask_early_s(key[1])
            times.append(deadline - early_s)
        return min(times, default=None)


def ask_early_s(life_s: float) -> float:
    """So long before its deadline a run is asked to stop."""
    return END_EARLY_S + min(_ASK_AT_MOST_S, _ASK_SHARE * life_s)

"""`H`: a value chosen by the task's ID, so that many tasks with one expression do not all come at once.

As in Jenkins: `H` is one value of the field, `H(a-b)` one of a range, `H/n` and `H(a-b)/n` every n-th from a start
below n. What is chosen depends on the ID and the field alone, so it is the same on every worker and after every
restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class Hashed:
    """An item of a field that is yet to be chosen, within `low` to `high`; `step` 0: one value."""

    low: int
    high: int
    step: int = 0

    def bits(self, field: str, task: str | None) -> int:
        """What the ID chooses; without one, all that any ID may."""
        if task is None:
            return (1 << self.high + 1) - (1 << self.low)
        number = number_of(task, field)
        if not self.step:
            return 1 << self.low + number % (self.high - self.low + 1)
        bits = 0
        for value in range(self.low + number % self.step, self.high + 1, self.step):
            bits |= 1 << value
        return bits


def number_of(task: str, purpose: str) -> int:
    """A number below 2**64 that looks random and is always the same for the same task and purpose."""
    digest = blake2b(f"{purpose}\0{task}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")

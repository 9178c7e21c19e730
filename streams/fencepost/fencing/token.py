"""Which run wants to write: namespace, task and epoch."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from fencepost.core.ids import check_task_id


class Run(Protocol):
    """What a guard needs of a run: a `RunContext` has it, and so has a `Token`."""

    @property
    def namespace(self) -> str: ...

    @property
    def task_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...


class Token(NamedTuple):
    """A fencing token that stands by itself: for code that is not given a context, and for the side of the resource."""

    namespace: str
    task_id: str
    epoch: int


def token_of(run: Run) -> Token:
    """The token of a run. Raises ValueError for what cannot be one: a bad ID, an epoch that is no number above 0."""
    epoch: object = run.epoch
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 1 <= epoch < 2**63:
        raise ValueError(f"epoch: {epoch!r} is not a whole number from 1 to 2^63 - 1")
    if not run.namespace:
        raise ValueError("namespace: is empty")
    return Token(run.namespace, check_task_id(run.task_id), epoch)

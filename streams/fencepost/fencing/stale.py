"""The refusal."""

from __future__ import annotations


class StaleEpoch(Exception):
    """A newer run of the task was here already: nothing that this one wants may take effect.

    A run that gets it should end: it was thought dead, and another one has its work. `newest` is the highest epoch
    that the resource has seen, None where it does not say.
    """

    def __init__(self, task: str, epoch: int, newest: int | None = None) -> None:
        seen = "a newer one" if newest is None else f"epoch {newest}"
        super().__init__(f"{task}: epoch {epoch} is stale, {seen} was here already")
        self.task = task
        self.epoch = epoch
        self.newest = newest

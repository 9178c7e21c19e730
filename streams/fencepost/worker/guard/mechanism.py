"""By what means runs are held, so that a weaker one is said and not found out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mechanism:
    """containment: pid-namespace, user-pid-namespace or process-groups (weaker). scheduling: fifo, nice N or normal."""

    containment: str
    scheduling: str
    notes: tuple[str, ...]

    @property
    def weaker(self) -> bool:
        """Whether processes that leave their session could outlive a guard that is killed."""
        return self.containment == "process-groups"


def frozen_by_cgroup_v1() -> bool:
    """Whether `docker pause` stops this process by cgroup v1's freezer, after which runs could go on for a moment."""
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return False
    in_freezer = [line.split(":", 2)[2] for line in lines if "freezer" in line.split(":", 2)[1].split(",")]
    return bool(in_freezer) and (in_freezer != ["/"] or os.path.exists("/.dockerenv"))

"""What a worker counts, as a plain interface; the exporter turns it into Prometheus metrics."""

from __future__ import annotations

from typing import Protocol


class Meters(Protocol):
    """Called from the lanes' threads; cheap, and never fails."""

    def run_started(self, task: str, delay_s: float) -> None:
        """`delay_s`: from when it was due (slot, arrival or run_at) to when its start was read back."""

    def run_ended(self, task: str, outcome: str, cause: str | None) -> None: ...

    def dead_letter(self, reason: str) -> None: ...

    def transaction(self, outcome: str, seconds: float, records: int) -> None: ...

    def restored(self, seconds: float, tasks: int) -> None: ...

    def takeover(self, seconds: float) -> None:
        """A run found RUNNING was waited out for so long."""

    def node_fenced(self, outcome: str) -> None:
        """A command that fences a lost worker's node came to this: confirmed, failed or timed_out."""

    def gauges(
        self,
        *,
        lane: int,
        in_flight: int,
        ready: int,
        backlog: int,
        oldest_waiting_s: float,
        partitions: int,
        rebalances: int,
        clock_difference_s: float,
    ) -> None:
        """The lane's present state, about once a second."""


class NoMeters:
    """Counts nothing."""

    def run_started(self, task: str, delay_s: float) -> None:
        return None

    def run_ended(self, task: str, outcome: str, cause: str | None) -> None:
        return None

    def dead_letter(self, reason: str) -> None:
        return None

    def transaction(self, outcome: str, seconds: float, records: int) -> None:
        return None

    def restored(self, seconds: float, tasks: int) -> None:
        return None

    def takeover(self, seconds: float) -> None:
        return None

    def node_fenced(self, outcome: str) -> None:
        return None

    def gauges(self, **_values: float) -> None:
        return None

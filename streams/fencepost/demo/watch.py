"""What the demo sees while it goes on: the history in Kafka and the witness files, both as they grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fencepost.core.task import Outcome
from fencepost.core.times import parse_rfc3339
from fencepost.demo.witness import LeftOut, Reader
from fencepost.kafka.tail import Tail
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.wire.history import HistoryRecord, decode_history

_ENDS = {outcome.value for outcome in Outcome}


class DemoFailed(Exception):
    """Something did not happen in time; the message says what."""


@dataclass(slots=True)
class Run:
    """A run as the history tells it. `ended_ms` and `outcome` None: it is on."""

    task: str
    epoch: int
    worker: str
    started_ms: int
    ended_ms: int | None = None
    outcome: str | None = None
    cause: str | None = None
    slot_ms: int | None = None
    checkpoint_s: float = 0.0  # where it was taken up, as it said itself


@dataclass(slots=True)
class Beats:
    """A run as its own lines tell it; CLOCK_BOOTTIME in ns."""

    first_ns: int
    last_ns: int
    ended: bool = False


@dataclass(slots=True)
class Watch:
    """Both views, updated by `update`. Use as a context manager."""

    settings: Settings
    folder: Path
    display: Callable[[str], str]  # a lane's name -> the worker's in the demo
    runs: dict[tuple[str, int], Run] = field(default_factory=dict)
    beats: dict[tuple[str, int], Beats] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    check: Callable[[], None] = lambda: None  # looked at on every update; raises when it is no use to go on
    _tail: Tail | None = None
    _reader: Reader | None = None

    def __enter__(self) -> Watch:
        self._tail = Tail(self.settings, Topics(self.settings.namespace).runs, since_ms=0)
        self._reader = Reader(self.folder)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._tail is not None:
            self._tail.close()

    def update(self, wait_s: float = 0.05) -> None:
        """Take in what came, waiting at most so long for news. Raises DemoFailed, KafkaProblem, BadRecord."""
        assert self._tail is not None
        assert self._reader is not None
        for record in self._tail.poll(wait_s):
            if record.value is not None:
                self._take(decode_history(record.value))
        for line in self._reader.new_lines():
            beats = self.beats.setdefault((line.task, line.epoch), Beats(line.at_ns, line.at_ns))
            beats.last_ns = max(beats.last_ns, line.at_ns)
            beats.ended = beats.ended or line.what == "end"
        self.check()

    def until(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        """Until the condition holds. Raises DemoFailed saying `what` did not come."""
        until_s = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > until_s:
                raise DemoFailed(f"{what}: not within {limit_s:g} s")
            self.update()

    def last_epoch(self, task: str) -> int:
        """The newest epoch whose run wrote; 0: none did."""
        return max((epoch for name, epoch in self.beats if name == task), default=0)

    def both_tell(self, task: str, epoch: int) -> bool:
        """Whether the run is known from the history and from its own lines."""
        return (task, epoch) in self.runs and (task, epoch) in self.beats

    def wrote_for_s(self, task: str) -> float:
        """How long the newest run of the task has been writing."""
        beats = self.beats.get((task, self.last_epoch(task)))
        return 0.0 if beats is None else (beats.last_ns - beats.first_ns) / 1e9

    def alive(self, task: str, worker: str | None = None) -> Run | None:
        """The task's run that is on (at that worker), by the history and by its own lines."""
        for run in self.runs.values():
            beats = self.beats.get((run.task, run.epoch))
            if run.task == task and run.outcome is None and beats is not None and not beats.ended:
                return run if worker in (None, run.worker) else None
        return None

    def open_runs(self, prefix: str = "") -> list[Run]:
        return [run for run in self.runs.values() if run.outcome is None and run.task.startswith(prefix)]

    def of_task(self, task: str) -> list[Run]:
        return sorted((run for run in self.runs.values() if run.task == task), key=lambda run: run.epoch)

    def interrupted(self) -> Iterator[tuple[str, int]]:
        return ((run.task, run.epoch) for run in self.runs.values() if run.outcome == Outcome.INTERRUPTED.value)

    def _take(self, event: HistoryRecord) -> None:
        fields, slot = event.fields, event.fields.get("slot")
        slot_ms = None if slot is None else parse_rfc3339(slot)
        if event.kind == "started" and event.epoch is not None:
            run = Run(event.task, event.epoch, self.display(event.lane), event.at_ms, slot_ms=slot_ms)
            self.runs[event.task, event.epoch] = run
        elif event.kind in _ENDS and event.epoch is not None:
            ended = self.runs.get((event.task, event.epoch))
            if ended is None or "duration_s" not in fields:
                return  # work that waited ended without a run
            ended.ended_ms, ended.outcome = event.at_ms, event.kind
            ended.cause = fields.get("cause") or fields.get("error")
            if isinstance(result := fields.get("result"), dict):
                ended.checkpoint_s = float(result.get("resumed_at_s", 0.0))
        elif event.kind == "missed":
            first, last = parse_rfc3339(fields["first"]), parse_rfc3339(fields["last"])
            self.left_out.append(LeftOut(event.task, first, last, fields["cause"]))
        elif event.kind == "skipped" and slot_ms is not None:
            self.left_out.append(LeftOut(event.task, slot_ms, slot_ms, fields["cause"]))

"""The check of the witness files. It trusts nothing of the system: standard library only, its own idea of a schedule.

What it is told from outside, it is told as plain facts to hold against the files: which slots were recorded as skipped
or missed and why, and which runs were recorded as interrupted (their work may be done again; that is a repetition with
a cause, not a doubled slot).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

BEGIN, BEAT, END = "begin", "beat", "end"


class Kind(StrEnum):
    """What was found; each of them breaks the promise, or leaves it unproven."""

    OVERLAP = "overlap"  # two epochs of one task were writing at the same time
    STALE = "stale"  # an older epoch wrote after a newer one had begun
    TWICE = "twice"  # one epoch was run by two processes
    LOST = "lost slot"  # a slot neither ran nor was skipped or missed with a cause
    DOUBLED = "doubled slot"  # a slot was run to its end twice, or run and reported as left out
    STRANGE = "strange slot"  # a slot the schedule does not have
    UNREADABLE = "unreadable"  # a line that is none
    NOTHING = "nothing"  # nothing was written, so nothing is proven


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a witness file."""

    at_ns: int
    task: str
    epoch: int
    pid: int
    worker: str
    what: str
    slot_ms: int | None


@dataclass(frozen=True, slots=True)
class Timetable:
    """A task with a slot at every multiple of `interval_ms`; those up to `until_ms` have to be accounted for."""

    task: str
    interval_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Slots that the system says it left out, both ends included."""

    task: str
    first_ms: int
    last_ms: int
    cause: str


@dataclass(frozen=True, slots=True)
class Problem:
    kind: Kind
    task: str
    text: str


@dataclass(slots=True)
class Report:
    """The verdict and what it rests on."""

    problems: list[Problem] = field(default_factory=list)
    tasks: int = 0
    runs: int = 0
    lines: int = 0
    slots: int = 0
    slots_run: int = 0
    slots_left_out: int = 0
    repeated: int = 0  # slots run again because their run was interrupted after its last line

    @property
    def holds(self) -> bool:
        return not self.problems


@dataclass(slots=True)
class _Epoch:
    first_ns: int
    last_ns: int
    writers: set[tuple[str, int]] = field(default_factory=set)
    begins: int = 0


class Reader:
    """Reads a folder's files as they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.unreadable: list[str] = []

    def new_lines(self) -> list[Line]:
        """What came since the last call; in order of writing within each task. A line half written waits."""
        found: list[Line] = []
        for path in sorted(self._folder.glob("*.log")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + whole
            for raw in text[:whole].splitlines():
                line = parse(raw)
                if line is None:
                    self.unreadable.append(f"{path.name}: {raw[:200]!r}")
                else:
                    found.append(line)
        return found


def parse(raw: bytes) -> Line | None:
    """A line; None if it is none."""
    parts = raw.decode("utf-8", "replace").split("\t")
    if len(parts) != 7 or parts[5] not in (BEGIN, BEAT, END):
        return None
    at, task, epoch, pid, worker, what, slot = parts
    try:
        return Line(int(at), task, int(epoch), int(pid), worker, what, None if slot == "-" else int(slot))
    except ValueError:
        return None


def check_folder(
    folder: Path,
    timetables: Iterable[Timetable] = (),
    left_out: Iterable[LeftOut] = (),
    interrupted: Iterable[tuple[str, int]] = (),
) -> Report:
    """All files of the folder, from their beginning. See `check`."""
    reader = Reader(folder)
    by_task: dict[str, list[Line]] = {}
    for line in reader.new_lines():
        by_task.setdefault(line.task, []).append(line)
    report = check(by_task, timetables, left_out, interrupted)
    report.problems += [Problem(Kind.UNREADABLE, "", text) for text in reader.unreadable]
    return report


def check(
    by_task: Mapping[str, Sequence[Line]],
    timetables: Iterable[Timetable] = (),
    left_out: Iterable[LeftOut] = (),
    interrupted: Iterable[tuple[str, int]] = (),
) -> Report:
    """by_task: lines in the order they were written. interrupted: (task, epoch) of runs recorded as such."""
    report = Report(tasks=len(by_task), lines=sum(len(lines) for lines in by_task.values()))
    if not report.lines:
        report.problems.append(Problem(Kind.NOTHING, "", "the witness files are empty"))
    for task, lines in by_task.items():
        _check_epochs(task, lines, report)
    excused = set(interrupted)
    told = list(left_out)
    for timetable in timetables:
        lines = by_task.get(timetable.task, ())
        _check_slots(timetable, lines, [item for item in told if item.task == timetable.task], excused, report)
    return report


def _check_epochs(task: str, lines: Sequence[Line], report: Report) -> None:
    """By the clock: no two epochs' spans touch. By the order of writing: once a newer epoch wrote, older ones are mute.

    Either alone would do on a machine without faults; a process that was frozen between looking at the clock and
    writing shows in the second only.
    """
    epochs: dict[int, _Epoch] = {}
    newest = 0
    stale: Counter[int] = Counter()
    for line in lines:
        span = epochs.setdefault(line.epoch, _Epoch(line.at_ns, line.at_ns))
        span.first_ns = min(span.first_ns, line.at_ns)
        span.last_ns = max(span.last_ns, line.at_ns)
        span.writers.add((line.worker, line.pid))
        span.begins += line.what == BEGIN
        stale[line.epoch] += line.epoch < newest
        newest = max(newest, line.epoch)
    report.runs += len(epochs)
    for epoch, count in sorted((+stale).items()):
        text = f"epoch {epoch} wrote {count} lines after a newer epoch had begun"
        report.problems.append(Problem(Kind.STALE, task, text))
    latest: tuple[int, int] | None = None  # (last ns, epoch) of the older epoch that went on longest
    for epoch, span in sorted(epochs.items()):
        if latest is not None and span.first_ns <= latest[0]:
            text = (
                f"epoch {epoch} began {(latest[0] - span.first_ns) / 1e6:.1f} ms before epoch {latest[1]} fell silent"
            )
            report.problems.append(Problem(Kind.OVERLAP, task, text))
        latest = max(latest or (0, 0), (span.last_ns, epoch))
        if len(span.writers) > 1 or span.begins != 1:
            who = ", ".join(f"{worker}/{pid}" for worker, pid in sorted(span.writers))
            report.problems.append(Problem(Kind.TWICE, task, f"epoch {epoch} began {span.begins} times, by {who}"))


def _check_slots(
    timetable: Timetable, lines: Sequence[Line], told: Sequence[LeftOut], excused: set[tuple[str, int]], report: Report
) -> None:
    """Every slot from the first one known of to `until_ms` ended in one run, or was left out with a cause."""
    task, step = timetable.task, timetable.interval_ms
    ends: dict[int, list[int]] = {}
    for line in lines:
        if line.slot_ms is not None and line.what == END:
            ends.setdefault(line.slot_ms, []).append(line.epoch)
    seen = {line.slot_ms for line in lines if line.slot_ms is not None}
    seen |= {slot for item in told for slot in (item.first_ms, item.last_ms)}
    for slot in sorted(slot for slot in seen if slot % step):
        report.problems.append(Problem(Kind.STRANGE, task, f"{slot} is no multiple of {step} ms"))
    first = min(seen, default=None)
    if first is None or first > timetable.until_ms:
        report.problems.append(Problem(Kind.LOST, task, "not one slot was seen"))
        return
    left_out = {
        slot: item.cause
        for item in told
        for slot in range(item.first_ms, min(item.last_ms, timetable.until_ms) + 1, step)
        if item.cause
    }
    for slot in range(first, timetable.until_ms + 1, step):
        report.slots += 1
        counted = [epoch for epoch in ends.get(slot, ()) if (task, epoch) not in excused]
        report.repeated += len(ends.get(slot, ())) > 1 and len(counted) <= 1
        report.slots_run += bool(counted)
        report.slots_left_out += slot in left_out
        if len(counted) > 1:
            text = f"slot {slot} was run to its end by epochs {', '.join(map(str, counted))}"
            report.problems.append(Problem(Kind.DOUBLED, task, text))
        elif counted and slot in left_out:
            text = f"slot {slot} was run by epoch {counted[0]} and is recorded as left out ({left_out[slot]})"
            report.problems.append(Problem(Kind.DOUBLED, task, text))
        elif not counted and slot not in left_out:
            text = f"slot {slot} was neither run to its end nor recorded as skipped or missed"
            report.problems.append(Problem(Kind.LOST, task, text))

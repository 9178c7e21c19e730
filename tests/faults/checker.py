"""The judge of witness files: did two runs of a task overlap, did a stale one write, was a slot lost or run twice?

It trusts nothing of the system that is judged and imports nothing of it (a test holds that): standard library only, its
own reading of the files, its own idea of a schedule. A witness line is what a run's own code wrote, by one write with
O_APPEND, into the file of its task; columns are separated by tabs:

    CLOCK_REALTIME in ns   task   epoch   process ID   worker   begin|beat|child|end   slot in ms, or "-"

One machine, one clock: no fault steps the machine's own wall clock; brokers and workers get other clocks, tasks do not.
The order of the lines in a file is the order of the writes, which no clock can change; both are looked at.

What only the system can know it may *claim*: slots that it left out, and runs that it did not count as done. A claim
excuses, it never proves; where a claim and the files disagree, the files are believed.

    python -m tests.faults.checker FOLDER [--facts FACTS.json]      exit code 1 when something was found
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

BEGIN, BEAT, CHILD, END = "begin", "beat", "child", "end"
_WHATS = (BEGIN, BEAT, CHILD, END)
_COLUMNS = 7


class Kind(StrEnum):
    """What was found. Each breaks the promise, or leaves it unproven."""

    OVERLAP = "overlap"  # two epochs of one task wrote at the same time
    STALE = "stale"  # an epoch wrote after a newer one had begun
    TWICE = "twice"  # one epoch was begun twice
    LOST = "lost slot"  # a slot neither ran to its end nor was left out with a cause
    DOUBLED = "doubled slot"  # a slot was done twice, or done and claimed to be left out
    STRANGE = "strange slot"  # a slot that the schedule does not have
    UNREADABLE = "unreadable"  # a line that is none
    NOTHING = "nothing"  # no line at all: nothing is proven


@dataclass(frozen=True, slots=True)
class Line:
    """One witness line. `slot_ms` is None for a run that no schedule asked for."""

    at_ns: int
    task: str
    epoch: int
    pid: int
    worker: str
    what: str
    slot_ms: int | None


@dataclass(frozen=True, slots=True)
class Timetable:
    """A task with a slot at every multiple of `interval_ms`: all from `from_ms` to `until_ms` have to be accounted for.

    from_ms None: from the first slot that a file or a claim knows of.
    """

    task: str
    interval_ms: int
    until_ms: int
    from_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A claim: the system left out these slots, both ends included, for a cause that it names."""

    task: str
    first_ms: int
    last_ms: int
    cause: str


@dataclass(frozen=True, slots=True)
class Violation:
    """`at_ns`: the moments concerned, by the witness lines themselves."""

    kind: Kind
    task: str
    text: str
    at_ns: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.task}: {self.text}"


@dataclass(slots=True)
class Report:
    """The verdict, and how much it rests on."""

    violations: list[Violation] = field(default_factory=list)
    tasks: int = 0
    runs: int = 0
    lines: int = 0
    slots: int = 0
    slots_done: int = 0
    slots_left_out: int = 0
    slots_repeated: int = 0  # done again because the run before was claimed not to count

    @property
    def holds(self) -> bool:
        return not self.violations

    def count(self, *kinds: Kind) -> int:
        return sum(violation.kind in kinds for violation in self.violations)


@dataclass(slots=True)
class _Epoch:
    """The span in which an epoch wrote."""

    first_ns: int
    last_ns: int
    begins: list[tuple[str, int, int]] = field(default_factory=list)  # worker, pid, at ns
    late_ns: list[int] = field(default_factory=list)  # writes after a newer epoch had begun


@dataclass(slots=True)
class _Slot:
    done_by: list[tuple[int, int]] = field(default_factory=list)  # epoch, at ns


@dataclass(slots=True)
class _Task:
    epochs: dict[int, _Epoch] = field(default_factory=dict)
    slots: dict[int, _Slot] = field(default_factory=dict)
    newest: int = 0


class Checker:
    """Lines go in by `see`, those of one task in the order they were written; `finish` gives the verdict.

    It keeps a span per epoch, not the lines: histories of any length fit.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}
        self._lines = 0
        self._unreadable: list[str] = []

    def see(self, line: Line) -> None:
        self._lines += 1
        task = self._tasks.setdefault(line.task, _Task())
        span = task.epochs.get(line.epoch)
        if span is None:
            span = task.epochs[line.epoch] = _Epoch(line.at_ns, line.at_ns)
        span.first_ns = min(span.first_ns, line.at_ns)
        span.last_ns = max(span.last_ns, line.at_ns)
        if line.epoch < task.newest:
            span.late_ns.append(line.at_ns)
        task.newest = max(task.newest, line.epoch)
        if line.what == BEGIN:
            span.begins.append((line.worker, line.pid, line.at_ns))
        if line.slot_ms is not None:
            slot = task.slots.setdefault(line.slot_ms, _Slot())
            if line.what == END:
                slot.done_by.append((line.epoch, line.at_ns))

    def see_unreadable(self, where: str) -> None:
        self._unreadable.append(where)

    def finish(
        self,
        timetables: Iterable[Timetable] = (),
        left_out: Iterable[LeftOut] = (),
        not_counted: Iterable[tuple[str, int]] = (),
    ) -> Report:
        """left_out and not_counted (task, epoch) are claims of the system, see above."""
        report = Report(tasks=len(self._tasks), lines=self._lines)
        report.violations += [Violation(Kind.UNREADABLE, "", where) for where in self._unreadable]
        if not self._lines:
            report.violations.append(Violation(Kind.NOTHING, "", "no witness line at all"))
        for name, task in sorted(self._tasks.items()):
            report.runs += len(task.epochs)
            report.violations += _of_epochs(name, task)
        claims: dict[str, list[LeftOut]] = {}
        for claim in left_out:
            claims.setdefault(claim.task, []).append(claim)
        excused = set(not_counted)
        for timetable in timetables:
            task = self._tasks.get(timetable.task, _Task())
            _count_slots(timetable, task, claims.get(timetable.task, []), excused, report)
        return report


def _of_epochs(name: str, task: _Task) -> Iterator[Violation]:
    older: tuple[int, int] | None = None  # (last ns, epoch) of the older epoch that wrote the longest
    for epoch, span in sorted(task.epochs.items()):
        if older is not None and span.first_ns <= older[0]:
            last_ns, other = older
            text = (
                f"epoch {epoch} began at {clock(span.first_ns)}, {(last_ns - span.first_ns) / 1e6:.3f} ms before "
                f"epoch {other} wrote last, at {clock(last_ns)}"
            )
            yield Violation(Kind.OVERLAP, name, text, (span.first_ns, last_ns))
        if span.late_ns:
            text = (
                f"epoch {epoch} wrote {len(span.late_ns)} lines after a newer epoch had begun: "
                f"{clock(min(span.late_ns))} to {clock(max(span.late_ns))}"
            )
            yield Violation(Kind.STALE, name, text, (min(span.late_ns), max(span.late_ns)))
        if len(span.begins) > 1:
            who = ", ".join(f"{worker}/{pid} at {clock(at_ns)}" for worker, pid, at_ns in span.begins)
            text = f"epoch {epoch} was begun {len(span.begins)} times: {who}"
            yield Violation(Kind.TWICE, name, text, tuple(at_ns for _, _, at_ns in span.begins))
        older = max(older or (0, 0), (span.last_ns, epoch))


def _count_slots(
    timetable: Timetable, task: _Task, claims: list[LeftOut], excused: set[tuple[str, int]], report: Report
) -> None:
    name, step = timetable.task, timetable.interval_ms
    known = set(task.slots) | {slot for claim in claims for slot in (claim.first_ms, claim.last_ms)}
    for slot in sorted(slot for slot in known if slot % step):
        text = f"{clock(slot * 1_000_000)} is no multiple of {step} ms"
        report.violations.append(Violation(Kind.STRANGE, name, text, (slot * 1_000_000,)))
    first = min(known, default=None) if timetable.from_ms is None else -(-timetable.from_ms // step) * step
    if first is None or (not known and first <= timetable.until_ms):
        report.violations.append(Violation(Kind.LOST, name, "not one slot was seen"))
        return
    causes = _causes(claims, step, timetable.until_ms)
    for slot in range(first, timetable.until_ms + 1, step):
        done = task.slots.get(slot, _Slot()).done_by
        counted = [(epoch, at_ns) for epoch, at_ns in done if (name, epoch) not in excused]
        report.slots += 1
        report.slots_done += bool(counted)
        report.slots_left_out += slot in causes
        report.slots_repeated += len(done) > 1 and len(counted) <= 1
        what = f"the slot {clock(slot * 1_000_000)}"
        ends = ", ".join(f"epoch {epoch} at {clock(at_ns)}" for epoch, at_ns in counted)
        times = tuple(at_ns for _, at_ns in counted) or (slot * 1_000_000,)
        if len(counted) > 1:
            report.violations.append(Violation(Kind.DOUBLED, name, f"{what} was done by {ends}", times))
        elif counted and slot in causes:
            text = f"{what} was done by {ends} and is said to be left out ({causes[slot]})"
            report.violations.append(Violation(Kind.DOUBLED, name, text, times))
        elif not counted and slot not in causes:
            text = f"{what} was neither done nor left out with a cause"
            report.violations.append(Violation(Kind.LOST, name, text, times))


def _causes(claims: list[LeftOut], step: int, until_ms: int) -> dict[int, str]:
    """By slot, why it was left out. A claim without a cause is none."""
    return {
        slot: claim.cause
        for claim in claims
        if claim.cause
        for slot in range(claim.first_ms, min(claim.last_ms, until_ms) + 1, step)
    }


def clock(at_ns: int) -> str:
    """A moment as people read it, in UTC, to the microsecond."""
    return f"{datetime.fromtimestamp(at_ns // 1000 / 1e6, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


# -- files ------------------------------------------------------------------------------------------------------------


def parse(raw: bytes) -> Line | None:
    """A line; None if it is none."""
    parts = raw.decode("utf-8", "replace").split("\t")
    if len(parts) != _COLUMNS or parts[5] not in _WHATS:
        return None
    at, task, epoch, pid, worker, what, slot = parts
    try:
        return Line(int(at), task, int(epoch), int(pid), worker, what, None if slot == "-" else int(slot))
    except ValueError:
        return None


def read_folder(folder: Path, checker: Checker) -> None:
    """All witness files of the folder. What cannot be read counts, also a last line that was cut off."""
    for path in sorted(folder.glob("*.log")):
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if not raw.endswith(b"\n"):
                    checker.see_unreadable(f"{path.name}:{number}: cut off: {raw[:120]!r}")
                    continue
                line = parse(raw[:-1])
                if line is None:
                    checker.see_unreadable(f"{path.name}:{number}: {raw[:120]!r}")
                else:
                    checker.see(line)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is told from outside: the schedules, and the system's claims."""

    timetables: tuple[Timetable, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    not_counted: tuple[tuple[str, int], ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "timetables": [[item.task, item.interval_ms, item.until_ms, item.from_ms] for item in self.timetables],
            "left_out": [[item.task, item.first_ms, item.last_ms, item.cause] for item in self.left_out],
            "not_counted": [list(item) for item in self.not_counted],
        }

    @classmethod
    def from_json(cls, body: dict[str, list[list[object]]]) -> Facts:
        return cls(
            tuple(Timetable(*item) for item in body.get("timetables", [])),  # type: ignore[arg-type]
            tuple(LeftOut(*item) for item in body.get("left_out", [])),  # type: ignore[arg-type]
            tuple((str(task), int(str(epoch))) for task, epoch in body.get("not_counted", [])),
        )


def check_folder(folder: Path, facts: Facts | None = None) -> Report:
    facts = facts or Facts()
    checker = Checker()
    read_folder(folder, checker)
    return checker.finish(facts.timetables, facts.left_out, facts.not_counted)


def summary(report: Report) -> str:
    """What was looked at, in one line."""
    return (
        f"{report.lines:,} lines of {report.runs:,} runs of {report.tasks} tasks; {report.slots:,} slots: "
        f"{report.slots_done:,} done, {report.slots_left_out:,} left out with a cause, "
        f"{report.slots_repeated:,} repeated after an interruption"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.checker", description="Judge a folder of witness files."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--facts", type=Path, help="JSON: timetables, left_out, not_counted")
    chosen = parser.parse_args(arguments)
    if not chosen.folder.is_dir():
        print(f"{chosen.folder} is no folder", file=sys.stderr)
        return 2
    facts = Facts.from_json(json.loads(chosen.facts.read_text())) if chosen.facts else Facts()
    report = check_folder(chosen.folder, facts)
    for violation in report.violations:
        print(violation)
    print(f"{'holds' if report.holds else f'{len(report.violations)} violations'}: {summary(report)}")
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

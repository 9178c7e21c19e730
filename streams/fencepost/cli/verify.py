"""`verify`: from the topics alone, whether the promise held."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from fencepost.cli.options import Bootstrap, Config, Json, Namespace, load_settings
from fencepost.cli.output import emit, note, say
from fencepost.cli.owned import read_owners
from fencepost.cli.view import TaskView, declared, load_partition
from fencepost.codec import BadRecord
from fencepost.core.commands import History
from fencepost.core.schedule import Schedule
from fencepost.core.verify import Counts, Finding, Kind, PartitionCheck
from fencepost.kafka.namespace import load_namespace
from fencepost.kafka.scan import open_reader, scan, watermarks
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.wire.history import decode_history

_TRIES = 4
_PAUSE_S = 1.0


@dataclass(slots=True)
class Verdict:
    """What all partitions said. `notes` break nothing."""

    counts: Counts = field(default_factory=Counts)
    violations: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    complete: bool = True

    @property
    def holds(self) -> bool:
        return not self.violations


def verify(
    app: Annotated[str | None, typer.Option("--app", help="Also count the slots that this app declares.")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Check from the topics alone: did two epochs of a task overlap, was one started twice, was a slot lost.

    Exit code 1 if the promise was broken. Safe at any time; what it cannot see is whether a process outlived its run.
    """
    settings = load_settings(config, bootstrap, namespace, app=app)
    verdict = check(settings)
    if as_json:
        emit(_document(verdict))
    else:
        _show(verdict)
    if not verdict.holds:
        raise typer.Exit(1)


def check(settings: Settings) -> Verdict:
    """All partitions, one after the other. Raises KafkaProblem."""
    partitions = load_namespace(settings).partitions
    schedules = {task: item.schedule for task, item in declared(settings).items() if item.schedule is not None}
    verdict = Verdict()
    for number in range(partitions):
        findings, counts = _check_settled(settings, number, schedules, verdict)
        verdict.counts += counts
        verdict.violations += [finding for finding in findings if finding.kind is not Kind.NOTE]
        verdict.notes += [finding for finding in findings if finding.kind is Kind.NOTE]
    return verdict


def _check_settled(
    settings: Settings, number: int, schedules: dict[str, Schedule], verdict: Verdict
) -> tuple[list[Finding], Counts]:
    """A transaction's partitions become readable one after the other, so that state may seem ahead for a moment."""
    for attempt in range(_TRIES):
        unreadable: list[str] = []
        findings, counts, complete = _check_partition(settings, number, schedules, unreadable)
        doubtful = any(finding.kind in (Kind.STATE, Kind.NO_OWNER) for finding in findings)
        if not doubtful or attempt == _TRIES - 1:
            break
        time.sleep(_PAUSE_S)
    verdict.unreadable += unreadable
    verdict.complete = verdict.complete and complete
    return findings, counts


def _check_partition(
    settings: Settings, number: int, schedules: dict[str, Schedule], unreadable: list[str]
) -> tuple[list[Finding], Counts, bool]:
    topics = Topics(settings.namespace)
    fence = read_owners(settings, [number]).fences.get(number)
    views = load_partition(settings, number)
    complete = _first_offset(settings, topics.runs, number) == 0
    checker = PartitionCheck(
        complete,
        {task: schedule for task in views if (schedule := views[task].schedule or schedules.get(task)) is not None},
        {task: _waiting_slots(view) for task, view in views.items()},
        None if fence is None else (fence.nonce, fence.released),
    )
    for task, view in views.items():
        if view.problem is not None:
            unreadable.append(f"{task}: {view.problem}")
            checker.unreadable(task)
        if view.state is not None:
            checker.state(view.state)
    for record in scan(settings, topics.runs, [number]):
        if record.value is None:
            continue
        try:
            event = decode_history(record.value)
        except BadRecord as error:
            unreadable.append(f"{record.topic}/{record.partition}/{record.offset}: {error}")
            continue
        checker.event(event.task, History(event.kind, event.epoch, event.at_ms, event.fields))
    findings, counts = checker.finish()
    return findings, counts, complete


def _waiting_slots(view: TaskView) -> list[int]:
    works = [*view.waiting, *([view.state.work] if view.state is not None and view.state.work is not None else ())]
    return [work.slot_ms for work in works if work.slot_ms is not None]


def _first_offset(settings: Settings, topic: str, number: int) -> int:
    consumer = open_reader(settings, "verify")
    try:
        return watermarks(consumer, topic, number, 15.0)[0]
    finally:
        consumer.close()


def _document(verdict: Verdict) -> dict[str, Any]:
    counts = verdict.counts
    return {
        "holds": verdict.holds,
        "complete": verdict.complete,
        "tasks": counts.tasks,
        "events": counts.events,
        "runs": counts.runs,
        "running": counts.running,
        "violations": [_finding(finding) for finding in verdict.violations],
        "notes": [_finding(finding) for finding in verdict.notes],
        "unreadable": verdict.unreadable,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {"kind": finding.kind.value, "task": finding.task, "epoch": finding.epoch, "text": finding.text}


def _show(verdict: Verdict) -> None:
    counts = verdict.counts
    for finding in verdict.violations:
        say(f"BROKEN {finding.kind.value}: {finding.task}: {finding.text}")
    for finding in verdict.notes:
        say(f"note: {finding.task}: {finding.text}")
    for line in verdict.unreadable:
        note(f"warning: cannot be read: {line}")
    if not verdict.complete:
        say("note: older history is no longer kept, so only what is left was checked")
    looked = f"{counts.tasks} tasks, {counts.runs} runs, {counts.events} events; {counts.running} running now"
    if verdict.holds:
        say(f"the promise holds: {looked}")
    else:
        say(f"the promise was broken {len(verdict.violations)} times: {looked}")

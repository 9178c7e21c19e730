"""`verify`: from the topics alone, whether the promise held."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fencepost.app import load_app
from fencepost.audit.verify import Verdict, check
from fencepost.cli.options import Bootstrap, Config, Json, Namespace, Pool, load_settings
from fencepost.cli.output import emit, note, say
from fencepost.cli.progress import progress_bar
from fencepost.cli.when import when_ms
from fencepost.core.verify import Finding, Place

__all__ = ["Verdict", "check", "verify"]


def verify(
    task: Annotated[str | None, typer.Option("--task", metavar="ID", help="Check this task only.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only history since this time, or so long ago, such as 10m or 2d.")
    ] = None,
    app: Annotated[str | None, typer.Option("--app", help="Also count the slots that this app declares.")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    pool: Pool = None,
    as_json: Json = False,
) -> None:
    """Check from the topics alone: did two epochs of a task overlap, was one started twice, was a slot lost.

    Each finding names the records that show it: topic/partition/offset. Exit code 1 if the promise was broken. Safe at
    any time, on a namespace of any size; what it cannot see is whether a process outlived its run.
    """
    settings = load_settings(config, bootstrap, namespace, pool=pool, app=app)
    since_ms = None if since is None else when_ms("--since", since)
    definitions = () if settings.app is None else load_app(settings.app).definitions()
    with progress_bar("reading the topics", wanted=not as_json) as progress:
        verdict = check(settings, task=task, since_ms=since_ms, definitions=definitions, progress=progress)
    if as_json:
        emit(_document(verdict))
    else:
        _show(verdict, partial=task is not None or since is not None)
    if not verdict.holds:
        raise typer.Exit(1)


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
        "more": {kind.value: count for kind, count in verdict.more.items()},
        "unreadable": verdict.unreadable,
        "unreadable_more": verdict.unreadable_more,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    places = [{"topic": place.topic, "partition": place.partition, "offset": place.offset} for place in finding.places]
    return {
        "kind": finding.kind.value,
        "task": finding.task,
        "epoch": finding.epoch,
        "text": finding.text,
        "places": places,
    }


def _show(verdict: Verdict, *, partial: bool) -> None:
    counts = verdict.counts
    for finding in verdict.violations:
        say(f"BROKEN {finding.kind.value}: {finding.task}: {finding.text}{_where(finding.places)}")
    for finding in verdict.notes:
        say(f"note: {finding.task}: {finding.text}{_where(finding.places)}")
    for kind, count in verdict.more.items():
        say(f"and {count} more of kind {kind.value}")
    for line in verdict.unreadable:
        note(f"warning: cannot be read: {line}")
    if verdict.unreadable_more:
        note(f"warning: and {verdict.unreadable_more} more records that cannot be read")
    if not verdict.complete and not partial:
        say("note: older history is no longer kept, so only what is left was checked")
    looked = f"{counts.tasks} tasks, {counts.runs} runs, {counts.events} events; {counts.running} running now"
    if verdict.holds:
        say(f"the promise holds: {looked}")
    else:
        broken = len(verdict.violations) + sum(verdict.more.values())
        say(f"the promise was broken {broken} times: {looked}")


def _where(places: tuple[Place, ...]) -> str:
    named = ", ".join(f"{place.topic}/{place.partition}/{place.offset}" for place in places)
    return f" ({named})" if named else ""

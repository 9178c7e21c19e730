"""The end of the demo: what happened, how long takeovers took, and whether the promise held."""

from __future__ import annotations

import time

from rich.text import Text

from fencepost.cli.verify import Verdict
from fencepost.demo.acts import Fault, Takeover
from fencepost.demo.show import Show
from fencepost.demo.watch import Run, Watch
from fencepost.demo.witness import Report

_MOST_ROWS = 4  # of runs that only succeeded, one after the other on one worker, before they are told in one row


def show_picture(show: Show, watch: Watch, faults: list[Fault]) -> None:
    """A column for each second, a row for each task; the colour and letter are the worker's."""
    runs = sorted(watch.runs.values(), key=lambda run: run.started_ms)
    begin_ms = runs[0].started_ms
    seconds = (max(run.ended_ms or run.started_ms for run in runs) - begin_ms) // 1000 + 1
    scale = max(1, -(-seconds // (show.console.width - 12)))
    show.console.print()
    marks = Text(" " * 11)
    row = [" "] * (seconds // scale + 1)
    for fault in faults:
        row[max(0, min(len(row) - 1, (fault.at_ms - begin_ms) // 1000 // scale))] = fault.letter
    marks.append("".join(row), style="bold red")
    show.console.print(marks)
    for task in sorted({run.task for run in runs}):
        show.console.print(_row(show, task, watch, begin_ms, scale, len(row)))
    named = ", ".join(f"[bold {show.colour(name)}]{name[0]}[/] {name}" for name in show.colours)
    told = ", ".join(f"[bold red]{fault.letter}[/] {fault.text}" for fault in faults)
    each = "second" if scale == 1 else f"{scale} seconds"
    show.console.print(f"[dim]one column is one {each};[/] {named}; [bold red]×[/] interrupted; {told}")


def _row(show: Show, task: str, watch: Watch, begin_ms: int, scale: int, width: int) -> Text:
    """From the runs' own lines: a run that was interrupted ends where it fell silent."""
    cells: list[tuple[str, str]] = [("·", "dim")] * width
    interrupted: list[int] = []
    for run in watch.of_task(task):
        if (beats := watch.beats.get((task, run.epoch))) is None:
            continue
        first, last = (int(wall_ms(at_ns) - begin_ms) // 1000 // scale for at_ns in (beats.first_ns, beats.last_ns))
        for column in range(max(0, first), min(last, width - 1) + 1):
            cells[column] = (run.worker[0], show.colour(run.worker))
        if run.outcome == "interrupted":
            interrupted.append(min(last, width - 1))
    for column in interrupted:
        cells[column] = ("×", "bold red")
    text = Text(f"{task[:10]:<11}")
    for letter, style in cells:
        text.append(letter, style=style)
    return text


def wall_ms(at_ns: int) -> float:
    """A moment of CLOCK_BOOTTIME as milliseconds since the epoch."""
    return (time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) + at_ns) / 1e6


def show_timelines(show: Show, watch: Watch, began_ms: int) -> None:
    """A timeline per task: epoch, owner, start, end, why it ended."""
    show.console.print()
    rows: list[list[str | Text]] = []
    for task in sorted({run.task for run in watch.runs.values()}):
        for place, group in enumerate(_groups(watch.of_task(task))):
            first, last = group[0], group[-1]
            epochs = str(first.epoch) if first is last else f"{first.epoch}–{last.epoch}"
            end = "" if last.ended_ms is None else f"{(last.ended_ms - began_ms) / 1000:.2f}"
            owner = Text(first.worker, style=show.colour(first.worker))
            start = f"{(first.started_ms - began_ms) / 1000:.2f}"
            silent = _silent(watch, last, began_ms)
            rows.append([Text(task if place == 0 else "", "bold"), epochs, owner, start, silent, end, _why(group)])
    show.table(("task", ">epoch", "owner", ">start s", ">last line s", ">end s", "why it ended"), rows)
    show.console.print(
        "[dim]start and end as the history has them, in seconds from `apply`; the last line is the run's own. The end "
        "of a run that was lost is recorded by the next owner, once the lease is over for certain.[/]"
    )


def _silent(watch: Watch, run: Run, began_ms: int) -> str:
    beats = watch.beats.get((run.task, run.epoch))
    return "" if beats is None else f"{(wall_ms(beats.last_ns) - began_ms) / 1000:.2f}"


def _groups(runs: list[Run]) -> list[list[Run]]:
    """Runs in rows: a long series of plain successes on one worker is one row."""
    series: list[list[Run]] = []
    for run in runs:
        before = series[-1][-1] if series else None
        plain = before is not None and before.worker == run.worker and before.outcome == run.outcome == "succeeded"
        if plain and not run.checkpoint_s:
            series[-1].append(run)
        else:
            series.append([run])
    return [part for each in series for part in ([each] if len(each) > _MOST_ROWS else [[run] for run in each])]


def _why(group: list[Run]) -> Text:
    run = group[0]
    text = Text(run.outcome or "still on")
    if run.outcome == "interrupted":
        text.stylize("red")
    if run.cause:
        text.append(f": {run.cause}")
    if run.checkpoint_s:
        text.append(f" (taken up from the checkpoint at {run.checkpoint_s:g} s)", "dim")
    if len(group) > 1:
        text.append(f" ({len(group)} runs)", "dim")
    return text


def show_takeovers(show: Show, takeovers: list[Takeover]) -> None:
    """How long each takeover took, from the fault to the first line of the next run."""
    show.console.print()
    rows: list[list[str | Text]] = []
    for item in takeovers:
        by = Text(item.by, style=show.colour(item.by))
        seconds = Text(f"{item.seconds:.2f}", "bold")
        rows.append([f"{item.fault} {item.worker}", item.kind, item.task, str(item.epoch), by, seconds])
    show.table(("fault", "takeover of", "task", ">epoch", "by", ">seconds"), rows)
    show.console.print(
        "[dim]from the signal to the first line that the next run wrote; for the stop, from the last line of the runs "
        "that the worker let finish[/]"
    )


def show_verify(show: Show, verdict: Verdict) -> bool:
    """The verdict of `fencepost verify`, from the topics alone."""
    counts = verdict.counts
    looked = f"{counts.tasks} tasks, {counts.runs} runs, {counts.events} events of history"
    for finding in verdict.violations:
        show.bad(f"verify: {finding.kind.value}: {finding.task}: {finding.text}")
    for text in verdict.unreadable:
        show.bad(f"verify: unreadable: {text}")
    holds = verdict.holds and verdict.complete and not verdict.unreadable and counts.runs > 0
    if holds:
        show.done(f"[bold]fencepost verify[/]: [bold green]the promise holds[/] ({looked})")
    else:
        show.bad(f"[bold]fencepost verify[/]: [bold red]the promise is broken or cannot be checked[/] ({looked})")
    return holds


def show_witness(show: Show, report: Report) -> bool:
    """The verdict of the files that the tasks' own code wrote."""
    for problem in report.problems:
        show.bad(f"witness: {problem.kind.value}: {problem.task}: {problem.text}")
    looked = (
        f"{report.lines} lines of {report.runs} runs of {report.tasks} tasks; {report.slots} slots: {report.slots_run} "
        f"run once, {report.slots_left_out} left out with a cause"
    )
    if report.repeated:
        looked += f", {report.repeated} of them repeated after an interruption"
    if report.holds:
        show.done(f"[bold]witness files[/]: [bold green]no overlap, no lost slot[/] ({looked})")
    else:
        show.bad(f"[bold]witness files[/]: [bold red]{len(report.problems)} problems[/] ({looked})")
    return report.holds

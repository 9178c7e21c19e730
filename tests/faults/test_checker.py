"""The judge finds every kind of violation that is planted, names its times, and finds nothing in a clean history."""

from __future__ import annotations

import ast
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import checker as judge
from tests.faults.checker import BEAT, BEGIN, CHILD, END, Checker, Facts, Kind, LeftOut, Line, Report, Timetable

MS = 1_000_000
START_MS = 1_800_000_000_000
STEP_MS = 2_000
BEAT_NS = 20 * MS


def run(
    task: str, epoch: int, at_ms: int, beats: int = 5, slot_ms: int | None = None, worker: str = "w1"
) -> list[Line]:
    """A run's lines: begin, beats, end."""
    whats = [BEGIN, *[BEAT] * beats, END]
    return [
        Line(at_ms * MS + number * BEAT_NS, task, epoch, 100 + epoch, worker, what, slot_ms)
        for number, what in enumerate(whats)
    ]


def slotted(task: str, count: int) -> list[list[Line]]:
    """A run for each of `count` slots."""
    return [run(task, n + 1, START_MS + n * STEP_MS + 5, slot_ms=START_MS + n * STEP_MS) for n in range(count)]


def judged(lines: list[Line], facts: Facts | None = None) -> Report:
    checker = Checker()
    for line in lines:
        checker.see(line)
    facts = facts or Facts()
    return checker.finish(facts.timetables, facts.left_out, facts.not_counted)


def kinds(report: Report) -> list[Kind]:
    return [violation.kind for violation in report.violations]


def timetable(count: int, from_ms: int | None = START_MS) -> Facts:
    return Facts((Timetable("t", STEP_MS, START_MS + (count - 1) * STEP_MS, from_ms),))


def flat(runs: list[list[Line]]) -> list[Line]:
    return [line for lines in runs for line in lines]


# -- clean histories --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_a_clean_history_with_interrupted_runs_and_missed_slots_holds(seed: int) -> None:
    dice = random.Random(seed)
    lines: list[Line] = []
    left_out, not_counted = [], []
    epoch, free_ms = 0, 0
    for n in range(50):
        slot_ms = START_MS + n * STEP_MS
        if dice.random() < 0.1:
            left_out.append(LeftOut("t", slot_ms, slot_ms, "missed"))
            continue
        for again in range(dice.randint(1, 3), 0, -1):
            epoch += 1
            at_ms = max(slot_ms, free_ms) + dice.randint(1, 50)
            made = run("t", epoch, at_ms, dice.randint(0, 20), slot_ms)
            free_ms = made[-1].at_ns // MS + 1
            if again > 1:
                not_counted.append(("t", epoch))
                made = made[: dice.randint(1, len(made))]
            lines += made
    facts = replace(timetable(50), left_out=tuple(left_out), not_counted=tuple(not_counted))
    report = judged(lines, facts)
    assert report.violations == []
    assert report.slots == 50
    assert report.slots_done + report.slots_left_out == 50


def test_runs_of_different_tasks_may_overlap() -> None:
    assert judged(run("t", 1, START_MS) + run("u", 2, START_MS)).holds


# -- planted violations -----------------------------------------------------------------------------------------------


def test_two_epochs_that_write_at_the_same_time_are_an_overlap_with_its_times() -> None:
    older, newer = run("t", 1, START_MS), run("t", 2, START_MS + 90)
    report = judged(sorted(older + newer, key=lambda line: line.at_ns))
    overlap = next(violation for violation in report.violations if violation.kind is Kind.OVERLAP)
    assert overlap.at_ns == (newer[0].at_ns, older[-1].at_ns)
    assert judge.clock(newer[0].at_ns) in overlap.text
    assert judge.clock(older[-1].at_ns) in overlap.text
    assert "30.000 ms" in overlap.text
    assert Kind.STALE in kinds(report)  # its last lines came after the newer had begun


def test_a_single_late_line_of_a_stale_epoch_is_found_with_its_time() -> None:
    late = Line((START_MS + 5000) * MS, "t", 1, 101, "w1", BEAT, None)
    report = judged([*run("t", 1, START_MS), *run("t", 2, START_MS + 1000), late])
    stale = next(violation for violation in report.violations if violation.kind is Kind.STALE)
    assert stale.at_ns == (late.at_ns, late.at_ns)
    assert judge.clock(late.at_ns) in stale.text


def test_a_line_written_late_under_an_old_time_is_stale_by_the_order_of_writing() -> None:
    """A process that was stopped between looking at the clock and writing."""
    older = run("t", 1, START_MS)
    report = judged([*older[:-1], *run("t", 2, START_MS + 1000), older[-1]])
    assert kinds(report) == [Kind.STALE]


def test_a_child_that_outlives_its_run_is_stale() -> None:
    child = Line((START_MS + 5000) * MS, "t", 1, 900, "w1", CHILD, None)
    assert set(kinds(judged([*run("t", 1, START_MS), *run("t", 2, START_MS + 1000), child]))) == {
        Kind.STALE,
        Kind.OVERLAP,
    }


def test_epochs_that_go_backwards_are_found() -> None:
    assert Kind.STALE in kinds(judged(run("t", 7, START_MS) + run("t", 6, START_MS + 1000)))


def test_an_epoch_that_a_third_one_outlives_is_compared_with_the_longest() -> None:
    report = judged(
        run("t", 1, START_MS, beats=200) + run("t", 2, START_MS + 10, beats=0) + run("t", 3, START_MS + 900)
    )
    overlaps = [violation for violation in report.violations if violation.kind is Kind.OVERLAP]
    assert len(overlaps) == 2
    assert "epoch 1 wrote last" in overlaps[1].text


def test_an_epoch_that_began_twice_is_found_with_both_processes() -> None:
    report = judged(run("t", 1, START_MS) + run("t", 1, START_MS + 1000, worker="w2"))
    (found,) = report.violations
    assert found.kind is Kind.TWICE
    assert "w1/101" in found.text
    assert "w2/101" in found.text
    assert found.at_ns == (START_MS * MS, (START_MS + 1000) * MS)


def test_a_lost_slot_is_found_with_its_time() -> None:
    runs = slotted("t", 5)
    report = judged(flat([*runs[:2], *runs[3:]]), timetable(5))
    (found,) = report.violations
    assert found.kind is Kind.LOST
    assert judge.clock((START_MS + 2 * STEP_MS) * MS) in found.text


def test_a_slot_whose_only_run_was_cut_short_is_lost() -> None:
    runs = slotted("t", 3)
    assert kinds(judged(flat([runs[0], runs[1][:-1], runs[2]]), timetable(3))) == [Kind.LOST]


def test_a_slot_at_the_edges_that_never_ran_is_lost() -> None:
    runs = slotted("t", 5)
    assert kinds(judged(flat(runs[1:4]), timetable(5))) == [Kind.LOST, Kind.LOST]


def test_a_slot_that_was_left_out_without_a_cause_is_lost() -> None:
    runs = slotted("t", 3)
    missing = START_MS + STEP_MS
    facts = replace(timetable(3), left_out=(LeftOut("t", missing, missing, ""),))
    assert kinds(judged(flat([runs[0], runs[2]]), facts)) == [Kind.LOST]


def test_a_task_with_a_schedule_that_never_ran_is_lost() -> None:
    assert Kind.LOST in kinds(judged(run("u", 1, START_MS), timetable(3)))
    assert Kind.LOST in kinds(judged(run("u", 1, START_MS), timetable(3, None)))


def test_a_slot_that_was_done_twice_is_found_with_both_times() -> None:
    again = run("t", 9, START_MS + 60_000, slot_ms=START_MS)
    report = judged(flat([*slotted("t", 3), again]), timetable(3))
    (found,) = report.violations
    assert found.kind is Kind.DOUBLED
    assert len(found.at_ns) == 2
    assert "epoch 1" in found.text
    assert "epoch 9" in found.text


def test_a_slot_done_again_because_the_first_run_did_not_count_is_a_repetition() -> None:
    again = run("t", 9, START_MS + 60_000, slot_ms=START_MS)
    report = judged(flat([*slotted("t", 3), again]), replace(timetable(3), not_counted=(("t", 1),)))
    assert report.holds
    assert report.slots_repeated == 1


def test_a_slot_that_ran_and_is_said_to_be_left_out_is_found() -> None:
    facts = replace(timetable(3), left_out=(LeftOut("t", START_MS, START_MS, "missed"),))
    assert kinds(judged(flat(slotted("t", 3)), facts)) == [Kind.DOUBLED]


def test_a_slot_off_the_schedule_is_found() -> None:
    odd = run("t", 9, START_MS + 60_000, slot_ms=START_MS + 1)
    assert kinds(judged(flat([*slotted("t", 3), odd]), timetable(3))) == [Kind.STRANGE]


def test_nothing_written_proves_nothing() -> None:
    assert kinds(judged([])) == [Kind.NOTHING]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["overlap", "stale", "twice", "lost", "doubled"])
def test_one_planted_violation_in_a_long_history_is_found(kind: str, seed: int) -> None:
    dice = random.Random(seed)
    runs = slotted("t", 400)
    at = dice.randrange(1, 399)
    match kind:
        case "overlap":
            runs[at] = [replace(line, at_ns=line.at_ns - 1_950 * MS) for line in runs[at]]
            expected = Kind.OVERLAP
        case "stale":
            late = replace(runs[at - 1][-2], at_ns=runs[at + 1][-1].at_ns + MS)
            runs.insert(at + 2, [late])
            expected = Kind.STALE
        case "twice":
            runs[at] = [*runs[at], replace(runs[at][0], worker="w2", pid=7, at_ns=runs[at][-1].at_ns + MS)]
            expected = Kind.TWICE
        case "lost":
            runs[at] = runs[at][:-1]
            expected = Kind.LOST
        case _:
            runs.append(run("t", 900, START_MS + 400 * STEP_MS, slot_ms=START_MS + at * STEP_MS))
            expected = Kind.DOUBLED
    assert expected in kinds(judged(flat(runs), timetable(400)))


# -- files ------------------------------------------------------------------------------------------------------------


def write(folder: Path, lines: list[Line], tail: bytes = b"") -> None:
    with (folder / "t.log").open("ab") as out:
        for line in lines:
            slot = "-" if line.slot_ms is None else line.slot_ms
            text = f"{line.at_ns}\t{line.task}\t{line.epoch}\t{line.pid}\t{line.worker}\t{line.what}\t{slot}\n"
            out.write(text.encode())
        out.write(tail)


def test_files_are_read_in_the_order_of_writing_and_a_bad_line_counts(tmp_path: Path) -> None:
    write(tmp_path, flat(slotted("t", 3)))
    assert judge.check_folder(tmp_path, timetable(3)).holds
    write(tmp_path, [], b"nonsense\n")
    assert kinds(judge.check_folder(tmp_path, timetable(3))) == [Kind.UNREADABLE]


def test_a_line_that_was_cut_off_counts(tmp_path: Path) -> None:
    write(tmp_path, run("t", 1, START_MS), b"18000000")
    assert kinds(judge.check_folder(tmp_path)) == [Kind.UNREADABLE]


def test_as_a_program_it_prints_the_times_and_ends_with_1(tmp_path: Path) -> None:
    lines = run("t", 1, START_MS) + run("t", 2, START_MS + 10)
    write(tmp_path, lines)
    # Isolated, without the source root: it can do nothing with the system that it judges.
    done = subprocess.run(
        [sys.executable, "-I", "-S", judge.__file__, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert f"overlap: t: epoch 2 began at {judge.clock(lines[7].at_ns)}" in done.stdout
    assert "violations" in done.stdout


def test_facts_survive_their_file() -> None:
    facts = replace(timetable(3), left_out=(LeftOut("t", 1, 2, "missed"),), not_counted=(("t", 4),))
    assert Facts.from_json(facts.to_json()) == facts  # type: ignore[arg-type]


def test_the_judge_imports_nothing_of_what_it_judges() -> None:
    tree = ast.parse(Path(judge.__file__).read_text(encoding="utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names
    assert not {"importlib", "runpy", "subprocess"} & imported

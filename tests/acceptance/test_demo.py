"""The demo, for real: it ends well, leaves nothing behind however it ends, and its checker of witness files bites."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from fencepost.demo.beat import witness_file
from fencepost.demo.witness import Kind, LeftOut, Line, Report, Timetable, check, check_folder
from tests.spread import made_once

ROOT = Path(__file__).resolve().parents[2]
BEAT_NS = 20_000_000
RUN_LIMIT_S = 200


# --- the demo itself -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """Where a demo runs: the installed wheel, and a folder that marks everything it starts."""

    folder: Path
    env: dict[str, str]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return self._python("-m", "fencepost.demo", *arguments)

    def fencepost(self, *arguments: str) -> str:
        process = self._python("-m", "fencepost.cli.main", *arguments)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0, out
        return out

    def left(self, worker: str = "") -> list[psutil.Process]:
        """What runs of all that was started here: all inherit TMPDIR; a worker has a folder below as its own."""
        found = []
        for process in psutil.process_iter():
            try:
                its_folder = process.environ().get("TMPDIR", "")
                if its_folder.startswith(str(self.folder)) and its_folder.endswith(worker):
                    found.append(process)
            except psutil.Error:
                continue  # ended meanwhile, or another user's
        return found

    def assert_nothing_left(self) -> None:
        _, alive = psutil.wait_procs(self.left(), timeout=10)
        assert [(process.pid, process.name()) for process in alive] == []

    def _python(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.env,
            cwd=self.folder,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built now and installed into a folder of its own."""
    return made_once(tmp_path_factory, "wheel", install_wheel) / "site"


def install_wheel(folder: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    target = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True)


@pytest.fixture
def stage(installed: Path, tmp_path: Path) -> Iterator[Stage]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    env |= {"PYTHONPATH": str(installed), "TMPDIR": str(tmp_path)}
    for name in ("FENCEPOST_KAFKA_HOME", "FENCEPOST_TEST_BROKERS"):
        if name in os.environ:
            env[name] = os.environ[name]
    stage = Stage(tmp_path, env)
    where = [sys.executable, "-c", "import fencepost; print(fencepost.__file__)"]
    found = subprocess.run(where, env=env, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert found.startswith(str(installed))
    yield stage
    for process in stage.left():
        with suppress(psutil.NoSuchProcess):
            process.kill()


def read_until(process: subprocess.Popen[str], sign: str) -> str:
    """What the process prints until a line with the sign; the test's own time limit bounds it."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if sign in line:
            return "".join(seen)
    raise AssertionError(f"{sign!r} was never printed, exit code {process.wait()}:\n{''.join(seen)}")


@pytest.mark.slow
@pytest.mark.timeout(RUN_LIMIT_S + 60)
def test_the_demo_proves_the_promise_and_keeps_kafka_up_when_asked(stage: Stage, tmp_path: Path) -> None:
    process = stage.start("--keep")
    out, _ = process.communicate(timeout=RUN_LIMIT_S)
    assert process.returncode == 0, out
    assert "fencepost verify: the promise holds" in out
    assert "witness files: no overlap, no lost slot" in out
    assert len(re.findall(r"^kill ada +(?:waiting task|interrupted run) ", out, re.MULTILINE)) >= 2
    assert len(re.findall(r"^freeze ben +(?:waiting task|interrupted run) ", out, re.MULTILINE)) >= 2
    assert re.search(r" ada( +[\d.]+){3} +interrupted: lost", out)
    assert re.search(r" dora( +[\d.]+){3} +succeeded", out)

    left = {process.name() for process in stage.left()}
    assert left == {"java"}, f"only Kafka stays up, not {left}"
    (folder,) = tmp_path.glob("fencepost-demo-*")
    match = re.search(r"--bootstrap (\S+) --namespace (\S+)", out)
    assert match is not None
    told = stage.fencepost("verify", "--bootstrap", match[1], "--namespace", match[2])
    assert "the promise holds" in told
    stage.fencepost("down", "--folder", str(folder / "kafka"))
    stage.assert_nothing_left()

    a_planted_line_is_found(folder / "witness", tmp_path / "planted")


def a_planted_line_is_found(witness: Path, planted: Path) -> None:
    """In what the demo's own runs wrote."""
    assert check_folder(witness).holds
    shutil.copytree(witness, planted)
    path = Path(witness_file(str(planted), "order/1"))
    first = path.read_text().splitlines()[0].split("\t")
    stale = [str(time.clock_gettime_ns(time.CLOCK_BOOTTIME)), *first[1:5], "beat", *first[6:]]
    with path.open("a") as file:
        file.write("\t".join(stale) + "\n")
    assert {problem.kind for problem in check_folder(planted).problems} == {Kind.STALE, Kind.OVERLAP}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_left_after_ctrl_c(stage: Stage) -> None:
    process = stage.start()
    read_until(process, "SIGKILL to ada")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    stage.assert_nothing_left()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_left_when_the_demo_is_killed(stage: Stage) -> None:
    process = stage.start()
    read_until(process, "are at work")
    process.kill()
    process.communicate(timeout=60)  # its output is inherited by nobody who stays
    stage.assert_nothing_left()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_that_ends_by_itself_fails_the_demo_and_its_last_lines_are_shown(stage: Stage) -> None:
    process = stage.start()
    begun = read_until(process, "are at work")
    (worker,) = [each for each in stage.left("cleo") if "worker" in each.cmdline()]
    worker.kill()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1, begun + out
    assert "cleo ended by itself" in out
    assert re.search(r"the end of \S*worker-cleo\.log\n.*announced", out, re.DOTALL), out
    stage.assert_nothing_left()


# --- the check of the witness files ----------------------------------------------------------------------------------


def a_run(task: str, epoch: int, at_s: float, seconds: float, slot_ms: int | None = None, pid: int = 0) -> list[Line]:
    """Lines as a run writes them."""
    at_ns, beats = int(at_s * 1e9), round(seconds * 1e9 / BEAT_NS)
    what = ["begin", *["beat"] * (beats - 1), "end"]
    return [
        Line(at_ns + n * BEAT_NS, task, epoch, pid or 100 + epoch, "ada", each, slot_ms) for n, each in enumerate(what)
    ]


def kinds(report: Report) -> list[Kind]:
    return [problem.kind for problem in report.problems]


PULSE = Timetable("pulse", 2000, 9000)


def pulses(*slots: int) -> list[Line]:
    return [line for n, slot in enumerate(slots, start=1) for line in a_run("pulse", n, slot / 1000, 0.3, slot)]


def test_runs_one_after_the_other_are_no_problem() -> None:
    lines = [*a_run("order/1", 1, 10.0, 1.0), *a_run("order/1", 2, 11.1, 1.0)]
    report = check({"order/1": lines, "pulse": pulses(2000, 4000, 6000, 8000)}, [PULSE])
    assert kinds(report) == []
    assert (report.runs, report.slots, report.slots_run) == (6, 4, 4)


def test_two_epochs_at_the_same_time_are_an_overlap() -> None:
    lines = sorted([*a_run("order/1", 1, 10.0, 1.0), *a_run("order/1", 2, 10.9, 1.0)], key=lambda line: line.at_ns)
    assert kinds(check({"order/1": lines})) == [Kind.STALE, Kind.OVERLAP]


def test_an_overlap_with_an_epoch_long_before_is_found_too() -> None:
    long_ago = a_run("order/1", 1, 10.0, 9.0)
    lines = sorted([*long_ago, *a_run("order/1", 2, 11.0, 0.1), *a_run("order/1", 3, 12.0, 0.1)], key=lambda x: x.at_ns)
    problems = check({"order/1": lines}).problems
    assert [problem.kind for problem in problems] == [Kind.STALE, Kind.OVERLAP, Kind.OVERLAP]


def test_a_frozen_writer_that_wakes_is_found_by_the_order_of_the_lines_although_its_clock_was_read_before() -> None:
    first, second = a_run("order/1", 1, 10.0, 1.0), a_run("order/1", 2, 14.0, 1.0)
    assert kinds(check({"order/1": [*first[:-1], *second, first[-1]]})) == [Kind.STALE]


def test_one_epoch_in_two_processes_is_found() -> None:
    lines = [*a_run("order/1", 1, 10.0, 1.0, pid=7), *a_run("order/1", 1, 12.0, 1.0, pid=8)]
    assert kinds(check({"order/1": lines})) == [Kind.TWICE]


def test_a_slot_that_nobody_accounts_for_is_lost() -> None:
    problems = check({"pulse": pulses(2000, 4000, 8000)}, [PULSE]).problems
    assert [(problem.kind, "6000" in problem.text) for problem in problems] == [(Kind.LOST, True)]


def test_the_last_slot_can_be_lost_too() -> None:
    assert kinds(check({"pulse": pulses(2000, 4000, 6000)}, [PULSE])) == [Kind.LOST]


def test_a_slot_that_began_and_never_ended_is_lost() -> None:
    lines = pulses(2000, 4000, 6000, 8000)
    cut = [line for line in lines if not (line.slot_ms == 6000 and line.what == "end")]
    assert kinds(check({"pulse": cut}, [PULSE])) == [Kind.LOST]


def test_a_slot_left_out_with_a_cause_is_accounted_for_and_without_one_is_not() -> None:
    lines = pulses(2000, 8000)
    assert kinds(check({"pulse": lines}, [PULSE], [LeftOut("pulse", 4000, 6000, "nobody ran")])) == []
    assert kinds(check({"pulse": lines}, [PULSE], [LeftOut("pulse", 4000, 6000, "")])) == [Kind.LOST, Kind.LOST]
    assert kinds(check({"pulse": lines}, [PULSE], [LeftOut("other", 4000, 6000, "nobody ran")])) == [Kind.LOST] * 2


def test_a_slot_run_to_its_end_twice_is_doubled_unless_the_first_run_was_interrupted() -> None:
    again = a_run("pulse", 5, 8.5, 0.3, 8000)
    lines = [*pulses(2000, 4000, 6000, 8000), *again]
    assert kinds(check({"pulse": lines}, [PULSE])) == [Kind.DOUBLED]
    report = check({"pulse": lines}, [PULSE], interrupted=[("pulse", 4)])
    assert (kinds(report), report.repeated) == ([], 1)


def test_a_slot_that_ran_and_is_recorded_as_missed_is_found() -> None:
    report = check({"pulse": pulses(2000, 4000, 6000, 8000)}, [PULSE], [LeftOut("pulse", 6000, 6000, "nobody ran")])
    assert kinds(report) == [Kind.DOUBLED]


def test_a_slot_the_schedule_does_not_have_is_found() -> None:
    assert kinds(check({"pulse": pulses(2000, 4000, 5000, 6000, 8000)}, [PULSE])) == [Kind.STRANGE]


def test_no_lines_at_all_prove_nothing(tmp_path: Path) -> None:
    assert kinds(check_folder(tmp_path)) == [Kind.NOTHING]
    assert kinds(check({"order/1": a_run("order/1", 1, 1.0, 1.0)}, [PULSE])) == [Kind.LOST]


def test_a_line_that_is_none_is_found(tmp_path: Path) -> None:
    Path(witness_file(str(tmp_path), "order/1")).write_text("1\torder/1\t1\t7\tada\tbegin\t-\n2\torder/1\tone\n")
    assert kinds(check_folder(tmp_path)) == [Kind.UNREADABLE]

"""Starting the guard: what the worker is told, and what stands when it cannot start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fencepost.core.task import Isolation, Outcome
from fencepost.worker.guard import client, start
from fencepost.worker.guard.client import GuardedRunners
from fencepost.worker.guard.settings import RunnerSettings
from fencepost.worker.guard.start import AppNotImported, GuardError
from fencepost.worker.orders import RunEnded, Runners
from tests.worker.bench import Bench, named, order, settings


def no_children() -> bool:
    return not [p for p in psutil.Process().children(recursive=True) if p.name().startswith("fencepost")]


def test_the_runners_are_what_a_lane_asks_for(bench: Bench) -> None:
    runners: Runners = bench.runners
    assert runners.capacity == 20


def test_the_worker_is_told_what_the_app_declares(bench: Bench) -> None:
    assert {"noop", "async_echo"} <= bench.runners.handlers
    assert {"task": "noop"} in bench.runners.declared


def test_without_an_app_commands_run_all_the_same(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(app=None, commands=("/bin/sh",))
    assert bench.runners.handlers == set()
    (end,) = bench.run(order("a", ("/bin/sh", "-c", "true"), isolation=Isolation.OWN))
    assert isinstance(end, RunEnded)
    assert end.outcome is Outcome.SUCCEEDED


def test_a_real_app_is_loaded_with_its_functions_and_definitions(
    bench_of: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_for_runners.py").write_text(
        "from fencepost import App, RunContext\n"
        "app = App('shop')\n"
        "@app.task('report')\n"
        "def report(ctx: RunContext): return ctx.payload['n'] + 1\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    bench = bench_of(app="shop_for_runners:app")
    assert [body["task"] for body in bench.runners.declared] == ["report"]
    (name,) = bench.runners.handlers
    (end,) = bench.run(order("report", name, payload={"n": 1}))
    assert isinstance(end, RunEnded)
    assert end.result == 2


def test_an_app_that_cannot_be_imported_is_told_with_its_traceback_and_leaves_nothing() -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(AppNotImported) as raised:
        GuardedRunners(settings(app="tests.worker.broken_app:app"))
    assert str(raised.value).startswith("app: tests.worker.broken_app:app cannot be imported\nTraceback")
    assert str(raised.value).endswith("RuntimeError: no such luck")
    assert no_children()
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("app", ["tests.worker.sample_app:nowhere", "no.such.module:app"])
def test_an_app_that_is_not_there_is_told(app: str) -> None:
    with pytest.raises(AppNotImported, match=app):
        GuardedRunners(settings(app=app))


def test_an_app_that_starts_threads_at_import_is_warned_about(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(app="tests.worker.threaded_app:app")
    assert any("started 1 thread(s)" in note for note in bench.runners.mechanism.notes)


def test_a_guard_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "start_guard.py").write_text("raise SystemExit(3)\n", encoding="ascii")
    monkeypatch.setattr(start, "_HERE", tmp_path)
    with pytest.raises(GuardError, match="the guard ended before it was ready"):
        GuardedRunners(settings())
    assert no_children()


def test_elsewhere_than_on_linux_it_refuses_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start.sys, "platform", "darwin")
    with pytest.raises(GuardError, match="on Linux only; this is darwin"):
        GuardedRunners(settings())


def test_the_weaker_mechanism_is_named(bench_of: Callable[..., Bench]) -> None:
    mechanism = bench_of(containment="process-groups").runners.mechanism
    assert mechanism.containment == "process-groups"
    assert mechanism.weaker
    assert "processes that leave their session would outlive a guard that is killed" in mechanism.notes
    assert mechanism.scheduling in ("fifo", "normal") or mechanism.scheduling.startswith("nice ")


def test_the_guard_loads_no_library_and_no_code_of_the_app(bench: Bench) -> None:
    """It must be small: what dies with it waits until its memory is freed."""
    guard = psutil.Process(bench.runners.guard_pid)
    mapped = {item.path for item in guard.memory_maps()}
    assert not [path for path in mapped if "site-packages" in path]
    assert guard.num_threads() == 1
    code = (
        "import sys; sys.argv = ['x']; sys.path.insert(0, sys.argv[0]);"
        f"sys.path.insert(0, {str(Path(client.__file__).parents[3])!r});"
        "import fencepost.worker.guard.guard;"
        "print(*[name for name in sys.modules if name.startswith('fencepost')])"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True)
    modules = {name.rpartition(".")[2] for name in done.stdout.split()}
    assert modules == {
        "fencepost", "version", "worker", "guard", "control", "deadlines", "house", "init", "linux", "orphans", "page"
    }  # fmt: skip


def test_the_runners_are_not_children_of_the_zygote(bench: Bench) -> None:
    bench.run(order("a", "noop"))
    runners = named(bench.runners.guard_pid, "fencepost-run")
    assert runners
    parents = {process.parent() for process in runners}
    assert {parent.name() for parent in parents if parent is not None} <= {"fencepost-init", "fencepost-guard"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_runners_drop_their_privileges_and_still_die_with_their_guard(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(uid=65534, gid=65534, commands=("/bin/sh",))
    bench.run(order("a", ("/bin/sh", "-c", "id -u; id -g; id -G"), isolation=Isolation.OWN))
    assert bench.output("a", "out").split() == ["65534"] * 3
    bench.start(order("b", "hangs"))
    dropped = [p for p in named(bench.runners.guard_pid, "fencepost-run") if p.uids().real == 65534]
    assert dropped
    psutil.Process(bench.runners.guard_pid).kill()
    psutil.wait_procs(dropped, timeout=30)
    assert not any(process.is_running() for process in dropped)


def without_rights(code: str) -> subprocess.CompletedProcess[str]:
    """Run this as root with no capability."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("setpriv is not installed")
    argv = [setpriv, "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-W", "ignore", "-c", code]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=False)


def interpreter_for_everybody() -> str:
    """One of this version that is not in somebody's home."""
    for path in (Path(sys.executable), Path("/usr/bin") / f"python{sys.version_info.major}.{sys.version_info.minor}"):
        real = path.resolve()
        if real.exists() and all(folder.stat().st_mode & 0o001 for folder in (real, *real.parents)):
            return str(path)
    pytest.skip("no Python here that another user may start")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_without_root_a_user_namespace_holds_runs_where_it_is_permitted() -> None:
    code = """
import os, tempfile
from pathlib import Path
os.setgroups([]); os.setgid(65534); os.setuid(65534)
from fencepost.core.task import Isolation
from tests.worker.bench import *
bench = Bench(GuardedRunners(settings(commands=("/bin/sh",))))
end, = bench.run(order("a", ("/bin/sh", "-c", "id -u"), isolation=Isolation.OWN))
print(bench.runners.mechanism.containment, end.outcome, bench.output("a", "out").strip())
witness = Witness(Path(tempfile.mkdtemp()))
bench.start(order("b", "daemonises", payload={"witness": witness.path}, isolation=Isolation.OWN))
assert witness.held()
psutil.Process(bench.runners.guard_pid).kill()
if not bench.runners.mechanism.weaker:
    assert witness.all_gone()
bench.runners.close(0.0)
"""
    ours = [path for path in sys.path if not path.startswith(sys.base_prefix)]  # not another interpreter's library
    env = os.environ | {"PYTHONPATH": os.pathsep.join(ours), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [interpreter_for_everybody(), "-W", "ignore", "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    containment, outcome, uid = done.stdout.split()
    assert containment in ("user-pid-namespace", "process-groups")
    assert (outcome, uid) == ("succeeded", "65534")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give its rights away")
def test_root_without_its_rights_falls_back_and_says_so() -> None:
    """As in a default container: neither a PID namespace nor a user namespace may be made."""
    code = """
from tests.worker.bench import *
bench = Bench(GuardedRunners(settings()))
end, = bench.run(order("a", "echo", payload=1))
print(bench.runners.mechanism.containment, end.outcome)
bench.runners.close(0.0)
"""
    done = without_rights(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["process-groups", "succeeded"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give its rights away")
def test_a_user_that_runs_cannot_become_is_told_at_the_start() -> None:
    code = """
from tests.worker.bench import *
from fencepost.worker.guard.start import GuardError
try:
    GuardedRunners(settings(uid=65534, gid=65534))
except GuardError as error:
    print(error)
"""
    done = without_rights(code)
    assert done.stdout == "uid 65534, gid 65534: runs cannot become this user: Operation not permitted\n", done.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slots": 0}, "slots: 0 is not above 0"),
        ({"beat_ttl_s": 0.0}, "beat_ttl_s: 0.0 is not above 0"),
        ({"margin_s": -1.0}, "margin_s: -1.0 is below 0"),
        ({"containment": "jail"}, "containment: 'jail' is not one of auto, process-groups"),
        ({"commands": ("bin/sh",)}, "commands: 'bin/sh' is neither an absolute path nor a bare name"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RunnerSettings(**changes)  # type: ignore[arg-type]

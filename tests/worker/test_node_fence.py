"""The command that fences a lost worker's node: what it is told, what its end means, and that it leaves nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from fencepost.core.task import NodeFenced
from fencepost.settings import Settings, SettingsError
from fencepost.worker.node_fence import NodeFence, parse_lane, run_command

LANE = "w1/0/abcdef012345"


class Log:
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.said.append(("info", event, fields))

    def warning(self, event: str, **fields: object) -> None:
        self.said.append(("warning", event, fields))


def until(what: str, condition: Callable[[], bool]) -> None:
    limit_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit_s, what
        time.sleep(0.005)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def fence(
    *command: str, limit_s: float = 15.0, find: Callable[[str, str], tuple[str, int] | None] | None = None
) -> NodeFence:
    return NodeFence(
        command,
        limit_s,
        namespace="shop",
        own_worker="w2",
        find=find or (lambda _worker, _incarnation: ("host-a", 4711)),
        log=Log(),
    )


def verdict(fencing: NodeFence, lane: str = LANE) -> NodeFenced:
    fencing.ask(lane)
    until("a verdict", fencing.take)
    outcome = fencing.outcome(lane)
    assert outcome is not None
    fencing.close()
    return outcome


def test_the_command_is_told_who_is_lost_in_its_arguments_and_in_its_environment(tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = "import os, sys; open(sys.argv[1], 'w').write(repr((sys.argv[2:], dict(os.environ))))"
    fencing = fence(sys.executable, "-c", script, str(told), "{worker}@{host}:{pid}", "{lane}", "{namespace}")
    assert verdict(fencing) is NodeFenced.CONFIRMED
    arguments, env = eval(told.read_text())
    assert arguments == ["w1@host-a:4711", LANE, "shop"]
    assert {name: env[f"FENCEPOST_LOST_{name}"] for name in ("WORKER", "INCARNATION", "HOST", "PID", "NAMESPACE")} == {
        "WORKER": "w1",
        "INCARNATION": "abcdef012345",
        "HOST": "host-a",
        "PID": "4711",
        "NAMESPACE": "shop",
    }


def test_another_exit_code_confirms_nothing_and_says_what_the_command_said() -> None:
    outcome, why = run_command([sys.executable, "-c", "print('no such host'); raise SystemExit(3)"], os.environ, 15.0)
    assert (outcome, why) == (NodeFenced.FAILED, "exit code 3: no such host")


def test_a_program_that_is_not_there_confirms_nothing() -> None:
    outcome, why = run_command(["/no/such/program"], os.environ, 15.0)
    assert outcome is NodeFenced.FAILED
    assert why == "/no/such/program: No such file or directory"


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! >{pids}; echo $$ >>{pids}; wait"
    outcome, why = run_command(["/bin/sh", "-c", script], os.environ, 1.0)
    assert outcome is NodeFenced.TIMED_OUT
    assert why == "no end after 1 s"
    for pid in map(int, pids.read_text().split()):
        until(f"{pid} gone", partial(gone, pid))


def test_a_lost_lane_is_fenced_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    fencing = fence("/bin/sh", "-c", f"echo x >>{marks}")
    fencing.ask(LANE)
    assert verdict(fencing) is NodeFenced.CONFIRMED
    fencing.ask(LANE)
    assert not fencing.take()
    assert marks.read_text() == "x\n"
    assert fencing.confirmed(LANE)


def test_an_earlier_process_of_the_own_name_is_never_fenced(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    fencing = fence("/usr/bin/touch", str(mark))
    fencing.ask("w2/0/000000000000")
    assert verdict(fencing) is NodeFenced.CONFIRMED  # the other one was, after it
    assert fencing.outcome("w2/0/000000000000") is None


def test_without_a_command_nothing_is_fenced() -> None:
    fencing = fence()
    fencing.ask(LANE)
    assert not fencing.take()
    assert fencing.outcome(LANE) is None


@pytest.mark.parametrize("known", [None, "raises"])
def test_a_command_that_wants_to_know_what_nobody_knows_any_more_is_not_run(tmp_path: Path, known: str | None) -> None:
    mark = tmp_path / "mark"

    def find(_worker: str, _incarnation: str) -> tuple[str, int] | None:
        if known == "raises":
            raise OSError("no answer")
        return None

    assert verdict(fence("/usr/bin/touch", str(mark), "{host}", find=find)) is NodeFenced.FAILED
    assert not mark.exists()


def test_a_worker_name_with_slashes_in_its_lane_is_read_from_the_right() -> None:
    lost = parse_lane("a/b/0/ff")
    assert (lost.worker, lost.incarnation) == ("a/b", "ff")


def test_the_command_is_read_from_a_file_and_from_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('[fence]\ncommand = ["/usr/bin/docker", "kill", "{host}"]\ntimeout_s = 4\n')
    settings = Settings.load([file], {})
    assert settings.fence_command == ("/usr/bin/docker", "kill", "{host}")
    assert settings.fence_timeout_s == 4
    settings = Settings.load([], {"FENCEPOST_FENCE_COMMAND": "ssh {host} 'kill -9 {pid}'"})
    assert settings.fence_command == ("ssh", "{host}", "kill -9 {pid}")


@pytest.mark.parametrize("command", ["kill {node}", "'unclosed", "./here", [1], [""]])
def test_a_command_that_cannot_be_is_refused_with_what_may_be_named(command: object) -> None:
    with pytest.raises(SettingsError, match=r"fence\.command .*\{worker\}, \{host\}, \{pid\}"):
        Settings.load([], {}, {"fence_command": command})

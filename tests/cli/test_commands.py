"""The command itself, as a process: what it prints where, and its exit codes. No Kafka here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.cli.main import run
from fencepost.client import Client
from fencepost.kafka.errors import DeliveryUnknown

NOBODY = "127.0.0.1:1"  # nothing listens there


def fencepost(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    command = [str(Path(sys.executable).with_name("fencepost")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean | (env or {}), check=False)


def test_the_next_times_of_a_cron_expression_need_no_kafka_and_come_with_their_offset() -> None:
    done = fencepost(
        "next", "--cron", "30 2 * * *", "--time-zone", "America/New_York",
        "--from", "2026-03-07T12:00:00-05:00", "--count", "3", "--json",
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout == (
        '{"next":["2026-03-08T03:00:00-04:00","2026-03-09T02:30:00-04:00","2026-03-10T02:30:00-04:00"]}\n'
    )


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
def test_the_shells_own_zone_changes_nothing(zone: str) -> None:
    """Case U01: shell, worker and task in different zones see the same times."""
    arguments = ("next", "--cron", "0 9 * * *", "--time-zone", "Europe/Berlin", "--from", "2026-10-24T12:00:00Z")
    assert fencepost(*arguments, env={"TZ": zone}).stdout.splitlines()[:2] == [
        "2026-10-25T09:00:00+01:00",
        "2026-10-26T09:00:00+01:00",
    ]


def test_the_id_of_a_task_chooses_for_h() -> None:
    def slots(*more: str) -> list[str]:
        done = fencepost("next", "--cron", "H H(0-7) * * *", "--from", "2026-01-01T00:00:00Z", "--json", *more)
        found: list[str] = json.loads(done.stdout)["next"]
        return found

    one = slots("--id", "invoice/7")
    assert one[0] == "2026-01-01T02:45:00+00:00"
    assert slots("--id", "invoice/7") == one
    assert slots("--id", "invoice/8") != one


def test_intervals_and_single_times_are_told_too() -> None:
    every = fencepost("next", "--every", "90m", "--from", "2026-01-01T00:00:00Z", "--count", "2", "--json")
    assert json.loads(every.stdout) == {"next": ["2026-01-01T01:30:00+00:00", "2026-01-01T03:00:00+00:00"]}
    zoned = fencepost(
        "next", "--at", "2026-07-01T00:00:00Z", "--from", "2026-01-01T00:00:00Z", "--time-zone", "Asia/Tokyo"
    )
    assert zoned.stdout == "2026-07-01T09:00:00+09:00\n"


def test_a_time_that_is_over_has_no_next_one() -> None:
    """Case U03: none, with the reason, instead of a date that is none."""
    assert fencepost("next", "--at", "2020-01-01T00:00:00Z").stdout == "none: no slot is left\n"
    assert fencepost("next", "--at", "2020-01-01T00:00:00Z", "--json").stdout == '{"next":[]}\n'
    assert fencepost("next", "--cron", "0 0 0 1 1 ? 2020").stdout == "none: no slot is left\n"
    assert fencepost("next", "--every", "1h", "--end", "2020-01-01T00:00:00Z").stdout == "none: no slot is left\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["next", "--cron", "61 * * * *"], "--cron: .*61.*allowed"),
        (["next", "--cron", "0 0 30 2 *"], "--cron: never fires"),
        (["next", "--cron", "0 0 0 1 1 * 10000"], "--cron: .*10000.*numbers 1970-9999"),
        (["next", "--cron", "H * * * *"], "--cron: .*name it with --id"),
        (["next", "--cron", "H * * * *", "--id", ""], "--id: a task ID has at least one character"),
        (["next", "--every", "1h", "--jitter", "5m"], "--jitter: .*name it with --id"),
        (["next", "--every", "1h", "--jitter", "8d", "--id", "x"], "--jitter: .*7 days"),
        (["next", "--every", "1h", "--country", "XX"], "--country: 'XX' is not known"),
        (["next", "--every", "1h", "--subdivision", "BY"], "--subdivision: is given without a country"),
        (["next", "--every", "1h", "--weekdays-only", "--on-closed", "x"], "--on-closed: 'x'; allowed: skip, next"),
        (["next", "--every", "1h", "--on-closed", "next"], "--on-closed: closes no day"),
        (["next", "--every", "1h", "--start", "x"], "--start: .*RFC 3339"),
        (["next", "--at", "2026-01-01T00:00:00Z", "--end", "2025-01-01T00:00:00Z"], "schedule: never fires"),
        (["next", "--cron", "0 0 * * *", "--cron", "61 * * * *"], "--cron: .*61"),
        (["next", "report", "--id", "x"], "--id is for a schedule given here"),
        (["next", "--cron", "* * * * *", "--time-zone", "Mars"], "--time-zone: .*Mars"),
        (["next", "--cron", "* * * * *", "--from", "yesterday"], "--from: .*allowed"),
        (["next", "--cron", "* * * * *", "--count", "0"], "--count is 0; allowed: 1 to 10000"),
        (["next", "--every", "0"], "--every: .*allowed"),
        (["next", "--every", "1h", "--anchor", "x"], "--anchor: .*allowed"),
        (["next", "--at", "2026-01-01"], "--at: .*allowed"),
        (["next", "--at", "2026-01-01T00:00:00"], "--at: .*offset"),
        (["next", "--cron", "* * * * *", "--every", "1h"], "cron and every_s are given together"),
        (["next"], "give exactly one of them"),
        (["next", "x", "--every", "1h"], "give exactly one of them"),
        (["nonsense"], "No such command 'nonsense'"),
        (["trigger"], "Missing argument 'ID'"),
        (["trigger", "x", "--payload", "{"], "--payload: not JSON.*allowed: JSON"),
        (["trigger", "x", "--payload", "@/nowhere"], "--payload: cannot read /nowhere: No such file"),
        (["trigger", "x", "--delay", "1s", "--run-at", "2026-01-01T00:00:00Z"], "exclude each other"),
        (["trigger", "x", "--header", "h"], "--header is 'h'; allowed: NAME=TEXT"),
        (["trigger", "x", "--priority", "often"], "--priority.*valid integer"),
        (["apply", "/nowhere.toml"], "cannot read /nowhere.toml"),
        (["init", "--partitions", "0"], "--partitions is 0; allowed: 1 to 10000"),
        (["init", "--profile", "fast"], "allowed: one of standard, swift, quick"),
        (["worker", "--app", "shop"], "allowed: module:attribute"),
        (["worker", "--allow", "./true"], "allowed: a list of absolute paths"),
        (["tasks", "--config", "/nowhere.toml"], "cannot read the settings file /nowhere.toml"),
        (["runs", "--since", "soon", "--bootstrap", NOBODY, "x" * 256], "ID: a task ID has at most 255 bytes"),
        (["status", "--folder"], "requires an argument"),
        (["up", "--nodes", "2"], "--nodes is 2; allowed: 1 or 3"),
    ],
)  # fmt: skip
def test_bad_input_exits_with_2_names_what_was_wrong_and_prints_nothing_else(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(arguments)
    shown = capsys.readouterr()
    assert (code, shown.out) == (2, ""), shown.err
    assert re.search(message, shown.err), shown.err


def test_a_bad_value_ends_the_process_with_2_and_one_line() -> None:
    done = fencepost("next", "--cron", "61 * * * *")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_a_trigger_nobody_can_tell_of_exits_with_3_and_says_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case E03: not success and not failure; the same ID makes a second try harmless."""

    def unknown(*_arguments: object, **_named: object) -> None:
        raise DeliveryUnknown("no answer within 30 s")

    monkeypatch.setattr(Client, "trigger", unknown)
    assert run(["trigger", "x", "--id", "a", "--json"]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "fencepost trigger x --id a" in shown.err


def test_an_app_that_cannot_be_imported_is_bad_input(tmp_path: Path) -> None:
    done = fencepost("worker", "--app", "nowhere_at_all:app", "--config", os.devnull)
    assert (done.returncode, done.stdout) == (2, "")
    assert "app: nowhere_at_all:app cannot be imported" in done.stderr


def test_without_kafka_a_command_fails_with_1_and_names_the_address() -> None:
    done = fencepost("tasks", "--bootstrap", NOBODY, "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert NOBODY in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cluster_that_does_not_run_is_said_with_exit_code_1(tmp_path: Path) -> None:
    done = fencepost("status", "--folder", str(tmp_path / "none"), "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["running"] is False


COMMANDS = (
    "up down status init apply worker trigger cancel pause resume delete tasks describe runs logs owners workers next "
    "verify dlq import"
)


@pytest.mark.parametrize("name", COMMANDS.split())
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert f"fencepost {name}" in capsys.readouterr().out


def test_the_version_is_the_packages() -> None:
    from fencepost import __version__

    assert fencepost("--version").stdout == f"fencepost {__version__}\n"


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = [str(Path(sys.executable).with_name("fencepost")), "next", "--every", "1s", "--count", "10000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) in (0, 1)

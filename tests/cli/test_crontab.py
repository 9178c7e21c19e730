"""`fencepost import crontab`: what a crontab becomes, and what is said of each line that it does not become."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.cli.crontab_file import may_be_the_systems, read_crontab
from fencepost.cli.main import run
from fencepost.cli.taskfile import read_task_files
from fencepost.core.schedule import Adjusted, Cron
from fencepost.core.task import CommandHandler

FOLDER = Path(__file__).parents[2]


class Imported:
    """What one call printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        return {task["id"]: task for task in tomllib.loads(self.out).get("task", [])}

    def said(self, line: int) -> list[str]:
        place = f"tab:{line}: "
        return [text.removeprefix(place) for text in self.err.splitlines() if text.startswith(place)]


@pytest.fixture
def imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(text: str, *arguments: str) -> Imported:
        (tmp_path / "tab").write_text(text)
        code = run(["import", "crontab", str(tmp_path / "tab"), "--time-zone", "Europe/Berlin", *arguments])
        printed = capsys.readouterr()
        return Imported(code, printed.out, printed.err)

    return call


def test_an_entry_becomes_a_command_with_its_shell_settings_and_description(imported: Any, tmp_path: Path) -> None:
    done = imported(
        "SHELL=/bin/bash\nPATH = '/opt/bin:/bin'\nA=1\n\n# The nightly\n# backup\n30 2 * * mon-fri\t/opt/backup.sh -x\n"
    )
    assert (done.code, done.tasks) == (
        0,
        {
            "cron/backup.sh": {
                "id": "cron/backup.sh",
                "description": "The nightly backup",
                "handler": {
                    "kind": "command",
                    "argv": ["/bin/bash", "-c", "exec </dev/null; /opt/backup.sh -x"],
                    "env": {"A": "1", "PATH": "/opt/bin:/bin"},
                },
                "cron": "30 2 * * mon-fri",
                "time_zone": "Europe/Berlin",
            }
        },
    )
    assert done.said(7) == ["the worker must allow the shell: fencepost worker --allow /bin/bash"]
    assert done.err.splitlines()[-1] == "tab: 1 task; 0 not carried over"
    (tmp_path / "tasks.toml").write_text(done.out)
    (definition,) = read_task_files([tmp_path / "tasks.toml"])
    assert definition.schedule == Cron("30 2 * * mon-fri", "Europe/Berlin")
    assert isinstance(definition.handler, CommandHandler)


def test_settings_hold_for_the_entries_below_them(imported: Any) -> None:
    done = imported(
        "0 1 * * * a\nCRON_TZ=America/New_York\nB=2\n0 2 * * * b\nCRON_TZ=UTC\nRANDOM_DELAY=10\nB=3\n@daily c\n"
    )
    a, b, c = (done.tasks[f"cron/{name}"] for name in "abc")
    assert "env" not in a["handler"]
    assert (a["time_zone"], b["time_zone"], c["time_zone"]) == ("Europe/Berlin", "America/New_York", "UTC")
    assert (b["handler"]["env"], c["handler"]["env"]) == ({"B": "2"}, {"B": "3"})
    assert ("jitter" in b, c["jitter"], c["cron"]) == (False, "10m", "@daily")
    assert "RANDOM_DELAY became jitter" in done.said(6)[0]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("@reboot x", "@reboot has no counterpart"),
        ("@often x", "'@often' is not a known alias"),
        ("61 * * * * x", "cron.minute: '61' in the field minute"),
        ("0 0 30 2 * x", "never fires"),
        ("0 0 29~31 * * x", "H chooses from a range upwards, within 1-28"),
        ("0 0 * * x", "is no setting and no entry"),
        ("@daily", "is no setting and no entry"),
        ("nonsense", "is no setting and no entry"),
        ("RANDOM_DELAY=soon", "no number of minutes"),
        ("CRON_TZ=Mars/Olympus\n0 0 * * * x\nCRON_TZ=UTC", "'Mars/Olympus' is not known"),
        ("SHELL=/bin/csh\n0 0 * * * x%y", "the input after % cannot be given to a command of /bin/csh"),
        ("0 0 * * * " + "x" * 40_000, "handler.argv[2]"),
    ],
)
def test_a_line_that_cannot_be_carried_over_is_told_and_the_others_are_written(
    imported: Any, line: str, why: str
) -> None:
    done = imported(f"5 4 * * * good\n{line}\n6 4 * * * fine\n")
    assert done.code == 1
    assert {"cron/good", "cron/fine"} <= set(done.tasks)
    (said,) = [text for number in (2, 3) for text in done.said(number) if text.startswith("NOT CARRIED OVER: ")]
    assert why in said
    assert done.err.splitlines()[-1].endswith("; 1 not carried over")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("MAILTO=root", "MAILTO: nobody is sent mail"),
        ("MAILFROM=root", "MAILFROM has no counterpart"),
        ("TZ=Asia/Tokyo", "TZ is passed to the commands; it does not move their times"),
        ("-5 * * * * x", "a - before the minute"),
        ("5~20 * * * * x", "~ became H"),
    ],
)
def test_what_differs_is_told_and_is_no_failure(imported: Any, line: str, said: str) -> None:
    done = imported(line + "\n5 4 * * * good\n")
    assert done.code == 0
    assert any(said in text for text in done.said(1))
    assert "cron/good" in done.tasks


def test_mail_that_is_off_a_comment_and_an_empty_file_are_nothing_to_tell(imported: Any) -> None:
    done = imported("MAILTO=''\n\n  # m h dom mon dow command\n")
    assert (done.code, done.tasks) == (0, {})
    assert done.err == "tab: 0 tasks; 0 not carried over\n"


def test_random_times_become_times_that_the_id_chooses(imported: Any) -> None:
    done = imported("~ 1~5 * * * a\n0~30/10,45 0 * * ~ b\n")
    assert [done.tasks[f"cron/{name}"]["cron"] for name in "ab"] == [
        "H(0-59) H(1-5) * * *",
        "H(0-30)/10,45 0 * * H(0-6)",
    ]


def test_the_systems_form_has_a_user_before_the_command(imported: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = "17 * * * *\troot\tcd / && run-parts /etc/cron.hourly\n@daily root  true\n"
    refused = imported(text)
    assert (refused.code, refused.out) == (2, "")
    assert "say --form system or --form user" in refused.err
    done = imported(text + "5 5 * * * alone\n", "--form", "system")
    assert done.code == 1
    hourly = done.tasks["cron/cron.hourly"]
    assert hourly["handler"]["argv"][2] == "exec </dev/null; cd / && run-parts /etc/cron.hourly"
    assert "runs as the worker's user, not as 'root'" in done.said(1)
    assert done.tasks["cron/true"]["cron"] == "@daily"
    assert "has no command after the user" in done.said(3)[0]
    as_user = imported("0 0 * * * root true\n", "--form", "user")
    assert as_user.tasks["cron/root"]["handler"]["argv"][2] == "exec </dev/null; root true"


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("cat; echo end", "end\n"),
        ("echo 100\\%", "100%\n"),
        ("cat%Hello%World", "Hello\nWorld\n"),
        ("cat%", "\n"),
        ("tr a b # comment%banana $HOME `id`", "bbnbnb $HOME `id`\n"),
        ("cat%END_OF_INPUT%x", "END_OF_INPUT\nx\n"),
        ("cat && echo two%one", "one\ntwo\n"),
        ("echo \"a'b\" 'c\"d' \\\\", "a'b c\"d \\\n"),
    ],
)
def test_the_command_gets_the_input_that_cron_would_give_it(imported: Any, command: str, output: str) -> None:
    (task,) = imported(f"0 0 * * * {command}\n").tasks.values()
    ran = subprocess.run(task["handler"]["argv"], input=b"the payload", capture_output=True, timeout=30, check=True)
    assert ran.stdout.decode() == output


def test_ids_are_named_by_the_program_and_stay_apart(imported: Any) -> None:
    done = imported(
        "0 1 * * * /opt/a/run.sh\n0 2 * * * A=1 /opt/b/run.sh >/dev/null\n0 3 * * * nice -n 5 '/opt/odd name'\n"
        "0 4 * * * (cd /srv/site && make)\n0 5 * * * true\n",
        "--prefix",
        "old/",
    )
    assert list(done.tasks) == ["old/run.sh", "old/run.sh-2", "old/odd", "old/site", "old/true"]


def test_the_same_as_one_document_for_programs(imported: Any) -> None:
    document = json.loads(imported("@reboot x\n5 4 * * * good\n", "--json").out)
    assert [task["id"] for task in document["tasks"]] == ["cron/good"]
    assert [(remark["line"], remark["left_out"]) for remark in document["remarks"]] == [(1, True), (2, False)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--form", "root"], "form"),
        (["--time-zone", "Mars"], "'Mars' is not known"),
        (["--prefix", "x" * 300], "--prefix: "),
    ],
)
def test_a_bad_argument_is_refused(imported: Any, arguments: list[str], message: str) -> None:
    done = imported("0 0 * * * x\n", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_what_is_no_file_and_no_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "crontab", str(tmp_path / "none")]) == 2
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert run(["import", "crontab", str(tmp_path / "binary")]) == 2
    assert "is not text in UTF-8" in capsys.readouterr().err


LINES = st.one_of(
    st.text(alphabet="0123456789*/-,~%\\ \t@=#'\"abcHLW\x7f\x0c\r", max_size=40),
    st.builds(
        "{} {}".format, st.sampled_from(["0 0 * * *", "@daily", "*/5 1-2 * jan mon", "~ * * * *"]), st.text(max_size=30)
    ),
    st.builds(
        "{}={}".format,
        st.sampled_from(["PATH", "SHELL", "CRON_TZ", "RANDOM_DELAY", "MAILTO", "X"]),
        st.text(max_size=20),
    ),
)


@given(lines=st.lists(LINES, max_size=8), form=st.sampled_from(["user", "system"]))
def test_any_text_becomes_a_task_file_that_can_be_read_and_no_line_is_lost_in_silence(
    lines: list[str], form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = "\n".join(lines).encode("utf-8", "replace").decode()
    folder = tmp_path_factory.mktemp("tab")
    (folder / "tab").write_bytes(text.encode())
    command = ["import", "crontab", str(folder / "tab"), "--form", form, "--time-zone", "UTC"]
    with pytest.MonkeyPatch.context() as patch:
        written: list[str] = []
        patch.setattr("fencepost.cli.crontab.say", lambda line: written.append(line))
        patch.setattr("fencepost.cli.crontab.note", lambda line: None)
        assert run(command) in (0, 1)
    (folder / "tasks.toml").write_text("\n".join(written) + "\n")
    definitions = read_task_files([folder / "tasks.toml"])
    entries, _ = read_crontab(text, form == "system", "UTC")
    assert len(definitions) <= len(entries)
    for definition in definitions:
        assert isinstance(definition.schedule, Cron | Adjusted)


def test_a_text_is_taken_for_the_systems_only_if_every_entry_has_a_user() -> None:
    assert may_be_the_systems("0 0 * * * root true\n@daily mail x\n", {"root", "mail"})
    assert not may_be_the_systems("0 0 * * * root true\n@daily /bin/x y\n", {"root", "mail"})
    assert not may_be_the_systems("0 0 * * * root\n", {"root"})
    assert not may_be_the_systems("A=1\n", {"root"})

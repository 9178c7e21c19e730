"""The command against a real broker and a real worker."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from fencepost.cli.main import run
from fencepost.client import Client
from fencepost.kafka.producer import Outgoing
from fencepost.settings import PROFILES, Settings
from fencepost.wire.history import HistoryRecord, decode_history

if TYPE_CHECKING:
    from fencepost.broker import Cluster

FENCEPOST = str(Path(sys.executable).with_name("fencepost"))

APP = """
import asyncio
from fencepost import App, Every, Retry

app = App("shop")

@app.task("report")
def report(ctx):
    print("reporting", ctx.payload)
    return {"n": ctx.payload["n"] + 1}

@app.task("broken", retry=Retry(attempts=2, delay_s=0.05))
def broken(ctx):
    raise ValueError("no good")

@app.task("patient")
async def patient(ctx):
    await asyncio.sleep(3600)

@app.task("hourly", schedule=Every(3600.0))
def hourly(ctx):
    pass

@app.function("stock")
def stock(ctx):
    return ctx.task_id
"""


@dataclass(frozen=True)
class Shown:
    stdout: str
    stderr: str


class Shop:
    """A namespace with one worker, and the command with its settings."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.folder = folder
        self.namespace = f"t{uuid.uuid4().hex[:10]}"
        self.settings = Settings(bootstrap=bootstrap, namespace=self.namespace, profile="quick", **PROFILES["quick"])
        own = {
            "FENCEPOST_BOOTSTRAP": bootstrap,
            "FENCEPOST_NAMESPACE": self.namespace,
            "FENCEPOST_PROFILE": "quick",
            "FENCEPOST_CONFIG": os.devnull,
        }
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")} | own

    def run(self, *arguments: str, code: int = 0) -> Shown:
        """The command in this process, which is what takes a second less; see `start` for the real one."""
        out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
        with mock.patch.dict(os.environ, self.env, clear=True), redirect_stdout(out), redirect_stderr(err):
            found = run(list(arguments))
        shown = Shown(*(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]
        assert found == code, (arguments, found, shown)
        return shown

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """The command as a process."""
        return subprocess.Popen([FENCEPOST, *arguments], cwd=self.folder, env=self.env, text=True, **options)

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def first_line(self, task: str, epoch: str) -> str:
        """The first line that a run printed; what runs print comes a little after their end."""
        follow = self.start("logs", task, epoch, "-f", stdout=subprocess.PIPE)
        assert follow.stdout is not None
        try:
            return follow.stdout.readline()
        finally:
            follow.send_signal(signal.SIGINT)
            try:
                assert follow.wait(60) != 0
            finally:
                follow.kill()
                follow.wait()
                follow.stdout.close()

    def await_event(self, task: str, act: Callable[[], object], *kinds: str) -> HistoryRecord:
        """Do something and wait for the event in the history that it leads to."""
        with Client(self.settings) as client, client.follow(task) as tail:
            act()
            until_s = time.monotonic() + 60
            while time.monotonic() < until_s:
                for record in tail.poll(1.0):
                    if record.key == task.encode() and record.value is not None:
                        event = decode_history(record.value)
                        if event.kind in kinds:
                            return event
        raise AssertionError(f"no {kinds} of {task}")


@pytest.fixture(scope="module")
def shop(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(APP)
    shop = Shop(kafka.bootstrap, folder)
    shop.run("init", "--partitions", "4")
    sys.path.insert(0, str(folder))
    with (folder / "worker.log").open("wb") as log:
        worker = shop.start("worker", "--app", "shop:app", "--allow", "/bin/echo", stdout=log, stderr=subprocess.STDOUT)
        try:
            # From here on the worker serves, so that what is applied leaves an event.
            shop.run("trigger", "report", "--payload", '{"n": 0}', "--wait", "--timeout", "60")
            yield shop
        finally:
            sys.path.remove(str(folder))
            sys.modules.pop("shop", None)
            worker.send_signal(signal.SIGTERM)
            try:
                assert worker.wait(60) == 0, (folder / "worker.log").read_text()
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
                raise


def test_the_command_as_a_process_prints_its_json_and_nothing_else(shop: Shop) -> None:
    arguments = ("trigger", "report", "--payload", '{"n": 0}', "--wait", "--timeout", "60", "--json")
    process = shop.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=90)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["result"] == {"n": 1}


def test_init_repeated_says_what_is_there(shop: Shop) -> None:
    document = shop.json("init")
    assert (document["partitions"], document["created"]) == (4, [])
    assert "workers are running" in document["notes"][0]
    refused = shop.run("init", "--partitions", "5", code=1)
    assert "has 4 partitions, but 5 were asked for" in refused.stderr


def test_a_trigger_waited_for_brings_its_result(shop: Shop) -> None:
    document = shop.json("trigger", "report", "--payload", '{"n": 41}', "--wait", "--timeout", "60")
    assert (document["outcome"], document["result"]) == ("succeeded", {"n": 42})


def test_a_run_that_fails_is_exit_code_1_with_its_error(shop: Shop) -> None:
    document = shop.json("trigger", "broken", "--wait", "--timeout", "60", code=1)
    assert (document["outcome"], document["attempt"]) == ("failed", 2)
    assert "ValueError: no good" in document["cause"]
    runs = shop.json("runs", "broken")["runs"]
    assert [(run["epoch"], run["attempt"], run["outcome"]) for run in runs[:2]] == [(1, 1, "failed"), (2, 2, "failed")]
    assert "retry_at" in runs[0]


def test_a_trigger_for_nobody_is_refused_and_can_be_replayed(shop: Shop) -> None:
    document = shop.json("trigger", "nobody", "--id", "x", "--wait", "--timeout", "60", code=1)
    assert document["outcome"] == "refused"
    (letter,) = shop.json("dlq", "list", "--task", "nobody")["dead_letters"]
    assert (letter["topic"], letter["replays"], letter["key"]) == (f"{shop.namespace}.triggers", 0, {"text": "nobody"})
    shown = shop.run("dlq", "show", letter["place"]).stdout
    assert '{"id":"x"}' in shown
    # Defined meanwhile, the replay becomes a run; it is not taken for a duplicate of the first.
    tasks = shop.folder / "nobody.toml"
    tasks.write_text('[[task]]\nid = "nobody"\nhandler = {kind = "python", function = "stock"}\n')
    shop.await_event("nobody", lambda: shop.run("apply", str(tasks)), "defined")
    ended = shop.await_event("nobody", lambda: shop.run("dlq", "replay", letter["place"]), "succeeded", "skipped")
    assert (ended.kind, ended.fields["trigger"], ended.fields["result"]) == ("succeeded", "x~1", "nobody")
    assert "there is no dead letter at 0:99999" in shop.run("dlq", "show", "0:99999", code=1).stderr
    assert "allowed: 0 to 3" in shop.run("dlq", "show", "9:0", code=2).stderr
    assert "allowed: PARTITION:OFFSET" in shop.run("dlq", "replay", "x", code=2).stderr


def test_poison_replayed_again_and_again_counts_up_and_never_loops(shop: Shop) -> None:
    """Case E05: five replays, five more dead letters, replays=1..5."""
    with Client(shop.settings) as client:
        at = client.producer.send(Outgoing(client.topics.triggers, "poison", b"\xc3\x28"))
        source = f"{shop.namespace}.triggers"
        with client.follow_refusals(at.partition, at.at_ms) as refusals:

            def next_letter() -> str:
                until_s = time.monotonic() + 60
                while time.monotonic() < until_s:
                    for record in refusals.poll(1.0):
                        if record.key == b"poison":
                            return f"{record.partition}:{record.offset}"
                raise AssertionError("no dead letter")

            place = next_letter()
            for _ in range(5):
                shop.run("dlq", "replay", place)
                place = next_letter()
    letters = shop.json("dlq", "list", "--task", "poison")["dead_letters"]
    assert [letter["replays"] for letter in letters] == [0, 1, 2, 3, 4, 5]
    assert {(letter["topic"], letter["value"]["base64"]) for letter in letters} == {(source, "wyg=")}


def test_what_runs_print_can_be_read_by_run(shop: Shop) -> None:
    document = shop.json("trigger", "report", "--payload", '{"n": 7}', "--wait", "--timeout", "60")
    epoch = str(document["epoch"])
    assert shop.first_line("report", epoch) == "reporting {'n': 7}\n"
    lines = shop.json("logs", "report", epoch)["lines"]
    assert [(line["stream"], line["text"].rstrip()) for line in lines] == [("out", "reporting {'n': 7}")]


def test_a_paused_task_has_no_next_slot_and_says_why(shop: Shop) -> None:
    """Case U03."""
    assert len(shop.json("next", "hourly", "--app", "shop:app", "--count", "3")["next"]) == 3
    shop.await_event("hourly", lambda: shop.run("pause", "hourly", "--reason", "lunch"), "paused")
    assert shop.json("next", "hourly") == {"task": "hourly", "next": [], "reason": "paused: lunch"}
    assert shop.json("describe", "hourly")["status"] == "paused"
    shop.await_event("hourly", lambda: shop.run("resume", "hourly"), "resumed")
    assert shop.json("next", "report", "--app", "shop:app")["reason"] == "no schedule: runs when triggered"
    assert "no task 'never'" in shop.run("next", "never", code=1).stderr


def test_a_run_that_is_on_is_seen_and_cancelled(shop: Shop) -> None:
    started = shop.await_event("patient", lambda: shop.run("trigger", "patient"), "started")
    described = shop.json("describe", "patient")
    assert (described["status"], described["state"]["run"]["epoch"]) == ("running", started.epoch)
    assert described["owner"] == started.lane
    ended = shop.await_event("patient", lambda: shop.run("cancel", "patient", "--reason", "enough"), "cancelled")
    assert (ended.epoch, ended.fields["cause"]) == (started.epoch, "enough")


def test_files_are_applied_with_a_difference_first(shop: Shop) -> None:
    tasks = shop.folder / "tasks.toml"
    one = '[[task]]\nid = "applied/{}"\nhandler = {{kind = "python", function = "stock"}}\n{}\n'
    tasks.write_text(one.format("a", "") + one.format("b", "priority = 3"))
    dry = shop.json("apply", str(tasks), "--dry-run")
    assert [item["task"] for item in dry["created"]] == ["applied/a", "applied/b"]
    assert shop.json("tasks", "applied/*")["tasks"] == []
    shop.await_event("applied/a", lambda: shop.run("apply", str(tasks)), "defined")
    assert shop.json("trigger", "applied/a", "--wait", "--timeout", "60")["result"] == "applied/a"
    tasks.write_text(one.format("b", "priority = 4"))
    changed = shop.json("apply", str(tasks))
    assert changed["changed"] == [{"task": "applied/b", "fields": {"priority": {"from": 3, "to": 4}}}]
    assert "applied/a" in changed["not_in_files"]
    assert shop.json("apply", str(tasks))["unchanged"] == ["applied/b"]
    tasks.write_text(one.format("b", "priority = 40"))
    assert "priority" in shop.run("apply", str(tasks), code=2).stderr
    shop.await_event("applied/b", lambda: shop.run("delete", "applied/b"), "deleted")
    assert shop.json("describe", "applied/b")["status"] == "deleted"
    assert shop.json("next", "applied/b")["reason"] == "deleted"


@pytest.mark.slow
def test_the_embedded_kafka_is_started_initialised_and_stopped(tmp_path: Path) -> None:
    shop = Shop("127.0.0.1:1", tmp_path)
    folder = ("--folder", str(tmp_path / "kafka"))
    assert "run `fencepost up`" in shop.run("status", *folder, code=1).stdout
    started = shop.json("up", *folder, "--port", str(two_free_ports()))
    try:
        assert started["running"] is True
        document = shop.json("init", "--bootstrap", started["bootstrap"], "--partitions", "1")
        assert document["group_protocol"] == "consumer"
        assert shop.json("status", *folder)["nodes"][0]["pid"] == started["nodes"][0]["pid"]
    finally:
        shop.run("down", *folder)
    assert shop.json("status", *folder, code=1)["nodes"][0]["pid"] is None
    assert "holds no cluster" in shop.run("down", "--folder", str(tmp_path / "none"), code=1).stderr


def two_free_ports() -> int:
    for port in range(30_000 + os.getpid() % 20_000, 65_000, 2):
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no free ports")


def test_prune_deletes_what_is_in_no_file(kafka: Cluster, shop: Shop) -> None:
    other = Shop(kafka.bootstrap, shop.folder)
    other.run("init", "--partitions", "1")
    tasks = shop.folder / "prune.toml"
    one = '[[task]]\nid = "{}"\nhandler = {{kind = "python", function = "stock"}}\n'
    tasks.write_text(one.format("a") + one.format("b"))
    other.run("apply", str(tasks))
    tasks.write_text(one.format("b"))
    assert other.json("apply", str(tasks), "--prune")["deleted"] == ["a"]
    assert [task["task"] for task in other.json("tasks")["tasks"]] == ["b"]


def test_a_command_on_the_allow_list_runs_and_what_it_prints_is_kept(shop: Shop) -> None:
    tasks = shop.folder / "commands.toml"
    tasks.write_text('[[task]]\nid = "echo"\nhandler = {kind = "command", argv = ["/bin/echo", "hello"]}\n')
    shop.await_event("echo", lambda: shop.run("apply", str(tasks)), "defined")
    document = shop.json("trigger", "echo", "--wait", "--timeout", "60")
    assert document["outcome"] == "succeeded"
    assert shop.first_line("echo", str(document["epoch"])) == "hello\n"


def test_owners_and_workers_are_told(shop: Shop) -> None:
    owners = shop.json("owners")["owners"]
    assert [owner["held"] for owner in owners] == [True] * 4
    (worker,) = shop.json("workers")["workers"]
    assert worker["status"] == "active"
    assert worker["worker"] == owners[0]["worker"]
    assert {"report", "broken", "patient", "stock"} <= set(worker["handlers"])


def test_tables_are_for_people(shop: Shop) -> None:
    for arguments, heading in (
        (("tasks",), "ID"), (("runs",), "TASK"), (("runs", "--events"), "AT"), (("owners",), "PARTITION"),
        (("workers",), "WORKER"), (("dlq", "list"), "PLACE"),
    ):  # fmt: skip
        assert shop.run(*arguments).stdout.startswith(heading)
    assert shop.run("describe", "report").stdout.split()[:2] == ["task", "report"]


def test_verify_finds_that_the_promise_holds(shop: Shop) -> None:
    document = shop.json("verify", "--app", "shop:app")
    assert (document["holds"], document["complete"], document["violations"]) == (True, True, [])
    assert document["runs"] > 0
    assert shop.run("verify").stdout.splitlines()[-1].startswith("the promise holds: ")


def test_verify_finds_a_breach_and_exits_with_1(kafka: Cluster, shop: Shop) -> None:
    from fencepost.core.commands import History
    from fencepost.wire.history import encode_history

    other = Shop(kafka.bootstrap, shop.folder)
    other.run("init", "--partitions", "2")
    with Client(other.settings) as client:
        for kind, epoch in (("started", 1), ("started", 2), ("succeeded", 1)):
            fields = {"duration_s": 1.0} if kind == "succeeded" else {}
            value = encode_history("t", History(kind, epoch, 1_000, fields), "lane", "nonce")
            client.producer.send(Outgoing(client.topics.runs, "t", value))
    document = other.json("verify", code=1)
    assert document["holds"] is False
    (found,) = [item for item in document["violations"] if item["kind"] == "overlap"]
    assert (found["task"], found["epoch"]) == ("t", 2)
    assert found["text"] == "epoch 2 started while epoch 1 had not ended"
    assert [(place["topic"], place["offset"]) for place in found["places"]] == [
        (f"{other.namespace}.runs", 0),
        (f"{other.namespace}.runs", 1),
    ]

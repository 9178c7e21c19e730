"""A stage: a namespace on a real broker, real worker processes, and eyes on what their tasks wrote themselves.

Waits are for conditions, and a wait that fails shows what every worker logged. Whatever a test does, each process it
started is ended by its own ID, with all that belongs to it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from fencepost.broker.keeper import Keeper
from fencepost.client import Client
from fencepost.codec import dumps
from fencepost.core.task import Definition, PythonHandler
from fencepost.core.times import parse_rfc3339
from fencepost.demo.witness import LeftOut, Line, Reader, Timetable, check_folder
from fencepost.settings import ENV_PREFIX
from tests.kafka.lane.harness import World, discard, make_world, wait_until
from tests.scenarios.app import WITNESS_VARIABLE

ROOT = Path(__file__).parents[2]
LIMIT_S = 120.0  # for what takes seconds on an idle machine
END_LIMIT_S = 60.0
SESSION_S = 3.0  # of the profile `quick`; the lease is as long
TAIL_LINES = 25


def python_task(task: str, *, seconds: float = 0.05, until: Path | None = None, **fields: Any) -> Definition:
    """A task that writes down that it lives: for `seconds`, or until the file is there."""
    payload = {"seconds": seconds} if until is None else {"seconds": 600, "until": str(until)}
    return Definition(task, PythonHandler("work"), payload=payload, **fields)


class WorkerProcess:
    """One `fencepost worker`."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log_file: Path) -> None:
        self.name = name
        self._process = process
        self.log_file = log_file
        self.may_end = False  # told to, or bent so that it will
        self._family: list[psutil.Process] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def family(self) -> list[psutil.Process]:
        """Guard and runners, and what they started, as of now."""
        return psutil.Process(self.pid).children(recursive=True)

    def signal(self, number: signal.Signals) -> None:
        """Whoever belongs to it now is remembered: they must go with it."""
        if number is not signal.SIGCONT:
            self._family += self.family()
        self.may_end = self.may_end or number not in (signal.SIGCONT, signal.SIGSTOP)
        self._process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()

    def freeze(self) -> None:
        """Stop the main process, the one that holds the leases, and wait until it stands still."""
        self.signal(signal.SIGSTOP)
        wait_until(f"{self.name} stopped", lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def left_behind(self) -> list[psutil.Process]:
        """Those remembered that still live; zombies of others' are no life."""
        return [
            process for process in self._family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        ]

    # -- what it says -----------------------------------------------------------------------------------------------

    def lines(self) -> list[dict[str, Any]]:
        """Its log; a line that is no JSON is kept as {"raw": line}."""
        found = []
        for line in self.log_file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            found.append(entry if isinstance(entry, dict) else {"raw": line})
        return found

    def said(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line.get("event") == event]

    def log_text(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def ready(self) -> bool:
        """Whether /readyz says so. Not while it serves no HTTP yet."""
        return self.page("/readyz")[0] == 200

    def page(self, path: str) -> tuple[int, bytes]:
        """(status, body); status 0 while nobody answers."""
        serving = self.said("serving HTTP")
        if not serving:
            return 0, b""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{serving[0]['port']}{path}", timeout=5) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read()
        except OSError:
            return 0, b""


class Stage:
    """Made by `on_stage`. `world` reads and writes the topics, `client` is the Python API."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.witness = folder / "witness"
        self.witness.mkdir(parents=True)
        self.workers: dict[str, WorkerProcess] = {}
        self.client = Client(world.settings)
        self._reader = Reader(self.witness)
        self._lines: list[Line] = []
        self._keeper = Keeper()

    # -- processes --------------------------------------------------------------------------------------------------

    def start(
        self,
        name: str,
        *arguments: str,
        bend: dict[str, Any] | None = None,
        bootstrap: str | None = None,
        stop_limit_s: float = 20.0,
        prefix: Sequence[str] = (),
        **environment: str,
    ) -> WorkerProcess:
        """Start a worker. `bend`: through `tests.scenarios.bent`, which makes one thing of it go wrong.

        `prefix`: a program that becomes the worker, and puts it elsewhere before.
        """
        home = self.folder / "workers" / name
        home.mkdir(parents=True)
        env = self._environment() | {"TMPDIR": str(home), WITNESS_VARIABLE: str(self.witness), **environment}
        module = "fencepost.cli.main" if bend is None else "tests.scenarios.bent"
        if bend is not None:
            env["SCENARIO_BEND"] = json.dumps(bend)
        command = [sys.executable, "-m", module, "worker", "--app", "tests.scenarios.app:app"]
        command += ["--bootstrap", bootstrap or self.world.bootstrap, "--namespace", self.world.settings.namespace]
        command += ["--profile", "quick", "--stop-limit", f"{stop_limit_s:g}", "--log-format", "json"]
        command += ["--http-port", "0", *arguments]
        log_file = self.folder / f"worker-{name}.log"
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [*prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=home,
                start_new_session=True,
            )
        self._keeper.keep(process.pid)
        worker = self.workers[name] = WorkerProcess(name, process, log_file)
        worker.may_end = bend is not None and "die" in bend
        return worker

    def start_all(self, *names: str, **options: Any) -> list[WorkerProcess]:
        """Start them and wait until each serves what it has, and all have something."""
        workers = [self.start(name, **options) for name in names]
        self.all_hold(*names)
        return workers

    def cli(self, *arguments: str, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
        """One `fencepost` command against this namespace. `expect`: its exit code; None for any."""
        command = [sys.executable, "-m", "fencepost.cli.main", *arguments]
        command += ["--bootstrap", self.world.bootstrap, "--namespace", self.world.settings.namespace]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=90, env=self._environment(), cwd=self.folder, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        if expect is not None:
            assert done.returncode == expect, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def _environment(self) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(ENV_PREFIX)}
        return clean | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'streams'}", "PYTHONUNBUFFERED": "1"}

    # -- waiting ----------------------------------------------------------------------------------------------------

    def wait(self, what: str, condition: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
        """The condition's value once it is true. A worker that ends by itself ends the waiting too."""

        def looked() -> Any:
            for worker in self.workers.values():
                assert worker.may_end or worker.exit_code is None, f"{worker.name} ended, code {worker.exit_code}"
            return condition()

        return wait_until(what, looked, limit_s)

    def wait_ended(self, worker: WorkerProcess, limit_s: float = END_LIMIT_S) -> int:
        self.wait(f"the end of {worker.name}", lambda: worker.exit_code is not None, limit_s)
        assert worker.exit_code is not None
        return worker.exit_code

    def all_hold(self, *names: str) -> None:
        """Until these workers, and no other, hold all partitions, and each is ready."""
        self.wait(f"{', '.join(names)} hold all partitions", lambda: set(self.holders().values()) == set(names))
        self.wait(f"{', '.join(names)} ready", lambda: all(self.workers[name].ready() for name in names))

    def wait_kind(self, task: str, kind: str, epoch: int | None = None, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """The first such event of the task's history."""

        def found() -> dict[str, Any] | None:
            for event in self.world.history(task):
                if event["kind"] == kind and (epoch is None or event.get("epoch") == epoch):
                    return event
            return None

        event: dict[str, Any] = self.wait(f"{task}: {kind} {epoch or ''}", found, limit_s)
        return event

    def wait_line(self, task: str, what: str = "begin", count: int = 1, limit_s: float = LIMIT_S) -> Line:
        """The `count`-th such line that the task's own code wrote."""

        def found() -> Line | None:
            lines = [line for line in self.lines(task) if line.what == what]
            return lines[count - 1] if len(lines) >= count else None

        line: Line = self.wait(f"line {count} of {task} that says {what}", found, limit_s)
        return line

    # -- what is there ----------------------------------------------------------------------------------------------

    def holders(self) -> dict[int, str]:
        """By partition: the name of the worker that holds it; "?" where nobody of ours does."""
        names = {}
        for record in self.world.records(self.world.topics.workers):
            if record.value is not None:
                body = json.loads(record.value)
                names[body["worker"]] = next(
                    (name for name, worker in self.workers.items() if worker.pid == body["pid"]), "?"
                )
        held = {}
        for number in range(self.world.info.partitions):
            fences = self.world.fences(number)
            held[number] = "?" if not fences or fences[-1].released else names.get(fences[-1].worker, "?")
        return held

    def task_on(self, partition: int, prefix: str = "t/p") -> str:
        """The first ID of such a name on the partition."""
        names = (f"{prefix}{number}" for number in range(1000))
        return next(name for name in names if self.world.partition(name) == partition)

    def holder(self, task: str) -> str:
        return self.holders()[self.world.partition(task)]

    def task_of(self, worker: str, prefix: str = "t/x") -> str:
        """An ID, not used before, on a partition that this worker holds."""
        held = {number for number, name in self.holders().items() if name == worker}
        assert held, f"{worker} holds nothing"
        self._counter = getattr(self, "_counter", 0) + 1
        names = (f"{prefix}-{self._counter}-{number}" for number in range(1000))
        return next(name for name in names if self.world.partition(name) in held)

    def lines(self, task: str) -> list[Line]:
        """What the runs of the task wrote, in the order of writing."""
        self._lines += self._reader.new_lines()
        return [line for line in self._lines if line.task == task]

    def began(self, task: str) -> list[Line]:
        return [line for line in self.lines(task) if line.what == "begin"]

    def check_no_overlap(self) -> None:
        """The files by themselves: no two runs of one task wrote at once, none after a newer epoch, none twice."""
        report = check_folder(self.witness)
        assert report.holds, report.problems

    def check_slots(self, task: str, interval_ms: int, until_ms: int) -> None:
        """Every slot from the first one known to `until_ms` ran to its end in one run, or was left out with a cause."""
        left_out, interrupted = [], []
        for event in self.world.history(task):
            if event["kind"] == "missed":
                left_out.append(
                    LeftOut(task, parse_rfc3339(event["first"]), parse_rfc3339(event["last"]), event["cause"])
                )
            elif event["kind"] == "skipped" and "slot" in event:
                slot_ms = parse_rfc3339(event["slot"])
                left_out.append(LeftOut(task, slot_ms, slot_ms, event["cause"]))
            elif event["kind"] == "interrupted" and event.get("epoch") is not None:
                interrupted.append((task, event["epoch"]))
        report = check_folder(self.witness, [Timetable(task, interval_ms, until_ms)], left_out, interrupted)
        assert report.holds, report.problems

    def dead_letters(self) -> list[dict[str, Any]]:
        return [
            json.loads(record.value)
            for record in self.world.records(self.world.topics.dead_letter)
            if record.value is not None
        ]

    def define(self, *definitions: Definition) -> None:
        self.client.apply(definitions)

    def trigger_raw(self, key: bytes | None, value: bytes | None, **options: Any) -> None:
        """A trigger from a plain producer, just as it is."""
        produce(self.world.bootstrap, self.world.topics.triggers, key, value, **options)

    def trigger(self, task: str, **body: Any) -> None:
        self.trigger_raw(task.encode(), dumps(body))

    # -- the end ----------------------------------------------------------------------------------------------------

    def show_logs(self) -> None:
        for name, worker in self.workers.items():
            print(f"--- the end of {worker.log_file} ({name}, exit code {worker.exit_code})")
            print("\n".join(worker.log_text().splitlines()[-TAIL_LINES:]))

    def end(self) -> list[str]:
        """End every worker, orderly where it can be. Returns what had to be killed, or would not go."""
        running = [worker for worker in self.workers.values() if worker.exit_code is None]
        for worker in running:
            worker.signal(signal.SIGTERM)
            worker.signal(signal.SIGCONT)
        until_s = time.monotonic() + END_LIMIT_S
        problems = []
        for worker in running:
            try:
                worker._process.wait(max(0.1, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                problems.append(f"{worker.name} did not stop within {END_LIMIT_S:g} s and was killed")
        self._keeper.close()  # kills what still runs
        for worker in self.workers.values():
            worker._process.wait()
        psutil.wait_procs([process for worker in self.workers.values() for process in worker._family], timeout=10.0)
        for worker in self.workers.values():
            problems += [f"{process} of {worker.name} is still there" for process in worker.left_behind()]
        self.client.close()
        discard(self.world)
        return problems


@contextmanager
def on_stage(
    bootstrap: str, namespace: str, folder: Path, protocol: str = "consumer", partitions: int = 4
) -> Iterator[Stage]:
    """A stage of its own. Nothing of it is left; the workers' last lines are printed, which pytest shows on failure."""
    stage = Stage(make_world(bootstrap, namespace, protocol, partitions), folder)
    try:
        yield stage
    finally:
        problems = stage.end()
        stage.show_logs()
    assert not problems


def produce(
    bootstrap: str,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    *,
    headers: list[tuple[str, bytes | None]] | None = None,
    partition: int | None = None,
    timestamp_ms: int | None = None,
    partitioner: str = "murmur2_random",
) -> tuple[int, int]:
    """One record through a plain producer. Returns (partition, offset)."""
    from confluent_kafka import Producer

    placed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": partitioner, "linger.ms": 0})
    options: dict[str, Any] = {"headers": headers or []}
    if partition is not None:
        options["partition"] = partition
    if timestamp_ms is not None:
        options["timestamp"] = timestamp_ms
    producer.produce(topic, value, key, on_delivery=lambda error, message: placed.append((error, message)), **options)
    assert producer.flush(20) == 0
    ((error, message),) = placed
    assert error is None, error
    return message.partition(), message.offset()

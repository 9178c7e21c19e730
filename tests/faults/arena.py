"""Where faults happen: brokers and workers in places of their own, tasks that leave witness lines, eyes on both.

An arena is one namespace on one cluster. Everything it starts or makes is its own and gone when it ends; what a fault
leaves (a dead worker, a frozen broker) the arena mends by `heal`, as a supervisor would.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from fencepost.broker import Cluster, NodeOptions
from fencepost.broker.keeper import Keeper
from fencepost.broker.settings import Ports
from fencepost.client import Client
from fencepost.codec import dumps, loads
from fencepost.core.ids import partition_of
from fencepost.core.schedule import Cron, Every
from fencepost.core.task import CommandHandler, Definition, Isolation, Overlap, PythonHandler, Retry
from fencepost.core.times import parse_rfc3339
from fencepost.kafka.admin import init
from fencepost.kafka.producer import Outgoing, Producer
from fencepost.kafka.scan import scan
from fencepost.kafka.topics import Topics
from fencepost.settings import ENV_PREFIX, PROFILES, Settings
from tests.faults import app as app_module
from tests.faults import bent, cgroups, network, witness
from tests.faults.checker import END, Facts, LeftOut, Line, Timetable, parse

ROOT = Path(__file__).parents[2]
PARTITIONS = 12
DISK_MB = 256
BROKER_NUMBER, WORKER_NUMBER = 10, 20  # last bytes of addresses start after these
LIVE_NS = 300_000_000  # a run whose last line is younger is on
ENDED = ("succeeded", "failed", "timed_out", "cancelled", "interrupted")


@dataclass(frozen=True, slots=True)
class Setting:
    """What an arena is made of. `tasks` scales the load; `freezer`: the control groups workers are in, 1 or 2.

    `commands` is off where groups of version 1 freeze workers: what a command does between its thaw and its death is a
    known gap (docs/guarantees.md), which `--v1-commands` shows.
    """

    nodes: int = 1
    protocol: str = "consumer"
    profile: str = "quick"
    workers: int = 3
    tasks: int = 100
    static: bool = False
    freezer: int = 2
    commands: bool = True

    @property
    def lease_s(self) -> float:
        return PROFILES[self.profile]["lease_ttl_s"]

    @property
    def session_s(self) -> float:
        return PROFILES[self.profile]["session_timeout_s"]

    @property
    def takeover_limit_s(self) -> float:
        """Beyond this a takeover did not happen. Long: what is looked for is that it happens; times are measured."""
        return 45.0 + 3 * max(self.lease_s, self.session_s)


@dataclass(slots=True)
class Worker:
    """A worker's slot: `process` changes with every restart, and so does `name`, which its runs write down."""

    slot: str
    place: network.Place | None
    freezer: cgroups.Group | None
    process: subprocess.Popen[bytes]
    name: str
    log_file: Path
    home: Path
    bent: bool = False
    told: bool = False  # a fault ended it, or let it end
    starts: int = 1
    exits: list[int] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def family(self) -> dict[int, str]:
        """Everything below the worker as of now: process ID and name."""
        found = {}
        try:
            for child in psutil.Process(self.pid).children(recursive=True):
                try:
                    found[child.pid] = child.name()
                except psutil.Error:
                    continue  # ended while we looked
        except psutil.NoSuchProcess:
            return {}
        return found

    def named(self, name: str) -> list[int]:
        return [pid for pid, its in self.family().items() if its == name]

    @property
    def guard(self) -> int | None:
        return next(iter(self.named("fencepost-guard")), None)

    def runner_of(self, line: Line) -> int | None:
        """The process, as this namespace knows it, that wrote the line."""
        for pid in self.family():
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            inner = next((row for row in status.splitlines() if row.startswith("NSpid:")), "")
            if inner.split()[-1:] == [str(line.pid)]:
                return pid
        return None


class Arena:
    """A context. `setting` says what of; everything lies in `folder`."""

    def __init__(self, folder: Path, setting: Setting) -> None:
        self.setting = setting
        self.folder = folder
        self.witness = folder / "witness"
        self.greedy = folder / "greedy"
        self.holding, self.held = folder / "hold", folder / "held"
        self.workers: dict[str, Worker] = {}
        self.unexpected: list[str] = []  # workers that ended although no fault was meant to end them
        self.guards_lost: list[str] = []  # of these: a guard that was late, as on a machine with too much to do
        self.network: network.Network | None = None
        self.brokers: dict[int, network.Place] = {}
        self.no_clock_shim: str | None = None
        self._stack = ExitStack()
        self._keeper = Keeper()
        self._families: dict[int, psutil.Process] = {}
        self._groups: list[cgroups.Group] = []
        self.defined_ms = 0

    # -- start and end ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _start(self) -> None:
        for folder in (self.witness, self.greedy):
            folder.mkdir(parents=True)
        self._stack.callback(self._keeper.close)
        self.no_network = network.why_not()
        if self.no_network is None:
            self.network = self._stack.enter_context(network.Network())
        self.cluster = self._make_cluster()
        self._stack.enter_context(self.cluster)
        setting = self.setting
        self.settings = Settings(
            bootstrap=self.cluster.bootstrap,
            namespace="faults",
            profile=setting.profile,
            group_protocol=setting.protocol,
            **PROFILES[setting.profile],  # type: ignore[arg-type]
        )
        report = init(self.settings, partitions=PARTITIONS)
        if report.info.group_protocol != setting.protocol:
            raise RuntimeError(f"wanted the {setting.protocol} protocol, got {report.info.group_protocol}")
        self.topics = Topics("faults")
        self.client = Client(self.settings)
        self._stack.callback(self.client.close)
        self._producer = Producer(self.settings, timeout_s=60.0)
        self._stack.callback(self._producer.close)
        self._stack.callback(self._remove_groups)
        self._stack.callback(self._end_workers)
        self.schedules = self._define()
        for number in range(1, setting.workers + 1):
            self.start_worker(f"w{number}")

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()

    def _make_cluster(self) -> Cluster:
        setting, addresses = self.setting, None
        shim = self._clock_shim()
        options = {}
        for node in range(1, setting.nodes + 1):
            env, prefix = {}, []
            if shim is not None:
                file = self.clock_file(f"b{node}")
                env = {"LD_PRELOAD": str(shim), "FAULTS_CLOCK": str(file)}
            if self.network is not None:
                self.brokers[node] = self.network.place(f"b{node}", BROKER_NUMBER + node)
                prefix = self.brokers[node].prefix
            options[node] = NodeOptions(env=env, prefix=prefix)
        if self.brokers:
            addresses = [place.address for place in self.brokers.values()]
        ports = Ports(9092, 9093) if self.brokers else None
        cluster = Cluster(
            self.folder / "kafka", nodes=setting.nodes, addresses=addresses, options=options, ports=ports, heap_mb=320
        )
        self.small_disks = os.geteuid() == 0
        for node in cluster.node_ids if self.small_disks else ():
            disk = cluster.data_dir(node)
            disk.mkdir(parents=True)
            network.run("mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(disk))
            self._stack.callback(network.run, "umount", "-l", str(disk))
        return cluster

    def _clock_shim(self) -> Path | None:
        shim = self.folder / "clock_shim.so"
        source = Path(__file__).parent / "clock_shim.c"
        try:
            network.run("cc", "-O2", "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl")
        except (OSError, RuntimeError) as error:
            self.no_clock_shim = f"no C compiler for the clock shim ({error})"
            return None
        return shim

    def clock_file(self, name: str) -> Path:
        """Says how far the clock of a broker or worker is ahead."""
        file = self.folder / f"clock-{name}"
        if not file.exists():
            file.write_bytes(struct.pack("=q", 0))
        return file

    # -- workers ----------------------------------------------------------------------------------------------------

    def start_worker(self, slot: str, *, prefix: Iterable[str] = (), twin: bool = False) -> Worker:
        """Start the worker of this slot (again). `twin`: a second process beside it, with its worker ID."""
        old = self.workers.get(slot)
        starts = 1 if old is None else old.starts + 1
        name = f"{slot}.{starts}"
        home = self.folder / "workers" / name
        home.mkdir(parents=True)
        bends = slot == "w3"
        place = old.place if old is not None else self._worker_place(slot)
        freezer = old.freezer if old is not None else self._worker_group(slot)
        log_file = self.folder / f"worker-{name}.log"
        command = self._command(slot, bends)
        if freezer is not None:
            command = ["sh", "-c", f'echo $$ > {freezer.procs} && exec "$@"', "sh", *prefix, *command]
        if place is not None:
            command = [*place.prefix, *command]
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(slot, home),
                cwd=home,
                start_new_session=True,
            )
        self._keeper.keep(process.pid)
        worker = Worker(slot, place, freezer, process, name, log_file, home, bends, starts=starts)
        if old is not None and not twin:
            worker.exits = old.exits
        self.workers[slot] = worker
        return worker

    def _worker_place(self, slot: str) -> network.Place | None:
        number = WORKER_NUMBER + int(slot[1:])
        return None if self.network is None else self.network.place(slot, number)

    def _worker_group(self, slot: str) -> cgroups.Group | None:
        root = cgroups.V1 if self.setting.freezer == 1 else cgroups.V2
        if cgroups.why_not(root) is not None:
            return None
        self._groups.append(cgroups.Group(root, slot))
        return self._groups[-1]

    def _remove_groups(self) -> None:
        for group in self._groups:
            group.remove()

    def _command(self, slot: str, bends: bool) -> list[str]:
        module = "tests.faults.bent" if bends else "fencepost.cli.main"
        command = [sys.executable, "-m", module, "worker", "--app", "tests.faults.app:app"]
        command += ["--bootstrap", self.settings.bootstrap, "--namespace", self.settings.namespace]
        command += ["--profile", self.setting.profile, "--stop-limit", "10", "--log-format", "json"]
        command += ["--allow", sys.executable]
        if self.setting.static:
            command += ["--worker-id", slot]
        return command

    def _environment(self, slot: str, home: Path) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(ENV_PREFIX)}
        return clean | {
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'streams'}",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(home),
            app_module.WITNESS_VARIABLE: str(self.witness),
            app_module.GREEDY_VARIABLE: str(self.greedy),
            bent.CLOCK_VARIABLE: str(self.clock_file(slot)),
            bent.HOLD_VARIABLE: str(self.holding),
            bent.HELD_VARIABLE: str(self.held),
        }

    def remember(self, worker: Worker) -> None:
        """Whoever belongs to it now has to be gone when the arena ends."""
        for pid in worker.family():
            try:
                self._families[pid] = psutil.Process(pid)
            except psutil.NoSuchProcess:
                continue

    def revive(self) -> None:
        """Start every worker again that has ended, as a supervisor does; note those that no fault was to end."""
        for slot, worker in list(self.workers.items()):
            code = worker.process.poll()
            if code is None:
                continue
            worker.exits.append(code)
            if not worker.told:
                words = self.last_words(worker)
                ends = self.guards_lost if code == 1 and "GuardLost" in words else self.unexpected
                ends.append(f"{worker.name} ended with {code}: {words}")
            self.start_worker(slot)

    @staticmethod
    def last_words(worker: Worker) -> str:
        lines = worker.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line for line in lines if '"error"' in line or "Traceback" in line or "Error" in line]
        return " | ".join((said or lines)[-2:])[:600]

    def ended(self, task: str, epoch: int) -> bool:
        """Whether the run wrote its end, or a later one wrote at all."""
        return any(line.epoch > epoch or (line.epoch == epoch and line.what == END) for line in self.lines(task))

    def dismiss(self, slot: str) -> None:
        """Take a worker out that has ended: nobody starts it again."""
        worker = self.workers.pop(slot)
        worker.process.wait(30)

    def _end_workers(self) -> None:
        """End all, orderly where it can be. Raises RuntimeError if something of them stays."""
        for worker in self.workers.values():
            if worker.lives:
                self.remember(worker)
                worker.process.send_signal(signal.SIGTERM)
                worker.process.send_signal(signal.SIGCONT)
        until_s = time.monotonic() + 30
        for worker in self.workers.values():
            try:
                worker.process.wait(max(0.1, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.unexpected.append(f"{worker.name} did not stop in 30 s: {self.last_words(worker)}")
                worker.process.kill()
                worker.process.wait()
        until_s = time.monotonic() + 10
        while (left := [each for each in self._families.values() if _lives(each)]) and time.monotonic() < until_s:
            time.sleep(0.05)  # between two looks
        for process in left:
            self.unexpected.append(f"{process} outlived its worker")
            process.kill()

    # -- load -------------------------------------------------------------------------------------------------------

    def _define(self) -> dict[str, int]:
        """The tasks. Returns the interval in ms of each that has a schedule."""
        retry = Retry(attempts=20, delay_s=0.2, factor=1.0)
        definitions, schedules = [], {}

        def add(task: str, handler: Any, every_s: float, **fields: Any) -> None:
            definitions.append(Definition(task, handler, Every(every_s), retry=retry, max_losses=100, **fields))
            schedules[task] = round(every_s * 1000)

        one = Overlap.BUFFER_ONE
        for n in range(self.setting.tasks):
            add(f"short/{n}", PythonHandler("work"), (4, 5, 6, 8)[n % 4], payload={"seconds": 0.3}, overlap=one)
        for n in range(max(6, self.setting.tasks // 10)):
            add(f"async/{n}", PythonHandler("work_async"), 5, payload={"seconds": 0.5}, overlap=one)
        for n in range(9):
            seconds = self.setting.lease_s * (1.2, 2.0, 3.0)[n % 3]
            own = {"isolation": Isolation.OWN} if n % 2 else {}
            payload = {"seconds": min(seconds, 20.0 + self.setting.lease_s), "stubborn": n % 4 == 0}
            add(f"long/{n}", PythonHandler("work"), 10, payload=payload, strict_stop=n % 3 == 0, overlap=one, **own)
        for n in range(6 if self.setting.commands else 0):
            argv = [sys.executable, "-I", "-S", witness.__file__, str(self.witness), "2.5"]
            argv += ["stubborn"] if n % 2 else []
            handler = CommandHandler(tuple(argv))
            add(f"command/{n}", handler, 8, isolation=Isolation.OWN, overlap=one, grace_s=1.0)
        for n in range(4):
            handler = PythonHandler("work")
            definitions.append(
                Definition(f"cron/{n}", handler, Cron("* * * * *"), retry=retry, max_losses=100, overlap=one)
            )
            schedules[f"cron/{n}"] = 60_000
        self.client.apply(definitions)
        self.defined_ms = int(time.time() * 1000) + 10_000  # slots from here on must be seen, each before as it comes
        return schedules

    def task_on(self, kind: str, partition: int) -> str:
        names = (f"{kind}/{number}" for number in range(10_000))
        return next(name for name in names if partition_of(name.encode(), PARTITIONS) == partition)

    def trigger(self, kind: str, partitions: Iterable[int]) -> dict[str, int]:
        """A trigger for the task of this kind on each partition; by task, its partition. Raises KafkaProblem."""
        tasks = {self.task_on(kind, number): number for number in partitions}
        self._producer.send_all(Outgoing(self.topics.triggers, task, dumps({})) for task in tasks)
        return tasks

    # -- what the runs wrote ----------------------------------------------------------------------------------------

    def file_of(self, task: str) -> Path:
        return self.witness / f"{witness.quote(task, safe='')}.log"

    def lines(self, task: str) -> list[Line]:
        try:
            raw = self.file_of(task).read_bytes()
        except FileNotFoundError:
            return []
        parsed = (parse(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines())
        return [line for line in parsed if line is not None]

    def last_line(self, task: str) -> Line | None:
        try:
            with self.file_of(task).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 2000))
                raw = file.read()
        except FileNotFoundError:
            return None
        whole = raw[: raw.rfind(b"\n") + 1].splitlines()
        return parse(whole[-1]) if whole else None

    def live(self, prefix: str = "long/") -> dict[str, Line]:
        """Runs that are on right now, by task: the last line of each. Its worker names who runs it."""
        now_ns = time.time_ns()
        found = {}
        for task in self.schedules:
            if task.startswith(prefix):
                line = self.last_line(task)
                if line is not None and line.what != END and now_ns - line.at_ns < LIVE_NS:
                    found[task] = line
        return found

    def live_of(self, worker: Worker, prefix: str = "long/") -> dict[str, Line]:
        return {task: line for task, line in self.live(prefix).items() if line.worker == worker.name}

    # -- what the topics say ----------------------------------------------------------------------------------------

    def history(self, since_ms: int = 0) -> list[dict[str, Any]]:
        records = scan(self.settings, self.topics.runs, stall_s=60.0)
        return [loads(record.value) for record in records if record.value is not None and record.at_ms >= since_ms]

    def facts(self, until_ms: int) -> Facts:
        """What the checker is told: the schedules up to `until_ms`, and what the history claims."""
        left_out, not_counted = [], []
        for event in self.history():
            task, kind = event["task"], event["kind"]
            if kind == "missed":
                first, last = parse_rfc3339(event["first"]), parse_rfc3339(event["last"])
                left_out.append(LeftOut(task, first, last, event["cause"]))
            elif kind == "skipped" and "slot" in event:
                slot = parse_rfc3339(event["slot"])
                left_out.append(LeftOut(task, slot, slot, event["cause"]))
            elif kind in ENDED and kind != "succeeded" and event.get("epoch") is not None:
                not_counted.append((task, event["epoch"]))
        timetables = tuple(
            Timetable(task, step, until_ms)
            for task, step in self.schedules.items()
            if until_ms >= self.defined_ms + step
        )
        return Facts(timetables, tuple(left_out), tuple(not_counted))

    def unsettled(self, until_ms: int) -> list[str]:
        """Tasks whose last slot up to `until_ms` is neither done nor left out yet, as far as history goes."""
        newest: dict[str, int] = {}
        for event in self.history():
            over = event["kind"] in ENDED and "retry_at" not in event
            moment = event.get("last") if event["kind"] == "missed" else event.get("slot")
            if moment is not None and (over or event["kind"] in ("missed", "skipped")):
                task = event["task"]
                newest[task] = max(newest.get(task, 0), parse_rfc3339(moment))
        due = {task: until_ms // step * step for task, step in self.schedules.items()}
        return [task for task, slot in due.items() if slot > self.defined_ms and newest.get(task, 0) < slot]

    def verify(self) -> tuple[int, dict[str, Any]]:
        """`fencepost verify`: its exit code and what it says."""
        command = [sys.executable, "-m", "fencepost.cli.main", "verify", "--json"]
        command += ["--bootstrap", self.settings.bootstrap, "--namespace", self.settings.namespace]
        env = {key: value for key, value in os.environ.items() if not key.startswith(ENV_PREFIX)}
        env |= {"PYTHONPATH": str(ROOT / "streams")}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env=env, cwd=self.folder, check=False
        )
        try:
            said = json.loads(done.stdout)
        except ValueError:
            said = {"output": done.stdout[-2000:], "errors": done.stderr[-2000:]}
        return done.returncode, said


def _lives(process: psutil.Process) -> bool:
    """This very process, and not as a zombie that somebody else has to reap."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

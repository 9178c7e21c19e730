"""What happens in the demo, act by act. Every step waits for what it needs to see, and fails if it does not come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.markup import escape

from fencepost.cli.owned import read_owners
from fencepost.client import Client
from fencepost.demo.crew import STOP_LIMIT_S, Crew
from fencepost.demo.show import Show
from fencepost.demo.watch import DemoFailed, Run, Watch
from fencepost.demo.work import INTERVALS_MS, PARTITIONS, Raw, Shop, one_per_partition, read_tasks, write_task_file
from fencepost.kafka.admin import init
from fencepost.kafka.scan import scan
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.wire.worker_info import decode_worker_info

START_LIMIT_S = 40.0
TAKEOVER_LIMIT_S = 25.0
ORDER_S = 5.0
MID_RUN_S = 1.2  # how long orders have been at work when a fault strikes: long enough for a checkpoint
FROZEN_FOR_S = 6.0  # the lease of the profile is 3 s


@dataclass(frozen=True, slots=True)
class Takeover:
    """Seconds from the fault to the first line that the next owner's run wrote."""

    fault: str
    worker: str
    kind: str  # "interrupted run" or "waiting task"
    task: str
    epoch: int
    by: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Fault:
    """A moment for the picture: wall clock in ms."""

    letter: str
    text: str
    at_ms: int


@dataclass(slots=True)
class Story:
    """The demo's cast and what was written down on the way."""

    settings: Settings
    folder: Path
    show: Show
    crew: Crew
    shop: Shop
    orders: dict[int, str] = field(default_factory=lambda: one_per_partition("order"))
    parcels: dict[int, str] = field(default_factory=lambda: one_per_partition("parcel"))
    names: dict[int, str] = field(default_factory=dict)  # process ID -> name in the demo
    workers: dict[str, str] = field(default_factory=dict)  # name in Kafka -> name in the demo
    takeovers: list[Takeover] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    began_ms: int = 0

    # --- who is who ----------------------------------------------------------------------------------------------

    def start_workers(self, *names: str) -> None:
        for name in names:
            self.names[self.crew.start(name)] = name

    def name_of(self, worker: str) -> str:
        """The demo's name for a worker, or for the lane of one, as Kafka knows it."""
        worker = worker.partition("/")[0]
        if worker not in self.workers:
            for record in scan(self.settings, Topics(self.settings.namespace).workers):
                info = decode_worker_info(record.value or b"")
                if info.pid in self.names:
                    self.workers[info.worker] = self.names[info.pid]
        return self.workers.get(worker, worker)

    def _status_of(self, name: str) -> str | None:
        """What the worker last said of itself."""
        status = None
        for record in scan(self.settings, Topics(self.settings.namespace).workers):
            info = decode_worker_info(record.value or b"")
            status = info.status if self.names.get(info.pid) == name else status
        return status

    def holders(self) -> dict[int, str]:
        """By partition: the worker that holds it."""
        fences = read_owners(self.settings).fences
        return {number: self.name_of(fence.worker) for number, fence in fences.items() if not fence.released}

    def held_by(self, worker: str) -> list[int]:
        return sorted(number for number, name in self.holders().items() if name == worker)

    def all_hold(self, workers: Iterable[str]) -> bool:
        holders = self.holders()
        return len(holders) == PARTITIONS and set(holders.values()) == set(workers)

    # --- the acts ------------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Topics, tasks, workers."""
        report = init(self.settings, PARTITIONS)
        self.show.done(
            f"[bold]init[/]: {len(report.created)} topics, {PARTITIONS} partitions, {report.info.group_protocol} group "
            f"protocol; session {self.settings.session_timeout_s:g} s, lease {self.settings.lease_ttl_s:g} s"
        )
        self.start_workers("ada", "ben", "cleo")
        self.show.line(f"starting three workers: {', '.join(map(self.show.worker, ('ada', 'ben', 'cleo')))}")
        tasks = read_tasks(write_task_file(self.folder, self.crew.witness))
        with Client(self.settings) as client:
            client.apply(tasks)
        self.began_ms = _now_ms()
        self.show.done(
            "[bold]apply[/] tasks.toml: [bold]pulse[/] every 2 s, [bold]report[/] on cron * * * * *, "
            "[bold]backup[/] a command every 5 s; [bold]order/*[/] and [bold]parcel/*[/] come from the app"
        )

    def all_at_work(self, watch: Watch) -> None:
        self._until_held(watch, ("ada", "ben", "cleo"))
        self._say_who_holds_what()
        watch.until(lambda: watch.last_epoch("pulse") > 0, TAKEOVER_LIMIT_S, "the first run of pulse")
        self.show.done(
            f"the first slot of [bold]pulse[/] runs, on {self.show.worker(watch.of_task('pulse')[0].worker)}"
        )

    def killed(self, watch: Watch) -> None:
        """SIGKILL in mid-run."""
        self.show.act("1 · SIGKILL in mid-run")
        raw = self._orders_at_work(watch)
        self.show.line(f"a plain producer sent, among others: [bold]{escape(raw.sent.topic)}[/] {_place(raw)}")
        self.show.line(f"  key [bold]{escape(raw.key)}[/]  value [bold]{escape(raw.value.decode())}[/]  no headers")
        self._strike(watch, "kill", "K", "ada", self.crew.kill)

    def frozen(self, watch: Watch) -> None:
        """SIGSTOP past the lease, then SIGCONT."""
        self.show.act("2 · SIGSTOP past the lease, then SIGCONT")
        self._orders_at_work(watch)
        at_ns, victims = self._strike(watch, "freeze", "F", "ben", self.crew.freeze)
        for run in victims:
            silent_s = (watch.beats[run.task, run.epoch].last_ns - at_ns) / 1e9
            self.show.done(
                f"the guard beside frozen {self.show.worker('ben')} ended [bold]{run.task}[/] epoch {run.epoch}: "
                f"its last line was written {silent_s:.2f} s after the freeze"
            )
        frozen_until_ns = at_ns + int(FROZEN_FOR_S * 1e9)
        watch.until(lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= frozen_until_ns, 60, "time")
        self.crew.thaw("ben")
        self._note_fault("C", "ben is woken")
        self.show.strike(f"SIGCONT: {self.show.worker('ben')} wakes up and believes it is still the owner")
        self._until_held(watch, ("ben", "cleo"))
        late = [run for run in victims if watch.beats[run.task, run.epoch].last_ns > frozen_until_ns]
        if late:
            raise DemoFailed(f"{late[0].task} epoch {late[0].epoch} wrote after its worker woke up")
        self.show.done(
            f"{self.show.worker('ben')} found itself fenced, its runs wrote nothing more, and it joined again"
        )
        self._say_who_holds_what()

    def stopped(self, watch: Watch) -> None:
        """SIGTERM; then a fourth worker."""
        self.show.act("3 · SIGTERM, and a fourth worker")
        self._orders_at_work(watch)
        held = self.held_by("cleo")
        running = [run for run in watch.open_runs("order/") if run.worker == "cleo"]
        self._note_fault("T", "cleo is told to stop")
        at_ns = self.crew.ask_to_stop("cleo")
        self.show.strike(f"SIGTERM to {self.show.worker('cleo')}, which has {len(running)} orders at work")
        watch.until(lambda: self._status_of("cleo") == "draining", TAKEOVER_LIMIT_S, "cleo draining")
        known = self._epochs(watch, held)
        waiting = self._send_parcels(held)
        self.show.line(f"new triggers for tasks of {self.show.worker('cleo')}: {', '.join(waiting)}")
        watch.until(lambda: self.crew.exit_code("cleo") is not None, STOP_LIMIT_S + 20, "the end of cleo")
        gone_s = (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - at_ns) / 1e9
        watch.until(lambda: all(run.outcome for run in running), TAKEOVER_LIMIT_S, "the ends of cleo's runs")
        succeeded = sum(run.outcome == "succeeded" for run in running)
        code = self.crew.exit_code("cleo")
        if code != 0 or succeeded != len(running):
            raise DemoFailed(f"cleo ended with exit code {code}, {succeeded} of its {len(running)} runs succeeded")
        self.show.done(
            f"{self.show.worker('cleo')} let its {succeeded} orders finish, gave its partitions back and left after "
            f"{gone_s:.1f} s, exit code 0"
        )
        silent_ns = max((watch.beats[run.task, run.epoch].last_ns for run in running), default=at_ns)
        self._await_waiting(watch, "stop", "cleo", silent_ns, known)
        self.start_workers("dora")
        self.show.line(f"starting {self.show.worker('dora')}")
        self._until_held(watch, ("ben", "dora"))
        self._say_who_holds_what()
        self._orders_at_work(watch, {number: self.orders[number] for number in self.held_by("dora")})
        self.show.done(f"{self.show.worker('dora')} works")

    def wind_up(self, watch: Watch) -> dict[str, int]:
        """Let everything end. Returns, by scheduled task, up to which time (ms) its slots must be accounted for."""
        self.show.act("4 · The proof")
        if not any(run.outcome == "succeeded" for run in watch.of_task("report")):
            left_s = 60 - time.time() % 60
            self.show.line(f"the cron task has its next slot in {left_s:.0f} s; waiting for it")
        watch.until(
            lambda: any(run.outcome == "succeeded" for run in watch.of_task("report")), 75, "a run of the cron task"
        )
        watch.until(lambda: not watch.open_runs("order/"), 30, "the ends of the orders")
        until = {task: _now_ms() for task in INTERVALS_MS}
        watch.until(lambda: all(_accounted(watch, task, at_ms) for task, at_ms in until.items()), 30, "the last slots")
        left = self.crew.end()
        if left:
            raise DemoFailed("; ".join(left))
        watch.until(lambda: not watch.open_runs(), 10, "the ends of the last runs")
        runs = len(watch.runs)
        self.show.done(f"all workers have ended, nothing of them is left; {runs} runs of {_tasks(watch)} tasks")
        return until

    # --- steps ---------------------------------------------------------------------------------------------------

    def _until_held(self, watch: Watch, workers: tuple[str, ...]) -> None:
        names = ", ".join(workers)
        watch.until(lambda: self.all_hold(workers), START_LIMIT_S, f"partitions held by {names}")

    def _say_who_holds_what(self) -> None:
        by_worker: dict[str, list[int]] = {}
        for number, name in sorted(self.holders().items()):
            by_worker.setdefault(name, []).append(number)
        parts = [f"{self.show.worker(name)} {', '.join(map(str, numbers))}" for name, numbers in by_worker.items()]
        self.show.done(f"partitions: {' · '.join(parts)}")

    def _orders_at_work(self, watch: Watch, orders: dict[int, str] | None = None) -> Raw:
        """Trigger an order on each partition and wait until all of them write."""
        tasks = list((orders or self.orders).values())
        watch.until(lambda: not watch.open_runs("order/"), 30, "the ends of earlier orders")
        before = {task: watch.last_epoch(task) for task in tasks}
        sent = self.shop.send(tasks, {"payload": {"seconds": ORDER_S}})
        watch.until(
            lambda: all(
                watch.last_epoch(task) > before[task] and watch.alive(task) and watch.wrote_for_s(task) >= MID_RUN_S
                for task in tasks
            ),
            TAKEOVER_LIMIT_S,
            "an order at work on every partition",
        )
        self.show.done(f"{len(tasks)} orders are at work, one on each partition")
        return sent[0]

    def _send_parcels(self, numbers: list[int]) -> list[str]:
        tasks = [self.parcels[number] for number in numbers]
        self.shop.send(tasks, {"payload": {"express": True}})
        return tasks

    def _strike(
        self, watch: Watch, fault: str, letter: str, worker: str, deed: Callable[[str], int]
    ) -> tuple[int, list[Run]]:
        """Do it, then wait until everything the worker had is taken over. Returns when, and what was interrupted."""
        held = self.held_by(worker)
        watch.update()
        victims = [run for number in held if (run := watch.alive(self.orders[number], worker)) is not None]
        if not victims:
            raise DemoFailed(f"{worker} has no run to interrupt")
        self._note_fault(letter, f"{worker}: {fault}")
        at_ns = deed(worker)
        names = ", ".join(f"[bold]{run.task}[/] (epoch {run.epoch})" for run in victims)
        known = self._epochs(watch, held)
        signal = {"kill": "SIGKILL", "freeze": "SIGSTOP"}[fault]
        self.show.strike(f"{signal} to {self.show.worker(worker)} while it runs {names}")
        waiting = self._send_parcels(held)
        self.show.line(f"new triggers for tasks of {self.show.worker(worker)}: {', '.join(waiting)}")
        self._await_waiting(watch, fault, worker, at_ns, known)
        interrupted = []
        for run in victims:
            following = (run.task, run.epoch + 1)
            what = f"the next epoch of {run.task}"
            watch.until(
                lambda run=run, wanted=following: watch.both_tell(*wanted) or run.outcome == "succeeded",  # type: ignore[misc]
                TAKEOVER_LIMIT_S,
                what,
            )
            if run.outcome != "succeeded":  # a run at its very end may have beaten the signal
                interrupted.append(run)
                self._took_over(watch, fault, worker, "interrupted run", *following, at_ns)
        if not interrupted:
            raise DemoFailed(f"the {fault} of {worker} interrupted nothing: its runs had just ended")
        return at_ns, interrupted

    def _epochs(self, watch: Watch, numbers: list[int]) -> dict[str, int]:
        """The last epoch of each partition's parcel."""
        return {self.parcels[number]: watch.last_epoch(self.parcels[number]) for number in numbers}

    def _await_waiting(self, watch: Watch, fault: str, worker: str, at_ns: int, known: dict[str, int]) -> None:
        for task, epoch in known.items():
            following = (task, epoch + 1)
            what = f"a run of {task} after the {fault} of {worker}"
            watch.until(lambda wanted=following: watch.both_tell(*wanted), TAKEOVER_LIMIT_S, what)  # type: ignore[misc]
            self._took_over(watch, fault, worker, "waiting task", *following, at_ns)

    def _took_over(self, watch: Watch, fault: str, worker: str, kind: str, task: str, epoch: int, at_ns: int) -> None:
        seconds = (watch.beats[task, epoch].first_ns - at_ns) / 1e9
        by = watch.runs[task, epoch].worker
        if by == worker:
            self.show.done(f"{kind} [bold]{task}[/]: {self.show.worker(by)} still started it itself")
            return
        self.takeovers.append(Takeover(fault, worker, kind, task, epoch, by, seconds))
        self.show.done(f"{kind} [bold]{task}[/]: epoch {epoch} began on {self.show.worker(by)} after {seconds:.2f} s")

    def _note_fault(self, letter: str, text: str) -> None:
        self.faults.append(Fault(letter, text, _now_ms()))


def _accounted(watch: Watch, task: str, until_ms: int) -> bool:
    """Whether the history tells what became of the last slot up to then."""
    last = until_ms - until_ms % INTERVALS_MS[task]
    told = any(item.task == task and item.first_ms <= last <= item.last_ms for item in watch.left_out)
    return told or any(run.slot_ms == last and run.outcome == "succeeded" for run in watch.of_task(task))


def _tasks(watch: Watch) -> int:
    return len({run.task for run in watch.runs.values()})


def _place(raw: Raw) -> str:
    return f"partition {raw.sent.partition} offset {raw.sent.offset}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""Faults under a seed: rounds in arenas, every one logged; at each arena's end the judge, and `fencepost verify`.

A round: faults are chosen and prepared, injected one after the other within half a second, last until others have taken
over (or for a moment), and are healed; then every partition must serve again and every worker must have work. One round
holds one fault of a broker or of the group, or up to three of workers and runs; one worker is always left alone.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fencepost.codec import dumps
from fencepost.core.times import parse_rfc3339
from fencepost.kafka.errors import KafkaProblem
from tests.faults.arena import PARTITIONS, Arena, Setting, Worker
from tests.faults.checker import BEGIN, END, Kind, Line, Report, check_folder, summary
from tests.faults.fault import Fault, Target, Unsuitable
from tests.faults.kinds import ALL, Deck

ROUNDS = 12  # of one arena: its history is then judged, and the next begins
TOGETHER = 3
RESTLESS = 0.25  # the share of rounds that begin while partitions may still be moving
SETTLE_LIMIT_S = 150.0
LOOK_S = 0.02


@dataclass(slots=True)
class Entry:
    """One fault, as it went."""

    kind: str
    what: str
    at_ms: int
    lasted_s: float = 0.0
    lasts: bool = False
    settled: bool = True  # no partition was on its way from one worker to another
    waiting_s: list[float] = field(default_factory=list)  # until each task that waited began
    interrupted_s: list[float] = field(default_factory=list)  # until each interrupted run's successor began
    runs_on: int = 0  # long runs that were on when a broker was hit
    runs_ended: int = 0  # of these: interrupted until all had recovered
    overlaps: int = 0
    slots_wrong: int = 0
    problem: str | None = None


@dataclass(slots=True)
class Round:
    arena: int
    number: int
    began_ms: int
    ended_ms: int = 0
    entries: list[Entry] = field(default_factory=list)
    recovered: bool = False


@dataclass(slots=True)
class ArenaResult:
    """What the judges said of one arena."""

    number: int
    setting: dict[str, Any]
    rounds: list[Round] = field(default_factory=list)
    cannot: dict[str, str] = field(default_factory=dict)  # kinds of faults it could not do, and why
    violations: list[str] = field(default_factory=list)
    judged: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    verify_code: int | None = None
    verify: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # anything else: a worker's unexpected end, no recovery
    guards_lost: int = 0  # guards that ended themselves without a fault of theirs: late, on a machine too busy
    unsuitable: int = 0
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return not self.violations and self.verify_code == 0 and not self.problems


class Waiting:
    """Tasks that are asked for at the moment of a fault, and when each began. Works in a thread of its own."""

    def __init__(self, arena: Arena, partitions: list[int], since_ns: int, limit_s: float) -> None:
        self._arena, self._partitions, self._since_ns = arena, partitions, since_ns
        self._until_s = time.monotonic() + limit_s
        self.seconds: dict[int, float] = {}
        self.missing: list[int] = list(partitions)
        self._thread = threading.Thread(target=self._work, name="waiting")
        self._thread.start()

    def _work(self) -> None:
        tasks: dict[str, int] = {}
        while self._partitions and not tasks and time.monotonic() < self._until_s:
            try:
                tasks = self._arena.trigger("wait", self._partitions)
            except KafkaProblem:
                continue  # nobody answers yet: a task that waits
        while self.missing and time.monotonic() < self._until_s:
            for task, number in tasks.items():
                if number in self.missing and (began_ns := first_begin(self._arena.lines(task), self._since_ns)):
                    self.seconds[number] = (began_ns - self._since_ns) / 1e9
                    self.missing.remove(number)
            time.sleep(LOOK_S)

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()


def first_begin(lines: list[Line], since_ns: int) -> int | None:
    return next((line.at_ns for line in lines if line.what == BEGIN and line.at_ns > since_ns), None)


class Campaign:
    """`run` ends by itself when `faults` were injected. `say` prints one line."""

    def __init__(
        self,
        faults: int,
        seed: int,
        setting: Callable[[int, random.Random], Setting],
        say: Callable[[str], None],
        only: tuple[str, ...] = (),
        last: bool = True,
        rounds: int = ROUNDS,
        keep: Path | None = None,
        until_s: float | None = None,
    ) -> None:
        self._wanted, self._seed, self._setting, self._say = faults, seed, setting, say
        self._dice = random.Random(seed)
        self._deck = Deck(self._dice, only)
        self._last = last
        self._rounds = rounds
        self._keep = keep
        self._until_s = until_s
        self.arenas: list[ArenaResult] = []
        self.done = 0

    @property
    def holds(self) -> bool:
        return bool(self.arenas) and all(arena.holds for arena in self.arenas)

    def run(self) -> None:
        while self.done < self._wanted and not self._late:
            number = len(self.arenas) + 1
            folder = Path(tempfile.mkdtemp(prefix="fencepost-faults-"))
            result = ArenaResult(number, {})
            self.arenas.append(result)
            try:
                self._arena(result, folder)
            finally:
                if self._keep is not None and not result.holds:
                    self._save(folder, result)
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def _late(self) -> bool:
        return self._until_s is not None and time.time() > self._until_s

    def _save(self, folder: Path, result: ArenaResult) -> None:
        """What somebody will want to look at: witness lines, workers' and brokers' logs."""
        assert self._keep is not None
        place = self._keep / f"seed-{self._seed}-arena-{result.number}"
        shutil.copytree(folder, place, ignore=shutil.ignore_patterns("data", "workers"), dirs_exist_ok=True)
        self._say(f"  kept in {place}")

    # -- one arena --------------------------------------------------------------------------------------------------

    def _arena(self, result: ArenaResult, folder: Path) -> None:
        setting = self._setting(result.number, self._dice)
        result.setting = asdict(setting)
        began_s = time.monotonic()
        shown = ", ".join(f"{name} {value}" for name, value in result.setting.items())
        self._say(f"arena {result.number}: {shown}")
        with Arena(folder / "arena", setting) as arena:
            result.cannot = cannot(arena)
            self._recover(arena, result)
            barren = 0
            while self.done < self._wanted and len(result.rounds) < self._rounds and barren < 3 and not self._late:
                if not self._round(arena, result):
                    barren += 1
            self._judge(arena, result)
            if self._last:
                self._end_of_namespace(arena, result)
        result.problems += arena.unexpected
        result.guards_lost = len(arena.guards_lost)
        result.seconds = round(time.monotonic() - began_s, 1)
        verdict = "holds" if result.holds else "DOES NOT HOLD"
        self._say(f"arena {result.number}: {verdict} after {result.seconds:.0f} s; {result.judged}")
        for text in [*result.violations[:20], *result.problems]:
            self._say(f"  ! {text}")

    def _round(self, arena: Arena, result: ArenaResult) -> bool:
        """Whether a fault was injected."""
        faults = self._prepared(arena, result)
        if not faults:
            return False
        known = len(result.problems)
        this = Round(result.number, len(result.rounds) + 1, int(time.time() * 1000))
        result.rounds.append(this)
        owners = self._owners
        on = arena.live()
        waits: list[tuple[Entry, Fault, Waiting]] = []
        for place, fault in enumerate(faults):
            if place:
                time.sleep(self._dice.uniform(0.0, 0.25))
            mine = [number for number, name in owners.items() if fault.victim is None or name == fault.victim.name]
            since_ns = time.time_ns()
            entry = Entry(type(fault).name, str(fault), since_ns // 1_000_000, lasts=fault.lasts, settled=self._settled)
            this.entries.append(entry)
            timed = fault.target is Target.BROKER or fault.lasts
            try:
                fault.inject()
            except Unsuitable as problem:
                entry.problem = f"not injected: {problem}"
                result.unsuitable += 1
                continue
            entry.what = str(fault)
            limit_s = arena.setting.takeover_limit_s
            waits.append((entry, fault, Waiting(arena, mine if timed else [], since_ns, limit_s)))
            self.done += 1
        self._last_out(arena, waits)
        self._heal(arena, faults, this, result)
        for entry, _fault, waiting in waits:
            waiting.join()
            entry.waiting_s = [round(seconds, 3) for seconds in waiting.seconds.values()]
            if waiting.missing:
                result.problems.append(f"{entry.what}: tasks on {waiting.missing} did not begin in time")
        this.recovered = self._recover(arena, result)
        this.ended_ms = int(time.time() * 1000)
        self._interrupted(arena, this, faults, on)
        for entry, fault, _waiting in waits:
            if (problem := fault.check()) is not None:
                entry.problem = problem
                result.problems.append(problem)
        for entry in this.entries:
            self._say(f"  {self.done:4d} {entry_line(entry)}")
        for text in result.problems[known:]:
            self._say(f"     ! {text}")
        return bool(waits)

    def _prepared(self, arena: Arena, result: ArenaResult) -> list[Fault]:
        """Faults on different victims; one worker is left alone."""
        kinds = self._deck.draw(arena, TOGETHER)
        free = [worker for worker in arena.workers.values() if worker.lives]
        if not free:  # all have ended: it is told as a problem, and there is nobody to do anything to
            return []
        self._dice.shuffle(free)
        spared, faults = free.pop(), []
        for kind in kinds:
            victim: Worker | None = None
            if kind.target is Target.WORKER:
                if not free:
                    continue
                victim = free.pop()
            elif kind.target is Target.RUN:
                victim = spared  # it may lose a run, not itself
            fault = kind(arena, self._dice, victim)
            try:
                fault.prepare()
            except Unsuitable:
                result.unsuitable += 1
                continue
            faults.append(fault)
        return faults

    def _last_out(self, arena: Arena, waits: list[tuple[Entry, Fault, Waiting]]) -> None:
        """As long as the faults last: until others have taken over, or for a moment."""
        brief_s = max((fault.brief_s for _, fault, _ in waits if not fault.lasts), default=0.0)
        time.sleep(brief_s)
        lasting = [waiting for _, fault, waiting in waits if fault.lasts]
        until_s = time.monotonic() + arena.setting.takeover_limit_s
        while not all(waiting.done for waiting in lasting) and time.monotonic() < until_s:
            time.sleep(LOOK_S)
        if lasting:  # interrupted runs follow a little later than tasks that waited
            time.sleep(max(0.0, arena.setting.lease_s - arena.setting.session_s) + 1.5)

    def _heal(self, arena: Arena, faults: list[Fault], this: Round, result: ArenaResult) -> None:
        for fault, entry in zip(faults, this.entries, strict=True):
            if entry.problem is None:
                fault.heal()
                entry.lasted_s = round(time.time() - entry.at_ms / 1000, 3)
        arena.revive()

    def _interrupted(self, arena: Arena, this: Round, faults: list[Fault], on: dict[str, Line]) -> None:
        """When runs that were on were taken up again; how many a broker's fault ended."""
        for fault, entry in zip(faults, this.entries, strict=True):
            if fault.target is Target.BROKER:
                entry.runs_on = len(on)
                entry.runs_ended = interruptions(arena, on, entry.at_ms, this.ended_ms)
            elif fault.lasts:
                for task, before in on.items():
                    if before.worker != fault.worker.name:
                        continue
                    lines = arena.lines(task)
                    if any(line.epoch == before.epoch and line.what == END for line in lines):
                        continue  # it ended by itself
                    again = next((line.at_ns for line in lines if line.epoch > before.epoch), None)
                    if again is not None and again / 1e6 < this.ended_ms:
                        entry.interrupted_s.append(round((again / 1e6 - entry.at_ms) / 1000, 3))

    # -- recovering -------------------------------------------------------------------------------------------------

    def _recover(self, arena: Arena, result: ArenaResult) -> bool:
        """Until every partition serves and every worker has some. Notes who owns what."""
        until_s = time.monotonic() + arena.setting.takeover_limit_s + 30
        restless = self._dice.random() < RESTLESS
        names: set[str] = set()
        owners: dict[int, str] = {}
        while time.monotonic() < until_s:
            arena.revive()
            names = {worker.name for worker in arena.workers.values()}
            owners = self._survey(arena, until_s)
            if len(owners) == PARTITIONS and names <= set(owners.values()):
                fewest = min(Counter(owners.values()).values())
                self._owners, self._settled = owners, fewest >= PARTITIONS // len(names)
                if self._settled or restless:
                    return True
            time.sleep(0.3)  # between two surveys
        self._owners, self._settled = owners, False
        if len(owners) == PARTITIONS and names <= set(owners.values()):
            return True  # all work, though not in equal shares
        idle = sorted(names - set(owners.values()))
        result.problems.append(f"not recovered: {len(owners)} of {PARTITIONS} partitions serve; without work: {idle}")
        return False

    def _survey(self, arena: Arena, until_s: float) -> dict[int, str]:
        """By partition, the worker that runs a probe there now."""
        since_ns = time.time_ns()
        tasks: dict[str, int] = {}
        while not tasks and time.monotonic() < until_s:
            try:
                tasks = arena.trigger("probe", range(PARTITIONS))
            except KafkaProblem:
                continue  # asked again until the limit
        owners: dict[int, str] = {}
        while len(owners) < len(tasks) and time.monotonic() < until_s:
            for task, number in tasks.items():
                line = arena.last_line(task)
                if number not in owners and line is not None and line.at_ns > since_ns:
                    owners[number] = line.worker
            time.sleep(LOOK_S)
        return owners

    # -- judging ----------------------------------------------------------------------------------------------------

    def _judge(self, arena: Arena, result: ArenaResult) -> None:
        until_ms = int(time.time() * 1000)
        give_up_s = time.monotonic() + SETTLE_LIMIT_S
        while (waiting := arena.unsettled(until_ms)) and time.monotonic() < give_up_s:
            time.sleep(2.0)  # between two looks
        if waiting:
            result.problems.append(f"slots still open after {SETTLE_LIMIT_S:g} s: {', '.join(waiting[:10])}")
        while True:
            facts = arena.facts(until_ms)
            report = check_folder(arena.witness, facts)
            # A slot may still be run while later ones were left out already; one that is lost stays so.
            if not report.count(Kind.LOST) or time.monotonic() > give_up_s:
                break
            time.sleep(2.0)  # between two looks
        with (arena.folder / "history.jsonl").open("wb") as out:
            out.writelines(dumps(event) + b"\n" for event in arena.history())
        (arena.folder / "facts.json").write_text(json.dumps(facts.to_json()))
        note(report, result)
        result.verify_code, result.verify = arena.verify()
        if self._keep is not None and not (report.holds and result.verify_code == 0):
            for node in arena.cluster.node_ids:  # a disk of its own, gone when the arena ends
                shutil.copytree(arena.cluster.data_dir(node), arena.folder / f"log-{node}", dirs_exist_ok=True)
        if result.verify_code != 0:
            result.problems.append(f"fencepost verify ended with {result.verify_code}: {str(result.verify)[:1500]}")

    def _end_of_namespace(self, arena: Arena, result: ArenaResult) -> None:
        """Faults after which nothing goes on: no overlap in what the runs wrote until then."""
        for kind in self._deck.last():
            if kind.why_not(arena) is not None or self.done >= self._wanted:
                continue
            fault = kind(arena, self._dice, None)
            this = Round(result.number, len(result.rounds) + 1, int(time.time() * 1000))
            entry = Entry(kind.name, str(fault), this.began_ms)
            this.entries.append(entry)
            result.rounds.append(this)
            fault.inject()
            self.done += 1
            time.sleep(2 * arena.setting.lease_s)  # as long as a stale owner could do harm
            fault.heal()
            entry.lasted_s = round(time.time() - this.began_ms / 1000, 3)
            this.ended_ms = int(time.time() * 1000)
            if (problem := fault.check()) is not None:
                entry.problem = problem
                result.problems.append(problem)
            report = check_folder(arena.witness)
            fresh = [text for text in map(str, report.violations) if text not in result.violations]
            result.violations += fresh
            entry.overlaps += len(fresh)
            self._say(f"  {self.done:4d} {entry_line(entry)}")


def interruptions(arena: Arena, on: dict[str, Line], since_ms: int, until_ms: int) -> int:
    """How many of these runs the history has as interrupted in this time."""
    epochs = {(task, line.epoch) for task, line in on.items()}
    return sum(
        event["kind"] == "interrupted"
        and (event["task"], event.get("epoch")) in epochs
        and since_ms <= parse_rfc3339(event["at"]) <= until_ms
        for event in arena.history()
    )


def note(report: Report, result: ArenaResult) -> None:
    """Put what the judge found to the faults of the round in which it happened."""
    result.judged = summary(report)
    result.violations = [str(violation) for violation in report.violations]
    result.counts = {
        "lines": report.lines,
        "runs": report.runs,
        "slots": report.slots,
        "done": report.slots_done,
        "left_out": report.slots_left_out,
        "repeated": report.slots_repeated,
    }
    for violation in report.violations:
        at_ms = min(violation.at_ns, default=0) // 1_000_000
        guilty = [this for this in result.rounds if this.began_ms <= at_ms] or result.rounds
        for entry in guilty[-1].entries if guilty else ():
            if violation.kind in (Kind.OVERLAP, Kind.STALE, Kind.TWICE):
                entry.overlaps += 1
            else:
                entry.slots_wrong += 1


def cannot(arena: Arena) -> dict[str, str]:
    """The kinds of faults this arena cannot do, each with the reason."""
    return {kind.name: reason for kind in ALL if (reason := kind.why_not(arena)) is not None}


def entry_line(entry: Entry) -> str:
    parts = [entry.what, f"{entry.lasted_s:.1f} s"]
    if entry.waiting_s:
        parts.append(f"waiting tasks {max(entry.waiting_s):.2f} s")
    if entry.interrupted_s:
        parts.append(f"interrupted runs {max(entry.interrupted_s):.2f} s")
    if entry.runs_on:
        parts.append(f"{entry.runs_ended} of {entry.runs_on} long runs ended")
    if entry.problem:
        parts.append(f"PROBLEM: {entry.problem}")
    return "; ".join(parts)

"""Many histories, on several processes, with what they came to."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.simulation.history import Outcome, run
from tests.simulation.install import installed
from tests.simulation.safeguards import SAFEGUARDS

CHUNK = 25
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """`count` histories from `first` on; `without`: the safeguard that is off."""

    first: int
    count: int
    theme: str | None = None
    without: str | None = None


@dataclass(slots=True)
class Tally:
    """What histories came to. `broken`: seed -> what was found."""

    histories: int = 0
    runs: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    themes: Counter[str] = field(default_factory=Counter)
    broken: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def count(self, outcome: Outcome) -> None:
        self.histories += 1
        self.runs += outcome.runs
        self.steps += outcome.steps
        self.virtual_s += outcome.virtual_s
        self.themes[outcome.plan.theme] += 1
        if not outcome.holds:
            self.broken[outcome.seed] = tuple(f"{found.kind}: {found.text}" for found in outcome.violations)

    def add(self, other: Tally) -> None:
        self.histories += other.histories
        self.runs += other.runs
        self.steps += other.steps
        self.virtual_s += other.virtual_s
        self.themes += other.themes
        self.broken |= other.broken


def play(chunk: Chunk) -> Tally:
    """All histories of a chunk, one after the other."""
    tally = Tally()
    # A history's own objects are few and short-lived: the collector need not look often, nor at what was imported.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    with ExitStack() as held:
        held.enter_context(installed())
        if chunk.without is not None:
            held.enter_context(SAFEGUARDS[chunk.without].off())
        for seed in range(chunk.first, chunk.first + chunk.count):
            tally.count(run(seed, chunk.theme))
    return tally


def _chunks(first: int, histories: int, theme: str | None, without: str | None) -> Iterator[Chunk]:
    for begin in range(first, first + histories, CHUNK):
        yield Chunk(begin, min(CHUNK, first + histories - begin), theme, without)


def campaign(
    first: int, histories: int, jobs: int, theme: str | None, without: str | None, say: Callable[[str], None]
) -> Tally:
    """Histories of the seeds from `first` on. `say` is told now and then how far it has got."""
    total = Tally()
    began_s = said_s = time.monotonic()
    # Fresh interpreters: what a parent has done before must not matter to any history.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for tally in pool.imap_unordered(play, _chunks(first, histories, theme, without)):
            total.add(tally)
            for seed, found in tally.broken.items():
                if len(total.broken) <= _SHOWN:
                    say(broken(seed, found, theme, without))
            now_s = time.monotonic()
            if now_s - said_s >= 10.0 or total.histories == histories:
                said_s = now_s
                rate = total.histories / (now_s - began_s)
                left_s = (histories - total.histories) / rate
                say(
                    f"{total.histories:,} of {histories:,} histories, {rate:.1f}/s, {left_s:.0f} s left; "
                    f"{total.runs:,} runs in {total.virtual_s / 3600:,.1f} h virtually; {len(total.broken)} broken"
                )
    return total


def broken(seed: int, found: tuple[str, ...], theme: str | None, without: str | None) -> str:
    """What was found, and the command that plays it again."""
    options = (f" --theme {theme}" if theme else "") + (f" --without {without}" if without else "")
    lines = [f"BROKEN seed {seed}; again: python -m tests.simulation --seed {seed}{options} --trace"]
    return "\n".join([*lines, *(f"  {line}" for line in found[:5])])

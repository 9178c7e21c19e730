"""Runs one case: Spin writes the checker, the C compiler builds it, it visits all states within the bounds.

A case that holds is searched depth first; one that breaks breadth first, so that its counterexample is a shortest one.
States are kept as hashes of 64 bits: two of millions that fall together would hide what follows one of them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.model.cases import HOLDS, Case

MODEL = Path(__file__).with_name("ownership.pml")
UNFINISHED = "no counterexample yet"
MAX_DEPTH = 5_000_000
_WORD = re.compile(r"/\* ([A-Z]+):")


class SpinMissing(Exception):
    """Spin or a C compiler is not installed."""


class ModelBroken(Exception):
    """The model, or the checker made of it, could not be built."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`found`: "holds", the word of the invariant that broke, or "no counterexample yet". `trace`: the steps to it."""

    case: Case
    found: str
    states: int
    seconds: float
    memory_mib: int
    trace: tuple[str, ...]

    @property
    def as_expected(self) -> bool:
        return self.found == self.case.expected


def need_tools() -> None:
    """Raises SpinMissing, with what to do."""
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        raise SpinMissing(f"{' and '.join(missing)} not found; on Debian: apt-get install spin gcc libc6-dev")


def check(case: Case, limit_s: float, memory_mib: int) -> Verdict:
    """Visit all states of the case, for `limit_s` and within `memory_mib`. Raises SpinMissing, ModelBroken."""
    need_tools()
    with tempfile.TemporaryDirectory(prefix="fencepost-model-") as name:
        folder = Path(name)
        macros = [f"-D{macro}={value}" for macro, value in case.macros]
        shutil.copy(MODEL, folder / "m.pml")
        _build(folder, macros, case.breaks, memory_mib)
        began = time.monotonic()
        command = ["timeout", "-s", "INT", f"{limit_s:g}", "./pan", f"-m{MAX_DEPTH}", "-w24"]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
        seconds = time.monotonic() - began
        states = _number(r"([\d.e+]+) states, stored", said)
        memory = _number(r"([\d.e+]+)\s+total actual memory usage", said)
        trace: tuple[str, ...] = ()
        if "assertion violated" in said:
            found, trace = _counterexample(folder, macros)
        elif states and "Search not completed" not in said and "max search depth too small" not in said:
            found = HOLDS
        else:
            found = UNFINISHED
        return Verdict(case, found, int(states), seconds, int(memory), trace)


def _build(folder: Path, macros: list[str], breadth_first: bool, memory_mib: int) -> None:
    said = _run(["spin", *macros, "-a", "m.pml"], folder)
    if not (folder / "pan.c").exists():
        raise ModelBroken(said)
    # One process: there are no orders of several to be left out, and none is treated unfairly.
    options = ["-DSAFETY", "-DNOREDUCE", "-DNOFAIR", "-DVECTORSZ=512", "-DHC4", f"-DMEMLIM={memory_mib}"]
    said = _run(["gcc", "-O2", "-w", *options, *(["-DBFS"] if breadth_first else []), "-o", "pan", "pan.c"], folder)
    if not (folder / "pan").exists():
        raise ModelBroken(said)


def _counterexample(folder: Path, macros: list[str]) -> tuple[str, tuple[str, ...]]:
    """The word at the assertion that broke, and what happened until then."""
    said = _run(["spin", *macros, "-t", "m.pml"], folder)
    line = re.search(r"m\.pml:(\d+), Error: assertion violated", said)
    if line is None:
        raise ModelBroken(said)
    word = _WORD.search(MODEL.read_text(encoding="utf-8").splitlines()[int(line[1]) - 1])
    if word is None:
        raise ModelBroken(f"the assertion in line {line[1]} has no word")
    steps = (text.strip() for text in said.splitlines())
    return word[1], tuple(
        text for text in steps if re.match(r"(lane \d|p is wanted|marker of|the |a transaction of|FAULT|--)", text)
    )


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    return float(found[1]) if found else 0.0


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr

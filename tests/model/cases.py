"""The cases of `cases.txt`: a configuration, a safeguard switched off or none, and what has to come out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.model.safeguards import SAFEGUARDS

FILE = Path(__file__).with_name("cases.txt")
HOLDS = "holds"
#: What the model asserts, by the word at the assertion.
INVARIANTS = ("OVERLAP", "TWICE", "EPOCHS", "FENCE", "RELEASED", "HISTORY", "DISTURBED", "PROGRESS")
SIZES = ("small", "whole")


@dataclass(frozen=True, slots=True)
class Case:
    """One run of the checker. `size` small: part of the tests; whole: of the campaign only."""

    name: str
    size: str
    expected: str
    off: str | None
    macros: tuple[tuple[str, int], ...]

    @property
    def breaks(self) -> bool:
        return self.expected != HOLDS


def parse(line: str) -> Case:
    """`name size expected off MACRO=n ...`; off is `-` or a safeguard. Raises ValueError."""
    name, size, expected, off, *rest = line.split()
    if size not in SIZES:
        raise ValueError(f"{name}: size {size!r} is none of {', '.join(SIZES)}")
    if expected not in (HOLDS, *INVARIANTS):
        raise ValueError(f"{name}: {expected!r} is none of {HOLDS}, {', '.join(INVARIANTS)}")
    if off != "-" and off not in SAFEGUARDS:
        raise ValueError(f"{name}: {off!r} is no safeguard; known are {', '.join(SAFEGUARDS)}")
    macros = {} if off == "-" else dict(SAFEGUARDS[off])
    for item in rest:
        macro, _, value = item.partition("=")
        if macro in macros:
            raise ValueError(f"{name}: {macro} is said twice")
        macros[macro] = int(value)
    return Case(name, size, expected, None if off == "-" else off, tuple(macros.items()))


def load() -> list[Case]:
    """All cases, in the order of the file. Raises ValueError."""
    lines = (line.partition("#")[0].strip() for line in FILE.read_text(encoding="utf-8").splitlines())
    cases = [parse(line) for line in lines if line]
    names = [case.name for case in cases]
    if len(set(names)) != len(names):
        raise ValueError(f"a case is there twice: {sorted(name for name in names if names.count(name) > 1)}")
    return cases

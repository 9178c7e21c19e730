"""Who may import what: the core stays pure, and each library has one place that knows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "streams" / "fencepost"

# What a pure function may need. Not here on purpose: clocks, randomness, threads, processes, files, sockets, logs.
PURE_STANDARD_LIBRARY = {
    "__future__", "abc", "base64", "bisect", "calendar", "collections", "contextlib", "copy", "dataclasses", "datetime",
    "decimal", "enum", "fnmatch", "fractions", "functools", "hashlib", "heapq", "itertools", "math", "operator", "re",
    "string", "struct", "textwrap", "types", "typing", "unicodedata", "zlib", "zoneinfo",
}  # fmt: skip

# Library → where it may be imported, as paths below streams/fencepost (a folder ends with "/").
ONE_PLACE = {
    "aiohttp": ("views/", "worker/guard/http_calls.py"),
    "aiokafka": ("views/",),
    "confluent_kafka": ("kafka/",),
    "croniter": ("core/schedule/cron_walk.py",),
    "faust": ("views/",),
    "holidays": ("core/schedule/holiday_dates.py",),
    "json": ("codec.py", "worker/guard/"),  # the guard is small: nothing but the standard library
    "mode": ("views/",),
    "orjson": ("codec.py",),
    "psycopg": ("fencing/postgres.py",),
    "sqlalchemy": ("fencing/sqlalchemy.py",),
    "sqlite3": ("audit/spill.py",),
    "yarl": ("worker/guard/http_calls.py",),
}
NOT_IN_THE_PACKAGE = {"pytest", "testcontainers", "hypothesis", "tests"}
CLOCK_CALLS = {"now", "utcnow", "today"}
IMPURE_BUILTINS = {"open", "print", "input", "exec", "eval", "__import__"}
# Writes the constructors of the hot path's records, as `dataclasses` does; nothing else may.
WRITES_CODE = "core/evolve.py"


def files(below: Path = PACKAGE) -> list[Path]:
    return sorted(below.rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything the file imports; relative imports are resolved."""
    package = ["fencepost", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield node.lineno, ".".join([*base, *(node.module or "").split(".")]).strip(".")


def allowed_builtins(path: Path) -> set[str]:
    return {"exec"} if path.relative_to(PACKAGE).as_posix() == WRITES_CODE else set()


def breaches_of_the_core(path: Path) -> list[str]:
    found = []
    for line, name in imports(path):
        root = name.partition(".")[0]
        allowed_here = str(path.relative_to(PACKAGE)) in ONE_PLACE.get(root, ())
        in_core = name == "fencepost.core" or name.startswith("fencepost.core.")
        if not (root in PURE_STANDARD_LIBRARY or in_core or allowed_here):
            found.append(f"{path.relative_to(PACKAGE)}:{line} imports {name}")
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in CLOCK_CALLS:
            found.append(f"{path.relative_to(PACKAGE)}:{node.lineno} reads a clock ({called.attr}())")
        if isinstance(called, ast.Name) and called.id in IMPURE_BUILTINS - allowed_builtins(path):
            found.append(f"{path.relative_to(PACKAGE)}:{node.lineno} calls {called.id}()")
    return found


def breaches_of_one_place(path: Path) -> list[str]:
    here = path.relative_to(PACKAGE).as_posix()
    found = []
    for line, name in imports(path):
        root = name.partition(".")[0]
        places = ONE_PLACE.get(root)
        if places is not None and not any(here == p or (p.endswith("/") and here.startswith(p)) for p in places):
            found.append(f"{here}:{line} imports {name}, which only {' and '.join(places)} may")
        if root in NOT_IN_THE_PACKAGE:
            found.append(f"{here}:{line} imports {name}, which the package may not")
    return found


def test_the_core_imports_only_itself_and_pure_modules_and_reads_no_clock() -> None:
    assert [b for path in files(PACKAGE / "core") for b in breaches_of_the_core(path)] == []


def test_each_library_is_imported_in_its_one_place_only() -> None:
    assert [b for path in files() for b in breaches_of_one_place(path)] == []


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("core/probe.py", "import time"),
        ("core/probe.py", "from random import random"),
        ("core/probe.py", "import confluent_kafka"),
        ("core/probe.py", "from ..kafka import lane"),
        ("core/probe.py", "from fencepost import codec"),
        ("core/probe.py", "import croniter"),
        ("core/probe.py", "from datetime import datetime\nx = datetime.now()"),
        ("core/probe.py", "open('f')"),
        ("worker/probe.py", "import confluent_kafka.admin"),
        ("worker/probe.py", "def f():\n    from orjson import loads"),
        ("kafka/probe.py", "import faust"),
        ("cli/probe.py", "import json"),
        ("fencing/probe.py", "from psycopg.errors import Error"),
        ("fencing/postgres.py", "import sqlalchemy"),
    ],
)
def test_a_breach_is_found(where: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    probe = tmp_path / where
    probe.parent.mkdir()
    probe.write_text(code)
    check = breaches_of_the_core if where.startswith("core/") else breaches_of_one_place
    assert len(check(probe)) == 1

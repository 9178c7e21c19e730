"""Runs what a page of documentation shows, from top to bottom, as somebody would who follows it.

- A block marked `<!-- file: NAME -->` becomes that file.
- A `console` block is run line by line. `  # → TEXT` behind a line: its output must hold TEXT. A line that ends in `&`
  goes on until the page is over. Everything must exit with 0, or with N where the line says `# → exit code N: TEXT`.
- A block marked `<!-- shown: REASON -->` is only looked at; what may be so marked is for the test to say.

Commands find a broker, ports and folders of their own; `kcat` is a stand-in with the same partitioner where the machine
has none. Nothing else is changed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from fencepost.broker.ports import choose_ports

ROOT = Path(__file__).resolve().parents[2]
STOCK = "127.0.0.1:9092"
SERVER = "8765"  # the port of a reader's own HTTP server, as the pages have it
LINE_LIMIT_S = 90
LOOK_LIMIT_S = 60
# What only looks may be looked at again: a run that was triggered a moment ago is still on its way.
_LOOKS = re.compile(
    r"fencepost (runs|logs|tasks|describe|owners|workers|dlq list|dlq show|next|status|alerts|stats|graph)\b(?!.* -f\b)"
)
_EXIT = re.compile(r"exit code (\d+)(?:: )?")
_BLOCK = re.compile(
    r"(?:<!-- (?P<mark>\w+): (?P<words>[^\n]+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_KCAT = '''#!{python}
"""As much of kcat as the pages use: `kcat -b HOST -t TOPIC -P -K SEPARATOR`, one record a line of standard input."""
import argparse, sys
from confluent_kafka import Producer
options = argparse.ArgumentParser()
options.add_argument("-b", required=True)
options.add_argument("-t", required=True)
options.add_argument("-P", action="store_true", required=True)
options.add_argument("-K")
given = options.parse_args()
producer = Producer({{"bootstrap.servers": given.b}})  # stock settings, the stock partitioner with them
failures = []
for line in sys.stdin.read().splitlines():
    key, _, value = line.partition(given.K) if given.K else (None, "", line)
    producer.produce(given.t, value, key, on_delivery=lambda error, _message: error and failures.append(error))
sys.exit(1 if producer.flush(30) or failures else 0)
'''


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. `mark`: file, shown, schema or empty."""

    language: str
    text: str
    mark: str
    words: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [
        Block(
            match["language"],
            match["text"],
            match["mark"] or "",
            match["words"] or "",
            text[: match.start()].count("\n"),
        )
        for match in _BLOCK.finditer(text)
    ]
    assert len(found) == text.count("\n```") / 2, f"{page}: a block that is not closed, or indented"
    return found


@dataclass(frozen=True, slots=True)
class Line:
    """One command of a console block, and what is to be seen of it."""

    command: str
    expected: str | None

    @property
    def exit_code(self) -> int:
        match = _EXIT.match(self.expected or "")
        return int(match[1]) if match else 0

    @property
    def to_be_shown(self) -> str:
        return _EXIT.sub("", self.expected or "")


def lines_of(block: Block) -> list[Line]:
    lines = []
    for text in block.text.replace("\\\n", "").splitlines():
        command, _, comment = text.partition("  # ")
        if command.strip() and not command.startswith("#"):
            expected = comment.strip().removeprefix("→").strip() if comment.strip().startswith("→") else None
            lines.append(Line(command.strip(), expected))
    return lines


@dataclass(slots=True)
class Reader:
    """Somebody who follows a page, in a folder of their own."""

    folder: Path
    environment: Path  # the virtual environment with the installed wheel
    port: int = 0
    server_port: int = 0
    env: dict[str, str] = field(default_factory=dict)
    background: list[tuple[Line, subprocess.Popen[bytes], Path]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.port, _ = self._ports()
        (self.server_port,) = choose_ports(["127.0.0.1"], 1)
        tools = self.folder / "tools"
        tools.mkdir(parents=True)
        if shutil.which("kcat") is None:
            print("kcat is not installed: a plain producer with the client's stock settings stands in for it")
            (tools / "kcat").write_text(_KCAT.format(python=self.environment / "bin" / "python"))
            (tools / "kcat").chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
        if home := os.environ.get("FENCEPOST_KAFKA_HOME"):
            kept["FENCEPOST_KAFKA_HOME"] = home
        kept.pop("PYTHONPATH", None)
        self.env = kept | {
            "PATH": f"{self.environment / 'bin'}:{tools}:{kept['PATH']}",
            "XDG_DATA_HOME": str(self.folder / "data"),
            "XDG_CACHE_HOME": kept.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "FENCEPOST_BOOTSTRAP": self.bootstrap,
        }

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def follow(self, block: Block) -> None:
        if block.mark == "file":
            (self.folder / block.words).write_text(block.text.replace(SERVER, str(self.server_port)), encoding="utf-8")
        elif block.language == "console":
            for line in lines_of(block):
                expected = None if line.expected is None else line.expected.replace(SERVER, str(self.server_port))
                self.run(Line(line.command, expected))

    def run(self, line: Line) -> str:
        """One line. Raises AssertionError with all it printed."""
        self.done.append(line.command)
        print(f"{time.monotonic() - self.began_s:6.1f} s  {line.command}", flush=True)
        command = self._mine(line.command)
        if command.endswith("&"):
            self._begin(line, command.removesuffix("&"))
            return ""
        until_s = time.monotonic() + (LOOK_LIMIT_S if _LOOKS.match(command) else 0)
        while True:
            exit_code, out = self._shell(command)
            if exit_code == line.exit_code and line.to_be_shown in out:
                return out
            if time.monotonic() >= until_s:
                raise AssertionError(f"{line}\nexit code {exit_code}\n{out}\n{self.heard()}")
            time.sleep(0.5)

    def heard(self) -> str:
        """What the programs in the background said last."""
        return "\n".join(f"--- {line.command}\n{told.read_text()[-4000:]}" for line, _, told in self.background)

    def leave(self) -> dict[str, int]:
        """SIGTERM to everything in the background; exit codes by command."""
        codes = {}
        for _, process, _ in self.background:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for line, process, _ in self.background:
            codes[line.command] = process.wait(60)
        return codes

    def tidy_up(self) -> None:
        """Nothing of it may stay, however it went."""
        down = ["fencepost", "down"]
        subprocess.run(down, env=self.env, cwd=self.folder, capture_output=True, check=False, timeout=60)
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("FENCEPOST_BOOTSTRAP") == self.bootstrap and process.pid != os.getpid():
                    process.kill()
        for _, child, _ in self.background:
            child.wait(30)

    def _mine(self, command: str) -> str:
        """The line with the broker of this reader."""
        command = command.replace(STOCK, self.bootstrap).replace(SERVER, str(self.server_port))
        return re.sub(r"^fencepost up\b", f"fencepost up --port {self.port}", command)

    def _begin(self, line: Line, command: str) -> None:
        if re.match(r"[A-Z_]+=", command):
            command = f"env {command}"
        told = self.folder / f"background-{len(self.background)}.log"
        with told.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.background.append((line, process, told))

    def _shell(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", command], env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LINE_LIMIT_S, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    @staticmethod
    def _ports() -> tuple[int, int]:
        """A port whose next one is free as well: `fencepost up` takes both."""
        for _ in range(50):
            (port,) = choose_ports(["127.0.0.1"], 1)
            with suppress(OSError):
                import socket

                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + 1))
                return port, port + 1
        raise AssertionError("no two ports in a row are free")


INSTALL = "make wheel && pip install dist/*.whl"


def make_environment(folder: Path) -> Path:
    """A virtual environment with the locked requirements, then the wheel as README says: `INSTALL`, in a copy."""
    environment = folder / "environment"
    python, lock = environment / "bin" / "python", ROOT / "config" / "requirements-run.txt"
    _checked([sys.executable, "-m", "venv", str(environment)], folder, os.environ)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _checked([*pip, "--require-hashes", "-r", str(lock)], folder, os.environ)
    source = folder / "source"
    source.mkdir()
    for name in ("streams", "schemas", "config", ".ci"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "README.md", "CHANGELOG.md"):
        shutil.copy2(ROOT / name, source / name)
    (source / ".venv").symlink_to(sys.prefix)  # the build's own environment, which must not be made anew here
    tools = folder / "tools"
    tools.mkdir()
    (tools / "make").write_text(f'#!/bin/sh\nexec {shutil.which("make")} --old-file=.venv/.installed "$@"\n')
    (tools / "make").chmod(0o755)
    env = {**os.environ, "PATH": f"{environment / 'bin'}:{tools}:{os.environ['PATH']}", "PIP_NO_INDEX": "1"}
    _checked(["bash", "-eu", "-c", INSTALL], source, env)
    told = _checked([str(python), "-c", "import fencepost; print(fencepost.__file__)"], folder, env)
    assert told.startswith(str(environment)), told
    return environment


def _checked(command: list[str], folder: Path, env: Mapping[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=dict(env), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def followed(page: Path, reader: Reader) -> Iterator[Block]:
    """Follows the page block by block."""
    for block in blocks_of(page):
        reader.follow(block)
        yield block

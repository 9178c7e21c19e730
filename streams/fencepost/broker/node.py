"""One broker: its folder, its process, its signals."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import BrokerError
from .jars import KafkaJars
from .process import Process

_POLL_S = 0.05
_THROWN = re.compile(r"(?:^|(?<=Exception in thread \"main\" ))[\w.$]+(?:Exception|Error): .*")


@dataclass(frozen=True, slots=True)
class Program:
    """How a broker is started: the Java, the jars, the JVM's flags."""

    java: Path
    jars: KafkaJars
    heap_mb: int
    jvm_flags: Sequence[str]
    archive: Path | None

    def quick_flags(self) -> list[str]:
        """Small, quick to start, and no compiler threads competing with the workers for two cores."""
        archive = [f"-XX:SharedArchiveFile={self.archive}", "-Xlog:cds=off"] if self.archive else []
        return ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *archive]

    def command(self, node: Node, prefix: Sequence[str]) -> list[str]:
        return [
            *prefix,
            str(self.java),
            *self.quick_flags(),
            f"-Xms{self.heap_mb}m",
            f"-Xmx{self.heap_mb}m",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            *self.jvm_flags,
            f"-Dlog4j2.configurationFile={node.folder / 'log4j2.properties'}",
            "-cp",
            self.jars.classpath,
            "kafka.Kafka",
            str(node.folder / "server.properties"),
        ]


class Node:
    """A broker's folder (`node-1` …) and the process that runs there, whoever started it."""

    def __init__(self, cluster_folder: Path, node_id: int, address: str) -> None:
        self.node_id = node_id
        self.address = address
        self.folder = cluster_folder / f"node-{node_id}"
        self.data = self.folder / "data"
        self.log_file = self.folder / "server.log"
        self._pid_file = self.folder / "process"
        self._child: int | None = None
        self._log_start = 0

    @property
    def process(self) -> Process | None:
        """The running broker, or None."""
        try:
            pid, started = self._pid_file.read_text().split()
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise BrokerError(
                f"{self._pid_file} is damaged: if no broker of {self.folder} runs, delete that file"
            ) from error
        process = Process(int(pid), started)
        return process if process.alive() else None

    def spawn(self, program: Program, prefix: Sequence[str], env: Mapping[str, str]) -> Process:
        """Starts the broker and returns at once. It has a session of its own, so that no terminal ends it."""
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        command = program.command(self, prefix)
        console = self.folder / "console.log"
        console.unlink(missing_ok=True)
        # Not Popen: it complains when it is forgotten while the process goes on, which is what `up` is for.
        pid = os.posix_spawnp(
            command[0],
            command,
            {**os.environ, **env},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(console), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE],
        )
        self._child = pid
        try:
            process = Process.of(pid)
        except ProcessLookupError:
            self.reap()
            raise BrokerError(self.why_it_ended()) from None
        draft = self._pid_file.with_suffix(".new")
        draft.write_text(f"{process.pid} {process.started}\n")
        draft.replace(self._pid_file)
        return process

    def signal(self, number: signal.Signals) -> None:
        """Raises BrokerError if the broker is not running."""
        process = self.process
        if process is None or not process.signal(number):
            raise BrokerError(f"node {self.node_id} of {self.folder.parent} is not running: start it first")

    def wait_ended(self, timeout_s: float) -> bool:
        """Waits for the process to end, and reaps it if it is our own child."""
        process = self.process
        ended = process is None or process.wait(timeout_s)
        if ended:
            self.reap()
            self._pid_file.unlink(missing_ok=True)
        return ended

    def reap(self) -> None:
        """Takes the ended child's exit code, so that no zombie stays; waits for the end. Once per child."""
        if self._child is not None:
            os.waitpid(self._child, 0)
            self._child = None

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Asks again and again until `ready`. Raises BrokerError when the process ends before, or at the time limit."""
        give_up_at = time.monotonic() + timeout_s
        while not ready():
            if self.process is None:
                self.reap()
                raise BrokerError(self.why_it_ended())
            if time.monotonic() > give_up_at:
                raise BrokerError(f"node {self.node_id} was not ready after {timeout_s:.0f} s: see {self.log_file}")
            time.sleep(_POLL_S)

    def why_it_ended(self) -> str:
        """One line from what the broker left behind since it was last started."""
        for file, start in ((self.log_file, self._log_start), (self.folder / "console.log", 0)):
            if file.exists() and (reason := _last_error(file, start)):
                return f"Kafka (node {self.node_id}) ended: {reason}; more in {file}"
        return f"Kafka (node {self.node_id}) ended without a word: see {self.folder}"


def _last_error(file: Path, start: int) -> str | None:
    with open(file, "rb") as log:
        log.seek(start)
        return telling_line(log.read().decode(errors="replace"))


def telling_line(text: str) -> str | None:
    """The first error and what was thrown with it, in one line without the stack. None if no line tells one."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        thrown = next((found for after in lines[at : at + 2] if (found := _THROWN.search(after))), None)
        if " ERROR " in line or " FATAL " in line or thrown:
            said = line.partition(" ERROR ")[2] if thrown is None or thrown.string != line else ""
            return " ".join(filter(None, (said, thrown[0] if thrown else ""))).strip()[:400]
    return None

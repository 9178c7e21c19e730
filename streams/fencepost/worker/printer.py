"""Ships what runs print to the logs topic, in batches, without ever holding a run or a lane up.

Lanes hand lines over in their threads; one thread sends. What waits is bounded: while Kafka takes nothing, lines beyond
the bound are dropped, counted, and their number is said in the run's own log and in the worker's. Not in transactions:
a line that a run printed is true whatever became of the run.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fencepost.core.ids import partition_of
from fencepost.kafka.errors import KafkaProblem
from fencepost.kafka.producer import Outgoing, Producer
from fencepost.settings import Settings
from fencepost.wire.log import LogPart, encode_log
from fencepost.worker.orders import RunOutput

RUN_LIMIT_BYTES = 1024 * 1024
BUFFER_LIMIT_BYTES = 16 * 1024 * 1024
# A character may take six bytes in JSON (\u0000), and the topic takes records of one mebibyte.
RECORD_LIMIT_BYTES = 128 * 1024
LINE_COST_BYTES = 16  # in a record
HELD_COST_BYTES = 128  # of a line in memory, besides its text
LINGER_S = 0.2
SEND_LIMIT_S = 10.0
SAY_EVERY_S = 10.0
RUNS_KNOWN = 10_000

_HEADERS = {"content-type": "application/json", "ce_type": "fencepost.log"}
Run = tuple[str, int]  # task, epoch


class OutputShipper:
    """Takes `RunOutput` from any thread (`take`), sends it in one of its own. `close` when no lane hands over any more.

    With `logs` off in the settings it takes everything and keeps nothing. `topic` has `partition_count` partitions.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        partition_count: int,
        worker: str,
        log: Any,
        *,
        buffer_limit_bytes: int = BUFFER_LIMIT_BYTES,
        run_limit_bytes: int = RUN_LIMIT_BYTES,
        send_limit_s: float = SEND_LIMIT_S,
        make_producer: Callable[[Settings, float], Producer] = Producer,
    ) -> None:
        self._settings, self._topic, self._partition_count = settings, topic, partition_count
        self._worker, self._log = worker, log
        self._buffer_limit_bytes, self._run_limit_bytes = buffer_limit_bytes, run_limit_bytes
        self._send_limit_s, self._make_producer = send_limit_s, make_producer
        self._changed = threading.Condition()
        self._runs: OrderedDict[Run, _Output] = OrderedDict()  # the one that printed last at the end
        self._waiting: OrderedDict[Run, _Output] = OrderedDict()
        self._waiting_bytes = 0
        self._in_hand = 0  # lines being sent
        self._closing = False
        self._say_at_s = 0.0
        self._complain_at_s = 0.0
        self._dropped_unsaid = 0
        self.dropped = 0  # lines, since the start
        self._thread = threading.Thread(target=self._work, name="fencepost-logs", daemon=True)
        self._enabled = settings.logs
        if self._enabled:
            self._thread.start()

    def take(self, output: RunOutput) -> None:
        """Never blocks, never fails."""
        if not self._enabled:
            return
        lines = [(output.stream, piece) for line in _lines(output.text) for piece in _pieces(line)]
        with self._changed:
            if self._closing:
                self._drop(len(lines))
                return
            run = (output.task, output.epoch)
            known = self._runs.get(run)
            if known is None:
                known = self._runs[run] = _Output()
                self._forget_quiet_runs()
            else:
                self._runs.move_to_end(run)
            for stream, text in lines:
                self._add(known, stream, text)
            if known.lines or known.unsaid:
                first = not self._waiting
                self._waiting[run] = known
                if first:
                    self._changed.notify()

    def close(self, flush_s: float) -> None:
        """Send what waits, for at most so long; what is left then is dropped and counted. Safe to call twice."""
        if not self._enabled:
            return
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(max(0.0, flush_s))
        with self._changed:
            left = sum(len(output.lines) for output in self._waiting.values()) + self._in_hand
            self._waiting.clear()
            self._in_hand = 0
            self._drop(left)
            self._say(now_s=float("inf"))

    # -- under the lock -------------------------------------------------------------------------------------------

    def _add(self, output: _Output, stream: str, text: str) -> None:
        if output.cut:
            return
        size = len(text.encode("utf-8", "replace")) + 1
        if output.kept_bytes + size > self._run_limit_bytes:
            output.cut = True
            limit = f"{self._run_limit_bytes:,}"
            stream, text = "log", f"cut here: the run printed more than the {limit} bytes that are kept of a run"
        elif self._waiting_bytes + size + HELD_COST_BYTES > self._buffer_limit_bytes:
            output.lose(1)
            self._drop(1)
            return
        output.kept_bytes += size
        self._waiting_bytes += size + HELD_COST_BYTES
        output.add(stream, text)

    def _forget_quiet_runs(self) -> None:
        """Nobody says that a run will print no more, so the ones that were quiet longest are forgotten."""
        while len(self._runs) > RUNS_KNOWN:
            run = next(iter(self._runs))
            if run in self._waiting:
                return
            del self._runs[run]

    def _drop(self, lines: int) -> None:
        self.dropped += lines
        self._dropped_unsaid += lines

    def _say(self, now_s: float) -> None:
        if self._dropped_unsaid and now_s >= self._say_at_s:
            self._log.warning("printed lines were not kept", lines=self._dropped_unsaid, since_start=self.dropped)
            self._dropped_unsaid = 0
            self._say_at_s = now_s + SAY_EVERY_S

    def _next_parts(self) -> list[LogPart]:
        """Takes what waits, as records in order."""
        parts: list[LogPart] = []
        for (task, epoch), output in self._waiting.items():
            output.say_lost()
            for chunk in _chunks(output.lines):
                last = output.cut and chunk[-1] is output.lines[-1]
                parts.append(LogPart(task, epoch, self._worker, output.parts, output.since_ms, tuple(chunk), last))
                output.parts += 1
            output.lines = []
        self._waiting.clear()
        self._in_hand = sum(len(part.lines) for part in parts)
        return parts

    # -- the thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        producer: Producer | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._closing:
                    self._changed.wait_for(lambda: self._closing, LINGER_S)  # lets a batch grow
                taken_bytes = self._waiting_bytes  # takes room until it is sent
                parts = self._next_parts()
                closing = self._closing
            if parts:
                producer = self._send(producer, parts)
            with self._changed:
                self._waiting_bytes -= taken_bytes
                self._in_hand = 0
                self._say(time.monotonic())
                if closing and not self._waiting:
                    break
        if producer is not None:
            producer.close()

    def _send(self, producer: Producer | None, parts: list[LogPart]) -> Producer | None:
        """Returns the producer for the next batch; none after a failure: what is left in it must not come late."""
        try:
            if producer is None:
                producer = self._make_producer(self._settings, self._send_limit_s)
            producer.send_all(self._outgoing(part) for part in parts)
        except KafkaProblem as problem:
            if time.monotonic() >= self._complain_at_s:
                self._complain_at_s = time.monotonic() + SAY_EVERY_S
                self._log.warning("the logs topic takes nothing", why=str(problem))
            self._failed(parts)
        except Exception:  # noqa: BLE001
            # This thread is the only one that sends: if it ended, lines would pile up and nobody would say why.
            self._log.exception("printed lines could not be sent")
            self._failed(parts)
        else:
            return producer
        if producer is not None:
            producer.close()
        return None

    def _outgoing(self, part: LogPart) -> Outgoing:
        key = part.task.encode()
        return Outgoing(self._topic, key, encode_log(part), _HEADERS, partition_of(key, self._partition_count))

    def _failed(self, parts: list[LogPart]) -> None:
        """Some may have been written: a gap that is said and is not there harms less than the other way round."""
        with self._changed:
            if not self._in_hand:
                return  # `close` gave up waiting and has counted them
            for part in parts:
                self._drop(len(part.lines))
                output = self._runs.get((part.task, part.epoch))
                if output is not None:
                    output.lose(len(part.lines))


@dataclass(slots=True)
class _Output:
    """What one run printed: what waits to be sent, how much was kept so far, and how much was lost."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    since_ms: int = 0
    kept_bytes: int = 0
    parts: int = 0
    lost: int = 0
    unsaid: bool = False
    cut: bool = False

    def add(self, stream: str, text: str) -> None:
        if not self.lines:
            self.since_ms = time.time_ns() // 1_000_000
        self.lines.append((stream, text))

    def lose(self, lines: int) -> None:
        self.lost += lines
        self.unsaid = True

    def say_lost(self) -> None:
        """The number is of the whole run, so that it stays right when the line that says it is lost as well."""
        if self.unsaid:
            self.unsaid = False
            self.add("log", f"up to {self.lost} lines of this run so far are missing: Kafka did not take them in time")


def _lines(text: str) -> list[str]:
    return (text.removesuffix("\n")).split("\n")


def _pieces(line: str) -> list[str]:
    """A line that would not fit into one record, in pieces. A character takes up to four bytes, hence the quarter."""
    most = RECORD_LIMIT_BYTES // 4
    if len(line) <= most:
        return [line]
    return [line[at : at + most] for at in range(0, len(line), most)]


def _chunks(lines: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """The lines of one run in records of bounded size."""
    chunks: list[list[tuple[str, str]]] = []
    size = RECORD_LIMIT_BYTES
    for line in lines:
        cost = len(line[1].encode("utf-8", "replace")) + LINE_COST_BYTES
        if size + cost > RECORD_LIMIT_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(line)
        size += cost
    return chunks

"""The runner's way out: results, checkpoints and what the run printed, in order, several to a frame."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from fencepost import codec
from fencepost.worker.guard import wire

_FLUSH_AFTER_S = 0.1  # what is printed is sent at the latest so long after it
_FLUSH_AT_BYTES = 16 * 1024


class Sender:
    """Everything a runner says goes through here. Safe to call from the threads of a run."""

    def __init__(self, out_fd: int) -> None:
        self._out_fd = out_fd
        self._items: list[Any] = []
        self._lock = threading.Lock()
        self._printed: dict[int, _Printed] = {}
        self._dirty = threading.Event()
        self._flusher_pid = 0

    def ended(
        self,
        token: int,
        code: int,
        result: Any,
        error: str | None,
        took_us: int,
        exit_code: int | None,
        names: tuple[str, ...] = (),
    ) -> None:
        with self._lock:
            if self._printed:
                self._take_printed(token, last=True)
            item = (wire.ENDED, token, code, result, error, took_us, exit_code)
            self._items.append((*item, names) if names else item)

    def beat(self, token: int) -> None:
        """The run is alive. Sent at once."""
        with self._lock:
            self._items.append((wire.BEAT, token))
            self._write()

    def checkpoint(self, token: int, data: Any) -> None:
        """Sent at once. Raises ValueError if it is too large or has no JSON form."""
        size = len(codec.dumps(data))
        if size > wire.RESULT_MAX_BYTES:
            raise ValueError(f"checkpoint: {size} bytes as JSON, at most {wire.RESULT_MAX_BYTES} are kept")
        with self._lock:
            self._take_printed(token)
            self._items.append((wire.CHECKPOINT, token, data))
            self._write()

    def printed(self, token: int, stream: str, text: str) -> None:
        if not text:
            return
        with self._lock:
            printed = self._printed.setdefault(token, _Printed())
            printed.add(stream, text)
            if printed.waiting > _FLUSH_AT_BYTES:
                self._take_printed(token)
                self._write()
                return
        if self._flusher_pid != os.getpid():
            self._flusher_pid = os.getpid()
            threading.Thread(target=self._flush_now_and_then, name="fencepost-output", daemon=True).start()
        self._dirty.set()

    def flush(self) -> None:
        if self._items:
            with self._lock:
                self._write()

    def _take_printed(self, token: int, last: bool = False) -> None:
        printed = self._printed.get(token)
        if printed is not None:
            for stream, text in printed.take():
                self._items.append((wire.OUTPUT, token, stream, text))
            if last:
                del self._printed[token]

    def _flush_now_and_then(self) -> None:
        while True:
            self._dirty.wait()
            time.sleep(_FLUSH_AFTER_S)
            self._dirty.clear()
            with self._lock:
                for token in list(self._printed):
                    self._take_printed(token)
                self._write()

    def _write(self) -> None:
        if not self._items:
            return
        data = memoryview(wire.frame(self._items))
        self._items = []
        while data:
            data = data[os.write(self._out_fd, data) :]


class _Printed:
    """What one run printed and was not sent yet; bounded over the whole run."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, list[str]]] = []
        self._left = wire.OUTPUT_MAX_BYTES
        self.waiting = 0

    def add(self, stream: str, text: str) -> None:
        if self._left < 0:
            return
        size = len(text.encode("utf-8", "replace"))
        if size > self._left:
            text = text[: self._left] + wire.CUT
        self._left -= size
        text = text.encode("utf-8", "replace").decode()  # lone surrogates have no JSON form
        self.waiting += len(text)
        if self._parts and self._parts[-1][0] == stream:
            self._parts[-1][1].append(text)
        else:
            self._parts.append((stream, [text]))

    def take(self) -> list[tuple[str, str]]:
        taken = [(stream, "".join(texts)) for stream, texts in self._parts]
        self._parts, self.waiting = [], 0
        return taken


class RunStream(io.TextIOBase):
    """Stands in for sys.stdout or sys.stderr: what is written belongs to the run that is on."""

    def __init__(self, stream: str, fd: int, token: Callable[[], int], sender: Sender) -> None:
        self._stream = stream
        self._fd = fd
        self._token = token
        self._sender = sender
        self.buffer = _Bytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "replace"

    def fileno(self) -> int:
        return self._fd

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        token = self._token()
        if token:
            self._sender.printed(token, self._stream, text)
        else:  # between runs: a thread that outlived its run
            os.write(self._fd, text.encode("utf-8", "replace"))
        return len(text)


class _Bytes(io.BufferedIOBase):
    """`sys.stdout.buffer` for code that writes bytes."""

    def __init__(self, text: RunStream) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._text.write(bytes(data).decode("utf-8", "replace"))
        return len(data)

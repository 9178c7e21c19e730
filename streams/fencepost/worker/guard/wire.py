"""What worker and runner say to each other over two pipes: frames of a length and a JSON list.

To a runner, one message a frame:
    [RUNS, [run, ...]]       run: see the indices of `Field`
    [STOP, token]            that run shall stop; the guard sees to it that it does

From a runner, any number of messages a frame:
    [ENDED, token, code, result, error, took_us, exit_code]
    [ENDED, token, code, result, error, took_us, exit_code, names]    a function failed: its exception's classes
    [CHECKPOINT, token, data]
    [OUTPUT, token, stream, text]
    [BEAT, token]            the run is alive: at its start and by ctx.heartbeat(), where its task asks for that
"""

from __future__ import annotations

import os
import struct
from typing import Any, Final

from fencepost import codec

RUNS: Final = 1
STOP: Final = 2

ENDED: Final = 1
CHECKPOINT: Final = 2
OUTPUT: Final = 3
BEAT: Final = 4

# How a run ended, as its runner saw it.
SUCCEEDED: Final = 0
FAILED: Final = 1
TIMED_OUT: Final = 2  # it was over its time limit when it ended
STOPPED: Final = 3  # it was asked to stop by a STOP
REFUSED: Final = 4  # its lease had ended before it began: nothing of it ran
FENCED: Final = 5  # it was asked to stop because its lease was about to end
FINAL: Final = 6  # it failed, and would again

RESULT_MAX_BYTES: Final = 64 * 1024
OUTPUT_MAX_BYTES: Final = 1024 * 1024
CUT: Final = "\n[output beyond 1 MiB is not kept]\n"

_LENGTH = struct.Struct("<I")
_READ_BYTES = 256 * 1024


class Field:
    """Places in a run as it is sent."""

    TOKEN, TASK, EPOCH, ATTEMPT, TARGET, PAYLOAD, HEADERS, SCHEDULED_FOR_MS, KEY, CHECKPOINT = range(10)
    TIMEOUT_S, GRACE_S, SLOT, LIFE_S, BEATS, MORE = range(10, 16)  # MORE: what else the context is told; or null


def frame(message: Any) -> bytes:
    body = codec.dumps(message)
    return _LENGTH.pack(len(body)) + body


class Reader:
    """Cuts a pipe into messages. The descriptor is non-blocking."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._data = bytearray()
        self.ended = False

    def read(self) -> list[Any]:
        """What is there now. Sets `ended` at the end of the pipe."""
        while True:
            try:
                more = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                break
            if not more:
                self.ended = True
                break
            self._data += more
            if len(more) < _READ_BYTES:
                break
        return self._cut()

    def _cut(self) -> list[Any]:
        data, messages, at = self._data, [], 0
        while len(data) - at >= 4:
            (length,) = _LENGTH.unpack_from(data, at)
            if len(data) - at - 4 < length:
                break
            messages.append(codec.loads_own(bytes(data[at + 4 : at + 4 + length])))
            at += 4 + length
        if at:
            del data[:at]
        return messages

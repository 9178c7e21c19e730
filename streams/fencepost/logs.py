"""How a process logs: structured lines on standard error, those of the standard library's loggers too.

One line a decision, none for each record. What a task was given or gave back does not belong in a log: it is taken out
by key from INFO on, and what looks like a secret at every level. The client library says "connection refused" for each
client and each try; of that, one line every few seconds is let through, with the number of those held back.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

from fencepost.codec import NotEncodable, dumps
from fencepost.core.times import format_ms
from fencepost.settings import Settings

CLIENT_LOGGER = "fencepost.kafka.client"
REPEAT_S = 5.0
REMOVED = "[removed]"

_PAYLOADS = {
    "payload", "body", "value", "data", "headers", "result", "checkpoint", "last_checkpoint", "output", "text", "env",
    "argv", "lines",
}  # fmt: skip
_SECRETS = (
    "secret", "passw", "credential", "api_key", "apikey", "access_key", "private_key", "authorization", "cookie",
    "token", "jaas", "sasl",
)  # fmt: skip
_DEPTH = 6
# Facilities of the client library that speak of connections; others (MAXPOLL, FATAL, …) are decisions and always shown.
_CONNECTION = {"FAIL", "ERROR", "REQTMOUT", "GETPID"}
_REJECTED = ("authenticat", "sasl", "ssl", "certificate")


def configure(settings: Settings, stream: TextIO | None = None) -> None:
    """Set up logging for this process; may be called again. `stream`: standard error unless given.

    Format `text` is for people, `json` one object a line; `auto` is text on a terminal and JSON elsewhere.
    """
    out = sys.stderr if stream is None else stream
    level = logging.getLevelName(settings.log_level.upper())
    on_terminal = out.isatty()
    as_text = settings.log_format == "text" or (settings.log_format == "auto" and on_terminal)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        _add_time,
        _remove_what_does_not_belong,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # or a logger used before this call would never hear of it
    )
    handler = _Handler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), _drop_others_work, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(as_text, on_terminal)],
        )
    )
    root = logging.getLogger()
    for earlier in [one for one in root.handlers if isinstance(one, _Handler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(level)
    client = logging.getLogger(CLIENT_LOGGER)
    for held in [one for one in client.filters if isinstance(one, Repeats)]:
        client.removeFilter(held)
    client.addFilter(Repeats())
    client.setLevel(logging.NOTSET)


class Repeats(logging.Filter):
    """Lets one connection error of the client library through per `every_s`, with the count of those held back.

    All clients of a process count together: when Kafka is away they all say the same. Being turned away (a wrong
    password, a certificate) counts apart, so that it is not hidden by brokers that are merely away.
    """

    def __init__(self, every_s: float = REPEAT_S, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every_s, self._now_s = every_s, now_s
        self._lock = threading.Lock()
        self._next_s: dict[bool, float] = {}
        self._held_back: dict[bool, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """The library logs as ("%s [%s] %s", facility, client, text); the facility says what kind of trouble it is."""
        args = record.args
        if not isinstance(args, tuple) or len(args) != 3 or args[0] not in _CONNECTION:
            return True
        lowered = str(args[2]).lower()
        rejected = any(sign in lowered for sign in _REJECTED)
        with self._lock:
            now_s = self._now_s()
            if now_s < self._next_s.get(rejected, now_s):
                self._held_back[rejected] = self._held_back.get(rejected, 0) + 1
                return False
            self._next_s[rejected] = now_s + self._every_s
            held_back = self._held_back.pop(rejected, 0)
        if held_back:
            record.msg = f"{record.msg} (and {held_back} like it)"
        return True


class _Handler(logging.StreamHandler[TextIO]):
    """The handler `configure` made, told from those of others."""


def _drop_others_work(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """A formatter that was there before leaves its text in the record, where it looks like a field of the caller's."""
    event.pop("message", None)
    event.pop("asctime", None)
    return event


def _add_time(_logger: Any, _method: str, event: EventDict) -> EventDict:
    event["at"] = format_ms(time.time_ns() // 1_000_000)
    return event


def _remove_what_does_not_belong(_logger: Any, _method: str, event: EventDict) -> EventDict:
    payloads = event.get("level") != "debug"
    for name, value in event.items():
        if not name.startswith("_") and name != "exc_info":  # those are structlog's own
            event[name] = _cleaned(name, value, payloads, _DEPTH)
    return event


def _cleaned(name: Any, value: Any, payloads: bool, depth: int) -> Any:
    """The value without what does not belong, however deep; a record is taken apart, or it would show all."""
    if _unwanted(name, payloads):
        return REMOVED
    if value is None or isinstance(value, str | int | float):
        return value
    if depth == 0:
        return REMOVED
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {inner: _cleaned(inner, item, payloads, depth - 1) for inner, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned("", item, payloads, depth - 1) for item in value]
    return value


def _unwanted(name: Any, payloads: bool) -> bool:
    lowered = str(name).lower().replace("-", "_").replace(".", "_")
    return (payloads and lowered in _PAYLOADS) or any(sign in lowered for sign in _SECRETS)


def _rendering(as_text: bool, colors: bool) -> list[Processor]:
    if as_text:
        # The default formatter of exceptions prints local variables, and those hold payloads.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain, timestamp_key="at")]
    return [structlog.processors.format_exc_info, _json]


def _json(_logger: Any, _method: str, event: EventDict) -> str:
    first = {name: event.pop(name) for name in ("at", "level", "event", "logger") if name in event}
    line = {**first, **event}
    try:
        return dumps(line).decode()
    except NotEncodable:
        return dumps({_plain(name): _encodable(value) for name, value in line.items()}).decode()


def _encodable(value: Any) -> Any:
    try:
        dumps(value)
    except NotEncodable:
        return _plain(value)
    return value


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text.encode("utf-8", "backslashreplace").decode()

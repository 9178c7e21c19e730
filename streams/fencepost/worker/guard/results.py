"""Whether a function's result can be kept, and what is said of an error."""

from __future__ import annotations

import traceback
from typing import Any

from fencepost import codec
from fencepost.worker.guard import wire

_ERROR_MAX_CHARS = 8 * 1024
_PLAIN = (type(None), bool, int, float)


class Failed(Exception):
    """A run failed for a reason that needs no traceback. `final`: it would fail again. `names`: see `names_of`."""

    def __init__(self, reason: str, *, final: bool = False, names: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.final = final
        self.names = names


def unfit(result: Any) -> str | None:
    """Why the result cannot be kept; None if it can."""
    if type(result) in _PLAIN and not (type(result) is int and not -(2**63) <= result < 2**63):
        return None
    try:
        size = len(codec.dumps(result))
    except codec.NotEncodable as error:
        return f"result: {error}"
    if size > wire.RESULT_MAX_BYTES:
        return f"result: {size} bytes as JSON, at most {wire.RESULT_MAX_BYTES} are kept"
    return None


def names_of(error: BaseException) -> tuple[str, ...]:
    """The names of the exception's class and of the classes it is made of, but for the two that all are."""
    return tuple([made.__name__ for made in type(error).__mro__ if made not in (BaseException, object)])


def describe(error: BaseException) -> str:
    """The traceback without the runner's own frame, its end if it is long."""
    shown = error.__traceback__.tb_next if error.__traceback__ is not None else None
    text = "".join(traceback.format_exception(type(error), error, shown)).rstrip()
    text = text if len(text) <= _ERROR_MAX_CHARS else "…" + text[-_ERROR_MAX_CHARS:]
    return text.encode("utf-8", "replace").decode()

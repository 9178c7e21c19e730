"""Which errors are worth another attempt.

An item of `Retry.on` or `Retry.never` is one of:

- a whole number: the exit code of a command;
- a name: the class of the exception, or a base class of it (`OSError` stands for `ConnectionError` too); ``timed_out``
  stands for every time limit;
- a pattern with ``*``, ``?`` or ``[…]``: compared with those names and with the last line of the error
  (``*connection reset*``), small and capital letters told apart.

`never` goes before `on`. With neither every error is tried again. Runs that were stopped from outside are no errors.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from fencepost.core.events import Ended
from fencepost.core.task import Outcome, Retry

_SIGNS: Final = "*?["


def why_not_again(retry: Retry, ended: Ended) -> str | None:
    """The reason in words for which the error is not tried again; None: it is."""
    if ended.final:
        return "it would fail again"
    if not retry.on and not retry.never:
        return None
    for item in retry.never:
        if _meets(item, ended):
            return f"never tried again: {item}"
    if retry.on and not any(_meets(item, ended) for item in retry.on):
        return "not among the errors that are tried again"
    return None


def _meets(item: str | int, ended: Ended) -> bool:
    if isinstance(item, int):
        return item == ended.exit_code
    names = ended.names
    if ended.outcome is Outcome.TIMED_OUT:
        names = (*names, Outcome.TIMED_OUT.value)
    if not any(sign in item for sign in _SIGNS):
        return item in names
    last_line = (ended.error or "").rpartition("\n")[2]
    return any(fnmatchcase(text, item) for text in (*names, last_line))

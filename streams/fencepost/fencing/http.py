"""The epoch in the headers of an HTTP request: those to send with it, and the check where it arrives.

    response = client.post(url, json=order, headers=http.headers(ctx))       # in a task

    with http.admit(request.headers, store):                                 # in any server
        ...                                                                  # what the request asks for

The check belongs before anything is done, and what is done belongs inside: a check that lets go before the deed lets a
stale run in between. No framework is needed: headers are any mapping, names in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote, unquote

from fencepost.fencing.stale import StaleEpoch
from fencepost.fencing.store import EpochStore
from fencepost.fencing.token import Run, Token, token_of

NAMESPACE: Final = "Fencepost-Namespace"
TASK: Final = "Fencepost-Task"  # percent-encoded UTF-8: a header is ASCII, a task ID need not be
EPOCH: Final = "Fencepost-Epoch"
IDEMPOTENCY_KEY: Final = "Idempotency-Key"

STALE_STATUS: Final = 409  # Conflict: to be answered with StaleEpoch
MISSING_STATUS: Final = 428  # Precondition Required: to be answered with BadToken where nothing was sent
BAD_STATUS: Final = 400


class BadToken(ValueError):
    """The headers hold no token: `status` is what to answer, and `header` the one that is missing or wrong."""

    def __init__(self, header: str, why: str, status: int = BAD_STATUS) -> None:
        super().__init__(f"{header}: {why}")
        self.header = header
        self.status = status


def headers(run: Run) -> dict[str, str]:
    """What to send with each request of the run. A run that has an idempotency key sends that as well."""
    token = token_of(run)
    sent = {NAMESPACE: quote(token.namespace), TASK: quote(token.task_id), EPOCH: str(token.epoch)}
    key = getattr(run, "idempotency_key", "")
    if key:
        sent[IDEMPOTENCY_KEY] = quote(str(key), safe=":/@+,=~!*'()")
    return sent


def token_in(received: Mapping[str, str]) -> Token:
    """The token of a request. Raises BadToken."""
    found = {name.lower(): value for name, value in received.items()}
    values = []
    for name in (NAMESPACE, TASK, EPOCH):
        value = found.get(name.lower())
        if value is None:
            raise BadToken(name, "is missing", MISSING_STATUS)
        values.append(value.strip())
    namespace, task, epoch = values
    if not (epoch.isascii() and epoch.isdecimal() and len(epoch) < 20):
        raise BadToken(EPOCH, f"{epoch[:40]!r} is not a whole number above 0")
    try:
        return token_of(Token(unquote(namespace, errors="strict"), unquote(task, errors="strict"), int(epoch)))
    except ValueError as error:
        name, _, _ = str(error).partition(": ")
        raise BadToken({"epoch": EPOCH, "namespace": NAMESPACE}.get(name, TASK), str(error)) from error


@contextmanager
def admit(received: Mapping[str, str], store: EpochStore) -> Iterator[Token]:
    """What the request asks for is done inside. Raises BadToken, StaleEpoch: nothing was done then."""
    token = token_in(received)
    with store.admit(token):
        yield token


def status_of(error: BadToken | StaleEpoch) -> int:
    """What to answer a request that was not let in."""
    return error.status if isinstance(error, BadToken) else STALE_STATUS

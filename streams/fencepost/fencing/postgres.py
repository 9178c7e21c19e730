"""PostgreSQL through psycopg (3): the only importer of that library.

    with psycopg.connect() as connection:
        postgres.install(connection)          # once, by whoever may create tables

    with psycopg.connect() as connection:     # in a task: the block is one transaction
        postgres.fence(connection, ctx)
        connection.execute("UPDATE …")

`fence` belongs into the transaction that writes, best as its first statement: until that transaction ends no other run
of the task gets past its own `fence`. A stale run gets `StaleEpoch`, and its transaction is over: whatever it tries,
PostgreSQL commits nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from fencepost.fencing import sql
from fencepost.fencing.token import Run, Token, token_of

_CALL = "SELECT fencepost_fence(%s, %s, %s)"


class NoTransaction(Exception):
    """The connection is in autocommit mode and in no transaction: the lock would be gone before anything is written."""


def install(connection: psycopg.Connection[Any]) -> None:
    """Create the table and the function if they are not there. The caller commits."""
    connection.execute(sql.schema())


def fence(connection: psycopg.Connection[Any], run: Run) -> None:
    """Let the run go on in this transaction, or raise StaleEpoch. Raises NoTransaction, psycopg.Error."""
    token = _ready(connection, run)
    with _refusals(token):
        connection.execute(_CALL, token)


async def fence_async(connection: psycopg.AsyncConnection[Any], run: Run) -> None:
    """As `fence`, for an asynchronous connection."""
    token = _ready(connection, run)
    with _refusals(token):
        await connection.execute(_CALL, token)


def _ready(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], run: Run) -> Token:
    if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        raise NoTransaction("fence() in autocommit mode: use it inside `with connection.transaction():`")
    return token_of(run)


@contextmanager
def _refusals(token: Token) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate != sql.STALE_SQLSTATE:
            raise
        raise sql.stale(token, error.diag.message_detail) from error

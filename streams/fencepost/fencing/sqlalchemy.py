"""PostgreSQL through SQLAlchemy (2): the only importer of that library.

    with Session(engine) as session, session.begin():
        sqlalchemy.fence(session, ctx)
        session.add(…)

With any driver that tells the SQLSTATE of an error (psycopg, psycopg2, asyncpg). As in `fencing.postgres`: the call
belongs into the transaction that writes, best as its first statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from fencepost.fencing import sql
from fencepost.fencing.token import Run, Token, token_of

if TYPE_CHECKING:  # its import needs greenlet, which only those have who use it
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

_CALL = text("SELECT fencepost_fence(:namespace, :task, :epoch)")


class NoTransaction(Exception):
    """The connection commits each statement by itself: the lock would be gone before anything is written."""


def install(connection: Connection | Session) -> None:
    """Create the table and the function if they are not there. The caller commits."""
    plain = connection if isinstance(connection, Connection) else connection.connection()
    plain.exec_driver_sql(sql.schema())


def fence(connection: Connection | Session, run: Run) -> None:
    """Let the run go on in this transaction, or raise StaleEpoch. Raises NoTransaction, and what SQLAlchemy raises."""
    token = token_of(run)
    plain = connection if isinstance(connection, Connection) else connection.connection()
    if getattr(plain.connection.dbapi_connection, "autocommit", False):
        raise NoTransaction("fence() on a connection in autocommit mode (isolation_level AUTOCOMMIT)")
    with _refusals(token):
        plain.execute(_CALL, {"namespace": token.namespace, "task": token.task_id, "epoch": token.epoch})


async def fence_async(connection: AsyncConnection | AsyncSession, run: Run) -> None:
    """As `fence`, for an asynchronous connection or session."""
    await connection.run_sync(fence, run)


@contextmanager
def _refusals(token: Token) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
        if state != sql.STALE_SQLSTATE:
            raise
        diagnosis = getattr(error.orig, "diag", None)
        raise sql.stale(token, getattr(diagnosis, "message_detail", None)) from error

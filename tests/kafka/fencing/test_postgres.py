"""A stale epoch's write fails within its own transaction, on a PostgreSQL of the test's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from fencepost import RunContext
from fencepost.fencing import StaleEpoch, Token, postgres
from fencepost.fencing import sqlalchemy as through_sqlalchemy
from fencepost.fencing.sql import STALE_SQLSTATE
from tests.fencing import servers


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Postgres]:
    with servers.postgres() as server:
        yield server


@pytest.fixture
def dsn(server: servers.Postgres) -> Iterator[str]:
    """A database with the guard and a table to write to."""
    with psycopg.connect(server.dsn) as connection:
        postgres.install(connection)
        postgres.install(connection)  # again changes nothing
        connection.execute("CREATE TABLE ledger (epoch bigint, text text)")
    yield server.dsn
    with psycopg.connect(server.dsn) as connection:
        connection.execute("DROP TABLE ledger, fencepost_epochs; DROP FUNCTION fencepost_fence")


def run(epoch: int, task: str = "billing") -> RunContext:
    return RunContext(task, epoch)


def write(dsn: str, epoch: int, task: str = "billing") -> None:
    with psycopg.connect(dsn) as connection:
        postgres.fence(connection, run(epoch, task))
        connection.execute("INSERT INTO ledger VALUES (%s, %s)", (epoch, task))


def ledger(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        return [epoch for (epoch,) in connection.execute("SELECT epoch FROM ledger ORDER BY epoch").fetchall()]


def test_a_stale_epoch_is_refused_and_an_equal_or_newer_one_is_not(dsn: str) -> None:
    write(dsn, 2)
    write(dsn, 2)
    write(dsn, 5)
    with pytest.raises(StaleEpoch, match="billing: epoch 4 is stale, epoch 5 was here already") as refused:
        write(dsn, 4)
    assert (refused.value.task, refused.value.epoch, refused.value.newest) == ("billing", 4, 5)
    assert ledger(dsn) == [2, 2, 5]


def test_tasks_and_namespaces_have_epochs_of_their_own(dsn: str) -> None:
    write(dsn, 9)
    write(dsn, 1, "задача/1")
    with psycopg.connect(dsn) as connection:
        postgres.fence(connection, Token("other", "billing", 1))
    assert ledger(dsn) == [1, 9]


def test_a_stale_run_that_goes_on_regardless_commits_nothing(dsn: str) -> None:
    """Not the guard's word alone: PostgreSQL itself has failed the transaction, and what was in it before."""
    write(dsn, 2)
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO ledger VALUES (1, 'before')")
        with pytest.raises(StaleEpoch) as refused:
            postgres.fence(connection, run(1))
        assert isinstance(refused.value.__cause__, psycopg.Error)
        assert refused.value.__cause__.sqlstate == STALE_SQLSTATE
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("INSERT INTO ledger VALUES (1, 'after')")
        connection.commit()  # which rolls back, as the transaction has failed
    assert ledger(dsn) == [2]


def test_two_runs_take_turns_and_the_older_one_does_not_get_in_between(dsn: str) -> None:
    """The old run is past its fence and has not committed: the new one waits; and the other way round."""
    old, new = psycopg.connect(dsn), psycopg.connect(dsn)
    with old, new:
        postgres.fence(old, run(1))
        waits = threading.Thread(target=postgres.fence, args=(new, run(2)))
        waits.start()
        await_lock(dsn)
        old.execute("INSERT INTO ledger VALUES (1, 'in time')")
        old.commit()
        waits.join(30)
        refused: list[BaseException] = []

        def try_again() -> None:
            try:
                postgres.fence(old, run(1))
            except StaleEpoch as error:
                refused.append(error)

        late = threading.Thread(target=try_again)
        late.start()
        await_lock(dsn)
        new.execute("INSERT INTO ledger VALUES (2, 'newer')")
        new.commit()
        late.join(30)
        assert len(refused) == 1
        old.rollback()
    assert ledger(dsn) == [1, 2]


def await_lock(dsn: str) -> None:
    """Until somebody waits for somebody else's transaction."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        while connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
            pass


def test_a_new_run_whose_transaction_fails_leaves_no_epoch_behind(dsn: str) -> None:
    write(dsn, 1)
    with psycopg.connect(dsn) as connection:
        postgres.fence(connection, run(2))
        connection.rollback()
    write(dsn, 1)
    assert ledger(dsn) == [1, 1]


def test_a_frozen_run_inside_its_transaction_is_ended_by_the_server_if_it_is_told_to(dsn: str) -> None:
    with psycopg.connect(dsn) as frozen:
        frozen.execute("SET idle_in_transaction_session_timeout = '200ms'")
        frozen.commit()
        postgres.fence(frozen, run(1))
        frozen.execute("INSERT INTO ledger VALUES (1, 'never committed')")
        write(dsn, 2)  # waits until the server has ended the frozen one's session
        with pytest.raises(psycopg.Error, match=r"idle-in-transaction|closed"):
            frozen.commit()
        frozen.close()
    assert ledger(dsn) == [2]


def test_a_serializable_transaction_that_began_before_the_newer_run_is_refused_too(dsn: str) -> None:
    write(dsn, 1)
    with psycopg.connect(dsn) as old:
        old.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        assert old.execute("SELECT count(*) FROM ledger").fetchone() == (1,)
        write(dsn, 2)
        with pytest.raises(psycopg.errors.SerializationFailure):
            postgres.fence(old, run(1))
        old.rollback()
        with pytest.raises(StaleEpoch):
            postgres.fence(old, run(1))
        old.rollback()
    assert ledger(dsn) == [1, 2]


def test_without_a_transaction_it_is_refused_to_pretend(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        with pytest.raises(postgres.NoTransaction, match=r"connection\.transaction"):
            postgres.fence(connection, run(1))
        with connection.transaction():
            postgres.fence(connection, run(1))
    engine = sa.create_engine("postgresql+psycopg://", connect_args=libpq(dsn), isolation_level="AUTOCOMMIT")
    with engine.connect() as plain, pytest.raises(through_sqlalchemy.NoTransaction):
        through_sqlalchemy.fence(plain, run(1))
    engine.dispose()


@pytest.mark.parametrize("epoch", [0, -1, True, "7", 2**63], ids=repr)
def test_what_is_no_epoch_is_refused_before_anything_is_sent(dsn: str, epoch: object) -> None:
    with psycopg.connect(dsn) as connection, pytest.raises(ValueError, match="epoch: "):
        postgres.fence(connection, RunContext("billing", epoch))  # type: ignore[arg-type]


def test_the_same_through_an_asynchronous_connection(dsn: str) -> None:
    async def go() -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            await postgres.fence_async(connection, run(2))
            await connection.commit()
            with pytest.raises(StaleEpoch):
                await postgres.fence_async(connection, run(1))

    asyncio.run(go())


def libpq(dsn: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in dsn.split())


def test_sqlalchemy_sessions_and_connections_are_guarded(dsn: str) -> None:
    engine = sa.create_engine("postgresql+psycopg://", connect_args=libpq(dsn))
    with engine.begin() as connection:
        through_sqlalchemy.install(connection)
        through_sqlalchemy.fence(connection, run(2))
        connection.execute(sa.text("INSERT INTO ledger VALUES (2, 'core')"))
    with Session(engine) as session, session.begin():
        through_sqlalchemy.fence(session, run(3))
        session.execute(sa.text("INSERT INTO ledger VALUES (3, 'orm')"))
    with Session(engine) as session:
        session.execute(sa.text("INSERT INTO ledger VALUES (1, 'before')"))
        with pytest.raises(StaleEpoch) as refused:
            through_sqlalchemy.fence(session, run(1))
        assert refused.value.newest == 3
        with pytest.raises(sa.exc.DBAPIError):
            session.execute(sa.text("INSERT INTO ledger VALUES (1, 'after')"))
        session.rollback()
    engine.dispose()
    assert ledger(dsn) == [2, 3]


def test_sqlalchemys_other_errors_stay_what_they_are(dsn: str) -> None:
    engine = sa.create_engine("postgresql+psycopg://", connect_args=libpq(dsn))
    with psycopg.connect(dsn) as connection:
        connection.execute("ALTER FUNCTION fencepost_fence RENAME TO elsewhere")
    try:
        with engine.connect() as plain, pytest.raises(sa.exc.ProgrammingError):
            through_sqlalchemy.fence(plain, run(1))
        with psycopg.connect(dsn) as connection, pytest.raises(psycopg.errors.UndefinedFunction):
            postgres.fence(connection, run(1))
    finally:
        engine.dispose()
        with psycopg.connect(dsn) as connection:
            connection.execute("ALTER FUNCTION elsewhere RENAME TO fencepost_fence")


def test_sqlalchemys_asynchronous_sessions_are_guarded(dsn: str) -> None:
    async def go() -> None:
        engine = create_async_engine("postgresql+psycopg://", connect_args=libpq(dsn))
        async with engine.begin() as connection:
            await through_sqlalchemy.fence_async(connection, run(2))
        async with engine.connect() as connection:
            with pytest.raises(StaleEpoch):
                await through_sqlalchemy.fence_async(connection, run(1))
        await engine.dispose()

    asyncio.run(go())

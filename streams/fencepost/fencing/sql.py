"""What both ways to PostgreSQL share: the SQL that is shipped, the call, and how its refusal is known."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from fencepost.fencing.stale import StaleEpoch
from fencepost.fencing.token import Token

STALE_SQLSTATE: Final = "ZF001"


def schema() -> str:
    """The table `fencepost_epochs` and the function `fencepost_fence`; running it again changes nothing."""
    return (files("fencepost.fencing") / "postgres.sql").read_text(encoding="utf-8")


def stale(token: Token, detail: str | None) -> StaleEpoch:
    """The refusal as the guards raise it; `detail` is what the function said: the newest epoch."""
    return StaleEpoch(token.task_id, token.epoch, int(detail) if detail is not None and detail.isdecimal() else None)


if __name__ == "__main__":  # python -m fencepost.fencing.sql | psql
    print(schema())

"""`fencepost rules` that dies of SIGKILL after Kafka acknowledged the triggers of a batch, before its offsets count."""

from __future__ import annotations

import os
import signal

from fencepost.cli.main import main
from fencepost.views.intake import Intake
from fencepost.views.record import SourceRecord

BATCHES = 2  # this many are committed first


class _Bent:
    committed = 0


_commit = Intake._commit


async def _die_instead(self: Intake, records: list[SourceRecord]) -> None:
    if _Bent.committed == BATCHES:
        os.kill(os.getpid(), signal.SIGKILL)
    _Bent.committed += 1
    await _commit(self, records)


if __name__ == "__main__":
    Intake._commit = _die_instead  # type: ignore[method-assign]
    main()

"""Imported before anything heavy: as a container's first process Python ignores SIGTERM until somebody handles it."""

from __future__ import annotations

import os
import signal


def leave(number: int, _frame: object) -> None:
    """Nothing has begun yet, so there is nothing to drain."""
    os._exit(128 + number)


if os.getpid() == 1:
    signal.signal(signal.SIGTERM, leave)

"""An app that starts a thread when it is imported, as a client made at import does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

threading.Thread(target=threading.Event().wait, daemon=True).start()


class _App:
    def handlers(self) -> dict[str, Callable[..., Any]]:
        return {}

    def declared(self) -> list[dict[str, Any]]:
        return []


app = _App()

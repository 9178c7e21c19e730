"""Small numbers out of many."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


def quantile(ordered: list[float], share: float) -> float:
    """The smallest value that at least `share` of the sorted values do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Iterable[float]) -> dict[str, Any]:
    """Least, median and most."""
    ordered = sorted(values)
    return {"min": ordered[0], "median": quantile(ordered, 0.5), "max": ordered[-1], "values": ordered}


def distribution(values: Iterable[float]) -> dict[str, Any]:
    """Count, p50, p90, p99, most."""
    ordered = sorted(values)
    return {
        "count": len(ordered),
        "min": ordered[0],
        "p50": quantile(ordered, 0.5),
        "p90": quantile(ordered, 0.9),
        "p99": quantile(ordered, 0.99),
        "max": ordered[-1],
    }

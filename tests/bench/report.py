"""The table for people and the JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fencepost.codec import dumps
from tests.bench.bench import Result


def table(machine: dict[str, Any], results: Iterable[Result], quick: bool) -> str:
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, Linux {machine['kernel']}",
        f"Python {machine['python']}, Apache Kafka {machine['kafka']} (one node), commit {machine['commit'][:12]}"
        + (" with changes not committed" if machine["uncommitted_changes"] else ""),
    ]
    if quick:
        lines.append("quick: small numbers, not for comparing")
    results = list(results)
    width = max((len(what) for result in results for what, _ in result.rows), default=0)
    for result in results:
        used = result.figures["other_cores"]
        lines += ["", f"{result.name}  (load before: {result.figures['load_average_before']:.1f})" + _disturbed(used)]
        lines += [f"  {what:<{width}}  {text}" for what, text in result.rows]
        lines += [f"  {'reached' if goal.reached else 'NOT reached'}: {goal.text}" for goal in result.goals]
    return "\n".join(lines)


def _disturbed(other_cores: float) -> str:
    if other_cores < 0.15:
        return ""
    return f"  DISTURBED: other programs used {other_cores:.1f} cores"


def document(machine: dict[str, Any], results: Iterable[Result], quick: bool) -> dict[str, Any]:
    return {
        "machine": machine,
        "quick": quick,
        "measurements": {
            result.name: {
                **result.figures,
                "goals": [{"goal": goal.text, "reached": goal.reached} for goal in result.goals],
            }
            for result in results
        },
    }


def save(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dumps(content) + b"\n")

"""What a campaign measured, as JSON, as a table for a terminal, and as the tables of docs/guarantees.md.

python -m tests.faults.figures fill docs/figures/faults.json docs/guarantees.md    puts the tables into the page
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.faults.campaign import Campaign


def document(campaign: Campaign, seed: int, seconds: float, command: list[str]) -> dict[str, Any]:
    return {
        "runs": [{"command": " ".join(command), "seed": seed, "seconds": round(seconds, 1)}],
        "holds": campaign.holds,
        "arenas": [asdict(arena) | {"holds": arena.holds, "seed": seed} for arena in campaign.arenas],
    }


def merge(bodies: list[dict[str, Any]]) -> dict[str, Any]:
    """Campaigns that ran one after the other, or side by side, as one."""
    return {
        "runs": [item for body in bodies for item in body["runs"]],
        "holds": all(body["holds"] for body in bodies),
        "arenas": [arena for body in bodies for arena in body["arenas"]],
    }


def entries(body: dict[str, Any]) -> Iterable[tuple[dict[str, Any], dict[str, Any]]]:
    """(arena, entry) of every fault that was injected."""
    for arena in body["arenas"]:
        for this in arena["rounds"]:
            for entry in this["entries"]:
                if not (entry["problem"] or "").startswith("not injected"):
                    yield arena, entry


def quantile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


def spread(values: list[float]) -> str:
    if not values:
        return "not measured"
    p50, p95 = quantile(values, 0.5), quantile(values, 0.95)
    return f"{p50:.1f} / {p95:.1f} / {max(values):.1f} ({len(values)})"


def by_kind(body: dict[str, Any]) -> list[list[str]]:
    """Rows: fault, one node, three nodes, overlaps, slots lost or doubled, waiting tasks, interrupted runs."""
    found: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = defaultdict(list)
    for arena, entry in entries(body):
        found[entry["kind"]].append((arena, entry))
    rows = []
    for kind, pairs in sorted(found.items()):
        one = sum(arena["setting"]["nodes"] == 1 for arena, _ in pairs)
        overlaps = sum(entry["overlaps"] for _, entry in pairs)
        slots = sum(entry["slots_wrong"] for _, entry in pairs)
        rows.append([kind, str(one), str(len(pairs) - one), str(overlaps), str(slots)])
    total = [str(sum(int(row[place]) for row in rows)) for place in range(1, 5)]
    return [*rows, ["all", *total]]


def takeovers(body: dict[str, Any]) -> list[list[str]]:
    """Rows: profile, protocol, when, then p50 / p95 / max (count) of waiting tasks, of interrupted runs, in seconds."""
    waiting: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    interrupted: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for arena, entry in entries(body):
        if entry["lasts"] and not entry["problem"]:
            when = "at rest" if entry["settled"] else "while partitions were moving"
            key = (arena["setting"]["profile"], arena["setting"]["protocol"], when)
            waiting[key] += entry["waiting_s"]
            interrupted[key] += entry["interrupted_s"]
    keys = sorted(set(waiting) | set(interrupted))
    return [[*key, spread(waiting[key]), spread(interrupted[key])] for key in keys]


def brokers(body: dict[str, Any]) -> list[list[str]]:
    """Rows: nodes, profile, seed, fault, count, long runs on, of these ended, how long tasks waited; at rest only."""
    found: dict[tuple[int, str, int, str], list[dict[str, Any]]] = defaultdict(list)
    for arena, entry in entries(body):
        setting, kind = arena["setting"], entry["kind"]
        stalls = kind.startswith(("broker", "network: broker and", "network: from", "group"))
        if entry["settled"] and (entry["runs_on"] or stalls):
            found[setting["nodes"], setting["profile"], arena["seed"], kind].append(entry)
    rows = []
    for (nodes, profile, seed, kind), those in sorted(found.items()):
        on, ended = sum(entry["runs_on"] for entry in those), sum(entry["runs_ended"] for entry in those)
        stall = spread([seconds for entry in those for seconds in entry["waiting_s"]])
        rows.append([str(nodes), profile, str(seed), kind, str(len(those)), str(on), str(ended), stall])
    return rows


def evidence(body: dict[str, Any]) -> list[list[str]]:
    """Rows: what was looked at, and how much of it."""
    names = {
        "lines": "witness lines",
        "runs": "runs",
        "slots": "slots that had to be accounted for",
        "done": "of these: run to their end",
        "left_out": "left out, with a cause on record",
        "repeated": "run again after an interruption on record",
    }
    sums = {name: sum(arena["counts"].get(name, 0) for arena in body["arenas"]) for name in names}
    verified = sum(arena["verify_code"] == 0 for arena in body["arenas"])
    return [
        ["faults", f"{sum(1 for _ in entries(body)):,}"],
        ["arenas (a cluster, three workers, about 130 tasks each)", str(len(body["arenas"]))],
        ["hours, of all campaigns", f"{sum(item['seconds'] for item in body['runs']) / 3600:.1f}"],
        *([text, f"{sums[name]:,}"] for name, text in names.items()),
        ["guards that ended themselves without a fault", str(sum(arena["guards_lost"] for arena in body["arenas"]))],
        ["arenas in which `fencepost verify` ended with 0", f"{verified} of {len(body['arenas'])}"],
    ]


def cannot(body: dict[str, Any]) -> list[list[str]]:
    """Rows: kinds of faults that were never injected, and why."""
    done = {entry["kind"] for _, entry in entries(body)}
    reasons: dict[str, str] = {}
    for arena in body["arenas"]:
        reasons.update({kind: reason for kind, reason in arena["cannot"].items() if kind not in done})
    from tests.faults.kinds import ALL

    for kind in ALL:
        if kind.name not in done:
            reasons.setdefault(kind.name, "not drawn")
    return [[kind, reason] for kind, reason in sorted(reasons.items())] or [["none", "every kind was injected"]]


def commands(body: dict[str, Any]) -> list[list[str]]:
    """Rows: what was run, and how long it took."""
    return [[f"`{item['command']}`", f"{item['seconds'] / 60:.0f} min"] for item in body["runs"]]


def broken(body: dict[str, Any]) -> list[list[str]]:
    """Rows: where, and what the judges or the campaign itself did not like."""
    rows = []
    for arena in body["arenas"]:
        setting = arena["setting"]
        where = f"{setting['nodes']} brokers, {setting['profile']}, {setting['protocol']}"
        texts = dict.fromkeys([*arena["violations"], *map(_shortened, arena["problems"])])
        rows += [[where, text.replace("|", "/").replace("\n", " ")] for text in texts]
    return rows or [["nowhere", "nothing"]]


def _shortened(text: str) -> str:
    """What `verify` found, without its places; of anything else the beginning."""
    found = re.findall(r"'kind': '(\w+)', 'task': '([^']+)'.*?'text': '([^']+)'", text)
    if found:
        return "verify: " + "; ".join(f"{kind}: {task}: {what}" for kind, task, what in found[:4])
    return text if len(text) <= 240 else f"{text[:240]} …"


HEADS = {
    "commands": ["command", "took"],
    "evidence": ["what", "how much"],
    "faults": ["fault", "one broker", "three brokers", "overlaps", "slots lost or doubled"],
    "takeovers": ["profile", "group protocol", "when", "waiting tasks", "interrupted runs"],
    "brokers": ["brokers", "profile", "seed", "fault", "times", "long runs on", "of these ended", "waiting tasks"],
    "broken": ["where", "what"],
    "cannot": ["fault", "why it was not injected"],
}
ROWS = {
    "commands": commands,
    "evidence": evidence,
    "faults": by_kind,
    "takeovers": takeovers,
    "brokers": brokers,
    "broken": broken,
    "cannot": cannot,
}


def as_text(body: dict[str, Any]) -> str:
    parts = []
    for name, head in HEADS.items():
        table = [head, *ROWS[name](body)]
        widths = [max(len(row[place]) for row in table) for place in range(len(head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        parts.append("\n".join(["", *lines]))
    problems = [text for arena in body["arenas"] for text in [*arena["violations"], *arena["problems"]]]
    verdict = "the promise holds" if body["holds"] else f"{len(problems)} problems"
    return "\n".join([*parts, "", *(f"! {text}" for text in problems[:40]), verdict])


def as_markdown(name: str, body: dict[str, Any]) -> str:
    rows = [HEADS[name], ["---"] * len(HEADS[name]), *ROWS[name](body)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def fill(page: str, body: dict[str, Any]) -> str:
    """The page with each table between `<!-- NAME: begin -->` and `<!-- NAME: end -->` made anew."""
    for name in HEADS:
        pattern = rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)"
        table = as_markdown(name, body)
        page, count = re.subn(
            pattern, lambda found, table=table: f"{found[1]}{table}\n{found[2]}", page, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"the page has {count} places for the table {name!r}")
    return page


def main(arguments: list[str]) -> int:
    match arguments:
        case ["merge", out, first, *more]:
            bodies = [json.loads(Path(file).read_text(encoding="utf-8")) for file in (first, *more)]
            Path(out).write_text(json.dumps(merge(bodies), indent=1, sort_keys=True) + "\n", encoding="utf-8")
        case ["fill", figures, page]:
            body = json.loads(Path(figures).read_text(encoding="utf-8"))
            Path(page).write_text(fill(Path(page).read_text(encoding="utf-8"), body), encoding="utf-8")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

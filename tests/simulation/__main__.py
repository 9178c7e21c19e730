"""Run histories.

    python -m tests.simulation --seed 52 --trace       one history, step by step
    python -m tests.simulation --histories 10000       many, from seed 0 (or --seed) on
    python -m tests.simulation --histories 500 --without guard

Exit code 1: something was found.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack

from tests.simulation.campaign import broken, campaign
from tests.simulation.history import run
from tests.simulation.install import installed
from tests.simulation.plan import ALL_THEMES
from tests.simulation.safeguards import SAFEGUARDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.split("\n")[0])
    parser.add_argument("--histories", type=int, default=1, help="how many, from the seed on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one for each CPU)")
    parser.add_argument("--theme", choices=sorted(ALL_THEMES), help="the kind of faults; else drawn")
    parser.add_argument("--without", choices=sorted(SAFEGUARDS), metavar="SAFEGUARD", help=", ".join(SAFEGUARDS))
    parser.add_argument("--trace", action="store_true", help="print the steps of one history")
    given = parser.parse_args()
    if given.histories > 1:
        if given.trace:
            parser.error("--trace is for one history")
        tally = campaign(given.seed, given.histories, given.jobs, given.theme, given.without, _say)
        _say(", ".join(f"{theme} {count:,}" for theme, count in sorted(tally.themes.items())))
        return 1 if tally.broken else 0
    with ExitStack() as held:
        held.enter_context(installed())
        if given.without is not None:
            held.enter_context(SAFEGUARDS[given.without].off())
        outcome = run(given.seed, given.theme, _say if given.trace else None)
    _say(
        f"seed {given.seed} ({outcome.plan.theme}): {outcome.runs} runs, {outcome.steps:,} steps, "
        f"{outcome.virtual_s:.1f} s of virtual time"
    )
    if outcome.holds:
        return 0
    _say(
        broken(
            given.seed, tuple(f"{found.kind}: {found.text}" for found in outcome.violations), given.theme, given.without
        )
    )
    return 1


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())

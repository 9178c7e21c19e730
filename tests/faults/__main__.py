"""`python -m tests.faults`: a campaign of faults against real brokers and workers, as long as it takes.

python -m tests.faults --faults 1000 --seed 1 --json faults.json
python -m tests.faults --faults 20 --seed 7 --nodes 3 --protocol classic --only SIGKILL
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from datetime import datetime
from pathlib import Path

from fencepost.settings import PROFILES
from tests.faults import figures
from tests.faults.arena import Setting
from tests.faults.campaign import ROUNDS, Campaign
from tests.faults.kinds import ALL


def main(arguments: list[str]) -> int:
    chosen = _parser().parse_args(arguments)
    if chosen.list:
        for kind in ALL:
            print(kind.name)
        return 0
    campaign = Campaign(
        chosen.faults,
        chosen.seed,
        lambda number, dice: setting(number, dice, chosen),
        _say,
        tuple(chosen.only),
        last=not chosen.only or any("partitions" in word for word in chosen.only),
        rounds=chosen.rounds,
        keep=chosen.keep,
        until_s=chosen.until,
    )
    began_s = time.time()
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has it ignored: what was made has to go
        signal.signal(number, signal.default_int_handler)
    try:
        campaign.run()
    finally:
        body = figures.document(
            campaign, chosen.seed, time.time() - began_s, ["python", "-m", "tests.faults", *arguments]
        )
        if chosen.json is not None:
            chosen.json.parent.mkdir(parents=True, exist_ok=True)
            chosen.json.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n")
        print(figures.as_text(body))
    return 0 if campaign.holds else 1


def setting(number: int, dice: random.Random, chosen: argparse.Namespace) -> Setting:
    """Arena after arena all combinations come, unless something is asked for."""
    nodes = chosen.nodes or (1, 1, 3)[number % 3]
    freezer = 1 + dice.randrange(2)
    return Setting(
        nodes=nodes,
        protocol=chosen.protocol or ("consumer", "classic")[number // 3 % 2],
        profile=chosen.profile or ("quick" if nodes == 1 else "swift"),
        tasks=chosen.tasks,
        static=number % 2 == 0,
        freezer=freezer,
        commands=freezer == 2 or chosen.v1_commands,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Faults on real brokers and workers.")
    parser.add_argument("--faults", type=_positive, default=100, help="how many to inject (100)")
    parser.add_argument("--seed", type=int, default=1, help="decides which, on whom and when (1)")
    parser.add_argument("--nodes", type=int, choices=[1, 3], help="brokers; by default 1 and 3 in turn")
    parser.add_argument("--protocol", choices=["classic", "consumer"], help="of the group; by default in turn")
    parser.add_argument(
        "--profile", choices=sorted(PROFILES), help="by default quick with one broker, swift with three"
    )
    parser.add_argument("--tasks", type=_positive, default=100, help="short tasks with a schedule (100)")
    parser.add_argument("--rounds", type=_positive, default=ROUNDS, help=f"rounds of faults in one arena ({ROUNDS})")
    parser.add_argument("--only", action="append", default=[], help="faults whose name holds this; may be repeated")
    parser.add_argument(
        "--v1-commands", action="store_true", help="commands also where workers are frozen by cgroup v1"
    )
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--keep", type=Path, help="a folder for the logs of arenas in which something did not hold")
    parser.add_argument("--until", type=_moment, help="begin no round after this time (RFC 3339)")
    parser.add_argument("--list", action="store_true", help="print all kinds of faults and end")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("1 at least")
    return number


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

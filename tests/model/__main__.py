"""`python -m tests.model`: run cases of the model, and say whether each came out as it has to.

    --list          the cases
    NAME...         these, with the shortest counterexample of those that break
    --all           all of them (else the small ones)

Exit code 0 if all came out as they have to, 1 if not, 2 for a wrong argument.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.model.cases import Case, load
from tests.model.spin import ModelBroken, SpinMissing, Verdict, check, need_tools

LIMIT_S = 1800.0
MEMORY_MIB = 8000  # of all checkers together


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    cases = {case.name: case for case in load()}
    unknown = [name for name in options.names if name not in cases]
    if unknown:
        print(f"no case {', '.join(unknown)}; known are {', '.join(cases)}", file=sys.stderr)
        return 2
    if options.list:
        for case in cases.values():
            macros = " ".join(f"{macro}={value}" for macro, value in case.macros)
            print(f"{case.name:26} {case.size:6} {case.expected:10} {case.off or '-':24} {macros}")
        return 0
    chosen = [cases[name] for name in options.names] or [
        case for case in cases.values() if options.all or case.size == "small"
    ]
    try:
        need_tools()
        return _run(chosen, options.jobs, options.limit_s, options.memory_mib, traces=bool(options.names))
    except (SpinMissing, ModelBroken) as problem:
        print(f"fencepost: {problem}", file=sys.stderr)
        return 1


def _run(cases: list[Case], jobs: int, limit_s: float, memory_mib: int, *, traces: bool) -> int:
    wrong: list[str] = []
    states = 0
    with ThreadPoolExecutor(jobs) as pool:
        under_way = [pool.submit(check, case, limit_s, memory_mib // jobs) for case in cases]
        try:
            for number, done in enumerate(as_completed(under_way), 1):
                verdict = done.result()
                states += verdict.states
                wrong += [] if verdict.as_expected else [verdict.case.name]
                print(f"[{number}/{len(cases)}] {_line(verdict)}", flush=True)
                if traces and verdict.trace:
                    print("\n".join(f"    {step}" for step in verdict.trace))
        finally:
            for done in under_way:
                done.cancel()
    print(f"{len(cases)} cases, {states:,} states; not as expected: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


def _line(verdict: Verdict) -> str:
    case = verdict.case
    found = verdict.found if verdict.as_expected else f"{verdict.found}, EXPECTED {case.expected}"
    off = f"without {case.off}: " if case.off else ""
    return (
        f"{case.name:26} {off}{found}  ({verdict.states:,} states, {verdict.seconds:.1f} s, {verdict.memory_mib:,} MiB)"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="Check the model of the protocol.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these cases, with their counterexamples")
    parser.add_argument("--all", action="store_true", help="all cases, not only the small ones")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="how long one may take")
    parser.add_argument("--memory-mib", type=int, default=MEMORY_MIB, help="how much memory all of them may take")
    return parser


if __name__ == "__main__":
    sys.exit(main())

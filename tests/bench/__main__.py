"""python -m tests.bench [--only NAME]... [--quick] [--out FILE]

Measures everything in one run, prints a table and saves JSON. Exit code 1 if a measurement could not be made; a goal
that is not reached is a figure, not a failure.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from fencepost.broker import BrokerError, Cluster
from fencepost.kafka.errors import KafkaProblem
from tests.bench import burst, latency, machine, million, report, takeover, throughput
from tests.bench.bench import Bench, Measurement, Result
from tests.bench.processes import BenchError, Processes

MEASUREMENTS: dict[str, Measurement] = {
    "throughput": throughput.measure,
    "latency": latency.measure,
    "takeover": takeover.measure,
    "million": million.measure,
    "burst": burst.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    # A broker that has just started is asked again until it answers; that is no news here.
    logging.getLogger("fencepost.kafka.client").setLevel(logging.CRITICAL)
    facts = machine.describe()
    results: list[Result] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            with Processes(folder) as processes, Cluster(folder / "kafka", heap_mb=1024) as cluster:
                facts["kafka"] = cluster.version
                bench = Bench(processes, cluster, folder, options.quick)
                for each in options.only or MEASUREMENTS:
                    _measure(bench, each, results, failed)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except BrokerError as error:
            print(f"the benchmark cannot be made: {error}", file=sys.stderr)
            return 1
    print(report.table(facts, results, options.quick))
    out = (
        options.out or machine.REPOSITORY / "bench-results" / f"{time.strftime('%Y-%m-%dT%H%M%SZ', time.gmtime())}.json"
    )
    report.save(out, report.document(facts, results, options.quick))
    print(f"\nsaved as {os.path.relpath(out)}")
    for line in failed:
        print(f"FAILED: {line}")
    return 1 if failed else 0


def _measure(bench: Bench, name: str, results: list[Result], failed: list[str]) -> None:
    """One measurement; that one cannot be made is no reason to leave out the others."""
    print(name, file=sys.stderr)
    load, busy = (
        os.getloadavg()[0],
        machine.Busy([pid for n in bench.cluster.running() if (pid := bench.cluster.pid(n))]),
    )
    try:
        result = MEASUREMENTS[name](bench)
    except (BenchError, KafkaProblem) as error:
        print(f"{name} failed: {error}", file=sys.stderr)
        failed.append(f"{name}: {str(error).splitlines()[0]}")
        return
    result.figures |= {"load_average_before": load, "other_cores": busy.other_cores()}
    results.append(result)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure Fencepost beside others.")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="may be given more than once")
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that all works")
    parser.add_argument("--out", type=Path, help="the JSON file; by default one in bench-results/")
    return parser.parse_args(arguments)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

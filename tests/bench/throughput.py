"""No-op runs a second, end to end, side by side.

Everything is produced first, then the worker is started. Counted is from the first run's start to the last one's
recorded end: for Fencepost by the times at which the broker appended the committed `started` and `succeeded` records
(read afterwards, so that counting costs nothing); for the peers from the first task's first line to the last one's,
which leaves their last acknowledgement out, in their favour.
"""

from __future__ import annotations

from typing import Any

from tests.bench.bench import Bench, Result, say
from tests.bench.kafka_side import Namespace, cpu_s
from tests.bench.peers.side import CELERY, DRAMATIQ, PeerSide
from tests.bench.processes import running
from tests.bench.redis_server import find_redis, redis, version
from tests.bench.stats import spread

WORKER_S = 300.0


def measure(bench: Bench) -> Result:
    result = Result("throughput")
    rounds = bench.choose(5, 2)
    many, few = bench.choose(200_000, 20_000), bench.choose(10_000, 2_000)
    fencepost = [_fencepost(bench.namespace(), many) for _ in range(rounds)]
    same = [_fencepost(bench.namespace(), few) for _ in range(rounds)]
    rates = {"fencepost": _rates(fencepost), "fencepost, as few tasks as the peers": _rates(same)}
    result.figures["rounds"] = {"fencepost": fencepost, "fencepost_few": same}
    with redis(bench.processes, bench.folder) as url:
        for peer in (CELERY, DRAMATIQ):
            side = PeerSide(peer, bench.processes, bench.folder, url)
            runs = []
            for _ in range(rounds):
                runs.append(side.throughput(few))
                say(f"{peer.name}: {runs[-1]['per_second']:,.0f} runs/s")
            rates[peer.name] = _rates(runs)
            result.figures["rounds"][peer.name] = runs
            result.figures[peer.name] = {"settings": peer.settings, "versions": peer.versions()}
    result.figures["redis"] = version(find_redis())
    result.figures["per_second"] = rates
    _report(result, rates, many, few)
    return result


def _fencepost(namespace: Namespace, tasks: int) -> dict[str, Any]:
    """One worker, shared runners, as many IDs as triggers."""
    ids = [f"noop/{number}" for number in range(tasks)]
    namespace.produce(namespace.topics.triggers, ((task, {"payload": {"n": n}}) for n, task in enumerate(ids)))
    worker = namespace.start_worker()
    with running(worker.program):
        namespace.wait_written(namespace.topics.runs, 2 * tasks, WORKER_S, [worker.program])
        tree = worker.tree()
        used = {"worker_cpu_s": cpu_s(tree[:1]), "runners_cpu_s": cpu_s(tree[1:])}
    changes = namespace.changes()
    changes.require_each_once(ids)
    seconds = (changes.last_succeeded_ms - changes.first_started_ms) / 1000
    say(f"fencepost: {tasks / seconds:,.0f} runs/s ({tasks:,} tasks)")
    return {"tasks": tasks, "seconds": seconds, "per_second": tasks / seconds, **used}


def _rates(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return spread(run["per_second"] for run in runs)


def _report(result: Result, rates: dict[str, dict[str, Any]], many: int, few: int) -> None:
    own = rates["fencepost"]["median"]
    for name, rate in rates.items():
        tasks = many if name == "fencepost" else few
        text = f"{rate['min']:>10,.0f} {rate['median']:>10,.0f} {rate['max']:>10,.0f}   ({tasks:,} tasks)"
        result.row(f"no-op runs/s, {name}: min, median, max", text)
    for name in (CELERY.name, DRAMATIQ.name):
        result.figures[f"ratio_to_{name}"] = own / rates[name]["median"]
        result.row(f"Fencepost to {name}, medians", f"{own / rates[name]['median']:.1f} x")
    result.goal("25,000 no-op runs/s or more in one worker", own >= 25_000)
    result.goal("10 times Dramatiq or more in the same run", own >= 10 * rates[DRAMATIQ.name]["median"])

"""`python -m fencepost.demo [--keep]`."""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.markup import escape

from fencepost.broker import BrokerError, Cluster
from fencepost.cli.verify import check as verify
from fencepost.demo.acts import Story
from fencepost.demo.crew import Crew
from fencepost.demo.proof import show_picture, show_takeovers, show_timelines, show_verify, show_witness
from fencepost.demo.show import Show
from fencepost.demo.watch import DemoFailed, Watch
from fencepost.demo.witness import Timetable, check_folder
from fencepost.demo.work import INTERVALS_MS, Shop
from fencepost.kafka.errors import KafkaProblem
from fencepost.settings import Settings

NAMESPACE = "demo"


class Told(Exception):
    """A signal says to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0: all went as promised; 1: it did not; 130, 143: ended by a signal."""
    parser = argparse.ArgumentParser(prog="python -m fencepost.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave Kafka up to look at what happened")
    keep: bool = parser.parse_args(arguments).keep
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _told)
    # The client repeats by itself what fails for a moment, and logs each time; what stays wrong is raised anyway.
    logging.getLogger("fencepost.kafka.client").setLevel(logging.CRITICAL)
    show = Show()
    folder = Path(tempfile.mkdtemp(prefix="fencepost-demo-"))
    try:
        code = _with_kafka(show, folder, keep)
    except Told as told:
        show.bad(f"{told}: ended, and everything it had started with it")
        code = told.exit_code
    except BrokerError as error:
        show.bad(escape(str(error)))
        code = 1
    if code != 0:
        show.line(f"logs and witness files are in {folder}")
    elif not keep:
        shutil.rmtree(folder)
    return code


def _told(number: int, _frame: FrameType | None) -> None:
    # Once is enough: a second signal must not end the tidying up.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise Told(number)


def _with_kafka(show: Show, folder: Path, keep: bool) -> int:
    show.act("Fencepost: one owner per task, an epoch before every run, a fenced stop")
    cluster = Cluster(folder / "kafka", detached=keep)
    kept = False
    try:
        show.line("starting Apache Kafka on this machine's loopback")
        cluster.start()
        show.done(f"[bold]Apache Kafka {cluster.version}[/] serves at {cluster.bootstrap} (one node, KRaft)")
        settings = Settings.load([], {}, {"bootstrap": cluster.bootstrap, "namespace": NAMESPACE, "profile": "quick"})
        holds = _play(show, folder, settings)
        if keep:
            _say_how_to_look(show, folder, cluster.bootstrap)
            kept = True
        return 0 if holds else 1
    finally:
        if not kept:
            cluster.discard()


def _play(show: Show, folder: Path, settings: Settings) -> bool:
    with _crew(show, folder, settings) as crew:
        shop = Shop(settings)
        story = Story(settings, folder, show, crew, shop)
        try:
            story.set_up()
            with Watch(settings, crew.witness, story.name_of, check=lambda: _check_crew(crew)) as watch:
                story.all_at_work(watch)
                story.killed(watch)
                story.frozen(watch)
                story.stopped(watch)
                until_ms = story.wind_up(watch)
        finally:
            shop.close()
    show_picture(show, watch, story.faults)
    show_timelines(show, watch, story.began_ms)
    show_takeovers(show, story.takeovers)
    show.console.print()
    topics_hold = show_verify(show, verify(settings))
    timetables = [Timetable(task, INTERVALS_MS[task], until) for task, until in until_ms.items()]
    return (
        show_witness(show, check_folder(crew.witness, timetables, watch.left_out, watch.interrupted())) and topics_hold
    )


@contextmanager
def _crew(show: Show, folder: Path, settings: Settings) -> Iterator[Crew]:
    """The workers; on failure with what they printed last."""
    crew = Crew(folder, settings.bootstrap, settings.namespace)
    try:
        yield crew
    except (DemoFailed, KafkaProblem) as error:
        show.bad(f"[bold red]{escape(str(error))}[/]")
        for path, lines in crew.tails():
            show.console.print(f"\n[dim]the end of {path}[/]", soft_wrap=True)
            for line in lines:
                show.console.print(escape(line), soft_wrap=True)
        raise SystemExit(1) from error
    finally:
        for text in crew.end():
            show.bad(escape(text))


def _check_crew(crew: Crew) -> None:
    if ended := crew.ended_early():
        raise DemoFailed(f"{ended[0]} ended by itself, exit code {crew.exit_code(ended[0])}")


def _say_how_to_look(show: Show, folder: Path, bootstrap: str) -> None:
    where = f"--bootstrap {bootstrap} --namespace {NAMESPACE}"
    show.act("Kafka stays up")
    for command, what in (
        (f"fencepost runs {where}", "every run and how it ended"),
        (f"fencepost runs --events pulse {where}", "with what was skipped or missed, and why"),
        (f"fencepost describe pulse {where}", "one task"),
        (f"kcat -C -e -b {bootstrap} -t {NAMESPACE}.runs -f '%k %s\\n'", "the records themselves"),
        (f"fencepost worker --app fencepost.demo.shop:app --profile quick {where}", "another worker"),
        (f"fencepost down --folder {folder / 'kafka'}; rm -r {folder}", "ends it and deletes it"),
    ):
        show.console.print(f"  [bold]{escape(command)}[/]", soft_wrap=True)
        show.console.print(f"    [dim]{what}[/]")
    show.console.print(f"  [dim]Any Kafka UI shows the topics {NAMESPACE}.*: point it at {bootstrap}.[/]")


if __name__ == "__main__":
    sys.exit(main())

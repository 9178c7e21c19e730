"""A lane in a process of its own, so that it can be killed and frozen: `python -m tests.kafka.lane.one_lane JSON`.

It prints what happens as lines of JSON. Its runners run nothing: a run lasts until its lease ends, or ends at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from confluent_kafka.admin import AdminClient

from fencepost.kafka.namespace import load_namespace
from fencepost.kafka.topics import Topics
from fencepost.settings import PROFILES, Settings
from fencepost.worker.orders import RunOrder, RunReport
from tests.kafka.lane.fakes import FakeRunners, succeed
from tests.kafka.lane.harness import Notes, World, make_lane


def say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}, default=str), flush=True)


class Speaking(FakeRunners):
    def launch(self, orders: Sequence[RunOrder]) -> None:
        super().launch(orders)
        for order in orders:
            say("launched", task=order.task, epoch=order.epoch)

    def take(self) -> list[RunReport]:
        reports = super().take()
        for report in reports:
            task, epoch = report.task, report.epoch
            life = self.lives.get((task, epoch))
            if life is not None and life.ended_s is not None and self.at_once is None:
                say("ended", task=task, epoch=epoch, began_s=life.began_s, ended_s=life.ended_s)
        return reports


class SpeakingNotes(Notes):
    def info(self, event: str, **fields: Any) -> None:
        say(event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        say(event, **fields)

    error = warning


def main(wanted: dict[str, Any]) -> None:
    settings = Settings(
        bootstrap=wanted["bootstrap"], namespace=wanted["namespace"], profile="quick", **PROFILES["quick"]
    )
    info = load_namespace(settings)
    runners = Speaking(settings.margin_s, at_once=succeed if wanted["at_once"] else None)
    world = World(settings, info, Topics(settings.namespace), AdminClient({"bootstrap.servers": settings.bootstrap}))
    lane = make_lane(world, worker=wanted["worker"], static=wanted["static"], runners=runners, ordinal=0)
    lane.context.log = SpeakingNotes()
    lane.open()
    while True:
        lane.lane.turn()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

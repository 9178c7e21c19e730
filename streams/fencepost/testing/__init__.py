"""For users' own tests: an app in a world with a fake clock and an in-memory log. No Kafka, no process, no waiting.

    with fencepost.testing.world(app) as world:
        world.advance("2d")
        assert [run.outcome for run in world.runs("report")] == ["succeeded", "succeeded"]

The same pure core decides as in a worker, and the same records are written, into a log that is a list; a restart reads
them back. The conformance tests of Fencepost run against this world and against a worker on a real Kafka.
"""

from __future__ import annotations

from fencepost.testing.run import Run
from fencepost.testing.world import World, world

__all__ = ["Run", "World", "world"]

"""A reader whose client gets nothing any more, while others see the logs go on."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from tests.kafka.lane.harness import World, make_lane, only_classic, running


@only_classic
def test_a_reader_that_gets_nothing_is_made_anew_and_goes_on_where_it_was(world: World) -> None:
    first, second = world.task_on(0), world.task_on(0, 1)
    lane = make_lane(world)
    with running(lane):
        lane.wait("it holds all", lane.holds_all)
        world.trigger(first)
        lane.wait("it runs", lambda: lane.runners.starts_of(first) == [1])
        lane.runners.finish(first)
        lane.wait("its end is recorded", lambda: ("succeeded", 1) in world.kinds(first))
        lane.rest()
        # Behind its back: as if the client had forgotten every broker.
        reader = lane.lane._reader
        reader._consumer.pause([TopicPartition(*place) for place in reader.positions()])
        lane.go_on()
        world.trigger(second)
        lane.wait("the next one runs", lambda: lane.runners.starts_of(second) == [1])
        lane.runners.finish(second)
        lane.wait("its end is recorded", lambda: ("succeeded", 1) in world.kinds(second))
        assert lane.notes.of("the reader gets nothing: made anew")
        assert lane.runners.starts_of(first) == [1]


@only_classic
def test_a_quiet_reader_that_has_read_everything_is_left_alone(world: World) -> None:
    lane = make_lane(world)
    with running(lane):
        lane.wait("it holds all", lane.holds_all)
        standstill = lane.lane._standstill
        judged = []
        judge = standstill._judge
        standstill._judge = lambda question: (judge(question), judged.append(standstill._behind))  # type: ignore[method-assign,assignment,return-value]
        lane.wait("two looks", lambda: len(judged) >= 2)
        assert judged[:2] == [False, False]
        assert not lane.notes.of("the reader gets nothing: made anew")

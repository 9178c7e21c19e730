from __future__ import annotations

from dataclasses import replace

from fencepost.core.commands import DropWork, Forget, GiveUp, Stop
from fencepost.core.machine import restored_task, wake_at_ms
from fencepost.core.schedule import Every
from fencepost.core.task import Outcome, Overlap, Retry, Status
from tests.core.play import HOUR, MINUTE, Play, definition


def test_the_same_definition_again_changes_nothing() -> None:
    play = Play(definition(schedule=Every(60)))
    before = play.task
    assert play.define(schedule=Every(60)) == ()
    assert play.task is before


def test_a_restored_definition_is_no_news() -> None:
    play = Play(definition(schedule=Every(60)))
    state = play.task.state
    play.task = restored_task(state)
    assert play.define(schedule=Every(60), restored=True) == ()
    assert play.task.state is state


def test_a_definition_without_schedule_leaves_no_state() -> None:
    play = Play(None)
    state = play.task.state
    play.define(restored=True)
    assert play.task.state is state


def test_i03_a_deleted_task_has_no_slots_and_skips_what_waits() -> None:
    play = Play(definition(schedule=Every(60), overlap=Overlap.BUFFER_ALL))
    play.trigger("one")
    play.trigger("two")
    play.trigger("later", run_at_ms=play.now_ms + HOUR)
    play.delete()
    assert [(told["trigger"], told["cause"]) for told in play.told("skipped")] == [
        ("one", "deleted"),
        ("two", "deleted"),
        ("later", "deleted"),
    ]
    assert len(play.of(DropWork)) == 3
    assert play.of(Forget) == [Forget()]
    assert wake_at_ms(play.task) is None
    assert not play.startable


def test_i03_a_run_that_is_on_may_end_and_then_the_task_is_forgotten() -> None:
    play = Play(definition(schedule=Every(60), retry=Retry(attempts=5)))
    play.trigger("one")
    play.start()
    play.delete()
    assert play.of(Forget) == []
    assert play.stops == []
    assert play.status is Status.RUNNING
    assert play.task.state.deleted
    play.fail()
    assert play.status is Status.IDLE
    assert play.of(Forget) == [Forget()]
    assert len(play.of(GiveUp)) == 1


def test_i03_a_run_is_stopped_where_news_go_before_runs() -> None:
    play = Play(definition(overlap=Overlap.CANCEL, grace_s=9.0))
    play.trigger("one")
    play.start()
    play.delete()
    assert play.stops == [Stop(1, "cancelled", 9.0)]
    play.end(Outcome.SUCCEEDED)
    assert play.told("cancelled")[0]["cause"] == "deleted"


def test_i03_work_in_backoff_ends_with_the_task() -> None:
    play = Play(definition(retry=Retry(attempts=5)))
    play.trigger("one")
    play.start()
    play.fail()
    play.delete()
    assert play.status is Status.IDLE
    assert play.told("cancelled")[0]["cause"] == "deleted"


def test_i03_deleting_an_unknown_task_or_twice_is_harmless() -> None:
    play = Play(None)
    before = play.task
    assert play.delete() == ()
    assert play.task is before
    play.define()
    play.delete()
    before = play.task
    assert play.delete() == ()
    assert play.task is before


def test_a_task_defined_again_goes_on_with_its_epochs() -> None:
    play = Play(definition())
    play.trigger("one")
    play.start()
    play.end()
    play.delete()
    play.define()
    assert not play.task.state.deleted
    play.trigger("two")
    play.start()
    assert play.epoch == 2


def test_a_task_defined_again_during_its_last_run_is_not_forgotten() -> None:
    play = Play(definition())
    play.trigger("one")
    play.start()
    play.delete()
    play.define()
    play.end()
    assert play.of(Forget) == []


def test_a_task_may_be_defined_as_paused_and_resumed_for_good() -> None:
    play = Play(definition(paused=True))
    play.trigger("one")
    assert not play.startable
    assert play.task.state.pause_reason == "defined as paused"
    play.resume()
    assert play.startable
    # A restart hands in the same definition: the operator's word stays.
    work = play.task.waiting[0]
    play.task = restored_task(play.task.state, [work])
    play.define(paused=True, restored=True)
    assert play.startable


def test_a_definition_that_no_longer_pauses_resumes() -> None:
    play = Play(definition(paused=True))
    play.trigger("one")
    play.define(paused=False)
    assert play.startable
    play.pause(reason="by hand")
    play.define(paused=False, description="something else")
    assert not play.startable


def test_a_task_is_put_together_again_from_its_records() -> None:
    play = Play(definition(retry=Retry(attempts=2), buffer_limit=10))
    play.trigger("large", payload="x" * 2000, size=2002)
    (large,) = play.task.waiting
    play.start()
    play.trigger("b", priority=7)
    play.trigger("a", priority=1)
    play.trigger("later", run_at_ms=play.now_ms + MINUTE)
    works = [large, *play.task.waiting, *play.task.delayed]
    assert play.task.state.work is not None
    as_read = replace(play.task.state, work=replace(play.task.state.work, payload=None))
    again = restored_task(as_read, reversed(works))
    assert again.state == play.task.state
    assert again.waiting == play.task.waiting
    assert again.delayed == play.task.delayed


def test_delayed_work_whose_time_passed_while_nobody_ran_is_admitted_at_the_next_wake() -> None:
    play = Play(definition())
    play.trigger("later", run_at_ms=play.now_ms + MINUTE)
    (work,) = play.task.delayed
    play.sleep(HOUR)
    play.task = restored_task(play.task.state, [work])
    play.define(restored=True)
    assert wake_at_ms(play.task, play.now_ms) == work.due_ms
    play.wake()
    assert play.startable

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.backoff import MAX_BACKOFF_S, backoff_ms
from fencepost.core.task import Retry, Status
from tests.core.play import Play


def test_the_delay_grows_by_the_factor_up_to_the_longest() -> None:
    retry = Retry(delay_s=1.0, factor=2.0, max_delay_s=10.0, jitter=0.0)
    assert [backoff_ms(retry, attempt, 1.0) for attempt in range(1, 7)] == [1000, 2000, 4000, 8000, 10_000, 10_000]


def test_e01_attempt_1100_still_waits_the_longest_delay() -> None:
    for factor in (2.0, 1e6):
        play = Play(None)
        retry = Retry(attempts=5000, delay_s=300.0, factor=factor, max_delay_s=1.0, jitter=0.0)
        play.define(retry=retry)
        play.trigger("one")
        for attempt in range(1, 1101):
            play.start()
            assert play.launches[-1].run.attempt == attempt
            play.fail()
            assert play.status is Status.BACKOFF
            assert play.task.state.retry_at_ms == play.now_ms + 1000
            play.sleep_until_woken()


def test_e01_the_last_of_5000_attempts_gives_up_and_the_count_is_right() -> None:
    play = Play(None)
    play.define(retry=Retry(attempts=5000, delay_s=300.0, factor=2.0, max_delay_s=1.0, jitter=0.0))
    play.trigger("one")
    for _ in range(5000):
        play.start()
        play.fail()
        play.sleep(1000)
    assert play.status is Status.IDLE
    assert play.epoch == 5000
    assert play.told("failed")[-1]["given_up"] == "failed in attempt 5000 of 5000"
    assert not play.startable


def test_e07_the_spread_moves_the_delay_by_a_share_of_it() -> None:
    retry = Retry(delay_s=10.0, jitter=0.5)
    assert [backoff_ms(retry, 1, spread) for spread in (-1.0, 0.0, 1.0)] == [5000, 10_000, 15_000]


@given(
    st.floats(0, MAX_BACKOFF_S),
    st.floats(0, 1e6),
    st.floats(0, MAX_BACKOFF_S),
    st.floats(0, 1),
    st.integers(1, 1_000_000),
    st.floats(-1, 1),
)
def test_no_setting_overflows(
    delay_s: float, factor: float, max_delay_s: float, jitter: float, attempt: int, spread: float
) -> None:
    retry = Retry(1_000_000, delay_s, factor, max_delay_s, jitter)
    assert 0 <= backoff_ms(retry, attempt, spread) <= max_delay_s * 2000 + 1

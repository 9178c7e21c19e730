"""What a run gets, gives back and leaves, in each kind of runner."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.core.task import CommandHandler, Isolation, Outcome
from fencepost.worker.orders import Refused, RunCheckpoint, RunEnded, RunOutput
from tests.worker.bench import Bench, order

OWN = Isolation.OWN
SHARED = Isolation.SHARED


@pytest.mark.parametrize("isolation", [SHARED, OWN])
@pytest.mark.parametrize("target", ["echo", "async_echo"])
def test_a_run_returns_its_result(bench: Bench, target: str, isolation: Isolation) -> None:
    (end,) = bench.run(order("a", target, payload={"n": [1, 2.5, None, "ä"]}, isolation=isolation))
    assert end == RunEnded("a", 1, Outcome.SUCCEEDED, result={"n": [1, 2.5, None, "ä"]})
    assert bench.runners.in_flight() == 0
    assert not bench.runners.holds("a", 1)


@pytest.mark.parametrize("isolation", [SHARED, OWN])
def test_a_run_is_told_who_it_is(bench: Bench, isolation: Isolation) -> None:
    (end,) = bench.run(
        order(
            "invoice/7",
            "describe",
            epoch=12,
            attempt=3,
            payload=[1],
            headers={"trace": "x"},
            scheduled_for_ms=1_774_000_000_123,
            idempotency_key="k",
            checkpoint={"step": 4},
            timeout_s=30.0,
            isolation=isolation,
        )
    )
    assert isinstance(end, RunEnded)
    result = end.result
    assert result.pop("pid") == result.pop("sid")  # a session of its own
    assert result == {
        "task_id": "invoice/7",
        "epoch": 12,
        "attempt": 3,
        "payload": [1],
        "headers": {"trace": "x"},
        "scheduled_for": "2026-03-20 09:46:40.123000+00:00",
        "idempotency_key": "k",
        "last_checkpoint": {"step": 4},
        "has_deadline": True,
        "cancelled": False,
    }


@pytest.mark.parametrize("isolation", [SHARED, OWN])
def test_what_a_run_prints_is_reported_under_its_name_before_its_end(bench: Bench, isolation: Isolation) -> None:
    bench.run(order("a", "prints", isolation=isolation), order("b", "noop", isolation=isolation))
    assert bench.output("a", "out") == "to out\nbytes: ä\n"
    assert bench.output("a", "err") == "to err\n"
    assert bench.output("a", "log") == "to log\n"
    assert bench.output("b") == ""
    kinds = [type(r) for r in bench.reports if r.task == "a"]
    assert kinds[-1] is RunEnded


def test_what_coroutines_print_in_turns_is_told_apart(bench: Bench) -> None:
    bench.run(order("a", "async_prints"), order("b", "async_prints"))
    assert bench.output("a") == "a\n" * 3
    assert bench.output("b") == "b\n" * 3


def test_a_child_of_a_run_of_its_own_prints_into_the_run(bench: Bench) -> None:
    bench.run(order("a", "prints_through_a_child", isolation=OWN))
    assert bench.output("a", "out") == "from a child\n"


@pytest.mark.parametrize("isolation", [SHARED, OWN])
def test_output_beyond_a_mebibyte_is_cut_and_says_so(bench: Bench, isolation: Isolation) -> None:
    (end,) = bench.run(order("a", "prints_a_lot", payload=1500, isolation=isolation))
    assert isinstance(end, RunEnded)
    assert end.outcome is Outcome.SUCCEEDED
    text = bench.output("a", "out")
    assert 1024 * 1024 <= len(text) <= 1024 * 1024 + 100
    assert text.endswith("[output beyond 1 MiB is not kept]\n")


@pytest.mark.parametrize("isolation", [SHARED, OWN])
@pytest.mark.parametrize("target", ["fails", "async_fails"])
def test_an_exception_is_a_failure_with_its_traceback(bench: Bench, target: str, isolation: Isolation) -> None:
    (end,) = bench.run(order("a", target, isolation=isolation))
    assert isinstance(end, RunEnded)
    assert end.outcome is Outcome.FAILED
    assert end.error is not None
    assert "sample_app.py" in end.error
    assert end.error.endswith("ValueError: no good")


@pytest.mark.parametrize("isolation", [SHARED, OWN])
def test_sys_exit_is_a_failure_and_leaves_the_runner_working(bench: Bench, isolation: Isolation) -> None:
    first, second = bench.run(order("a", "exits", isolation=isolation), order("b", "echo", isolation=isolation))
    assert isinstance(first, RunEnded)
    assert first.outcome is Outcome.FAILED
    assert isinstance(second, RunEnded)
    assert second.outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("isolation", [SHARED, OWN])
def test_a_run_that_kills_its_process_fails_and_is_named(bench: Bench, isolation: Isolation) -> None:
    (end,) = bench.run(order("a", "dies", isolation=isolation))
    assert end == RunEnded("a", 1, Outcome.FAILED, error="its process ended (ended by SIGKILL)")
    (after,) = bench.run(order("b", "echo", payload=1, isolation=isolation))
    assert isinstance(after, RunEnded)
    assert after.result == 1


@pytest.mark.parametrize(
    ("target", "error"), [("returns_a_set", "result: not JSON"), ("returns_much", "result: 65538 bytes as JSON")]
)
def test_a_result_that_cannot_be_kept_is_a_failure_that_says_why(bench: Bench, target: str, error: str) -> None:
    (end,) = bench.run(order("a", target))
    assert isinstance(end, RunEnded)
    assert end.outcome is Outcome.FAILED
    assert (end.error or "").startswith(error)


@pytest.mark.parametrize("isolation", [SHARED, OWN])
def test_checkpoints_are_reported_in_order_before_the_end(bench: Bench, isolation: Isolation) -> None:
    (end,) = bench.run(order("a", "checkpoints", isolation=isolation))
    assert isinstance(end, RunEnded)
    assert end.result == {"step": 2}
    assert [r for r in bench.reports if isinstance(r, RunCheckpoint)] == [
        RunCheckpoint("a", 1, {"step": step}) for step in range(3)
    ]
    assert bench.reports[-1] == end


def test_a_checkpoint_that_is_too_large_is_refused_to_the_run(bench: Bench) -> None:
    (end,) = bench.run(order("a", "checkpoints_too_much"))
    assert isinstance(end, RunEnded)
    assert "checkpoint: 65538 bytes as JSON, at most 65536" in (end.error or "")


def test_a_function_that_the_app_lacks_fails_with_its_name(bench: Bench) -> None:
    (end,) = bench.run(order("a", "nowhere"))
    assert isinstance(end, RunEnded)
    assert end.outcome is Outcome.FAILED
    assert "'nowhere'" in (end.error or "")


# --- commands


def sh(task: str, script: str, **changes: object) -> object:
    return order(task, ("/bin/sh", "-c", script), isolation=OWN, **changes)


def test_a_command_gets_its_run_in_the_environment_and_its_payload_on_standard_input(bench: Bench) -> None:
    script = "cat; echo; env | grep ^FENCEPOST_ | sort"
    (end,) = bench.run(
        sh("a", script, epoch=4, attempt=2, payload={"n": 1}, scheduled_for_ms=1_774_000_000_000, checkpoint=[1])  # type: ignore[arg-type]
    )
    assert end == RunEnded("a", 4, Outcome.SUCCEEDED, exit_code=0)
    assert bench.output("a", "out").splitlines() == [
        '{"n":1}',
        "FENCEPOST_ATTEMPT=2",
        "FENCEPOST_EPOCH=4",
        "FENCEPOST_IDEMPOTENCY_KEY=a/1",
        "FENCEPOST_LAST_CHECKPOINT=[1]",
        "FENCEPOST_NAMESPACE=fencepost",
        'FENCEPOST_PAYLOAD={"n":1}',
        "FENCEPOST_SCHEDULED_FOR=2026-03-20T09:46:40.000Z",
        "FENCEPOST_TASK=a",
    ]


def test_a_command_does_not_see_the_workers_environment(
    bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "hunter2")
    monkeypatch.setenv("FENCEPOST_KAFKA_CLIENT_SASL_PASSWORD", "hunter2")
    bench = bench_of(commands=("env",), keep_env=("PATH",))
    handler = CommandHandler(("env",), env=(("GIVEN", "1"),))
    bench.run(order("a", "", handler=handler, isolation=OWN))
    names = {line.partition("=")[0] for line in bench.output("a", "out").splitlines()}
    assert names == {
        "PATH",
        "GIVEN",
        "FENCEPOST_NAMESPACE",
        "FENCEPOST_TASK",
        "FENCEPOST_EPOCH",
        "FENCEPOST_ATTEMPT",
        "FENCEPOST_PAYLOAD",
        "FENCEPOST_IDEMPOTENCY_KEY",
    }


def test_a_command_that_fails_reports_its_exit_code_and_the_end_of_its_stderr(bench: Bench) -> None:
    (end,) = bench.run(sh("a", "echo it broke >&2; exit 3"))  # type: ignore[arg-type]
    assert end == RunEnded("a", 1, Outcome.FAILED, error="exit code 3: it broke", exit_code=3)


def test_a_command_that_dies_of_a_signal_reports_its_name(bench: Bench) -> None:
    (end,) = bench.run(sh("a", "kill -SEGV $$"))  # type: ignore[arg-type]
    assert end == RunEnded("a", 1, Outcome.FAILED, error="ended by SIGSEGV", exit_code=139)


def test_a_payload_larger_than_a_variable_may_be_comes_on_standard_input(bench: Bench) -> None:
    (end,) = bench.run(sh("a", 'wc -c; echo "${FENCEPOST_PAYLOAD-unset}"', payload="x" * 250_000))  # type: ignore[arg-type]
    assert isinstance(end, RunEnded)
    assert end.outcome is Outcome.SUCCEEDED
    assert bench.output("a", "out").split() == ["250002", "unset"]


def test_a_command_that_is_not_on_the_list_is_never_started(bench: Bench) -> None:
    (end,) = bench.run(order("a", ("/usr/bin/id",), isolation=OWN))
    assert isinstance(end, RunEnded)
    assert end.outcome is Outcome.FAILED
    assert end.error == (
        "handler.argv[0]: '/usr/bin/id' is not on this worker's list of commands (allowed: /bin/cat, /bin/sh, env)"
    )


def test_arguments_never_pass_through_a_shell(bench: Bench) -> None:
    (end,) = bench.run(order("a", ("/bin/cat", "$(id)", "; id"), isolation=OWN))
    assert isinstance(end, RunEnded)
    assert end.outcome is Outcome.FAILED
    assert "$(id)" in bench.output("a", "err")


def test_a_command_that_is_missing_fails_and_says_so(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(commands=("/nowhere/at/all",))
    (end,) = bench.run(order("a", ("/nowhere/at/all",), isolation=OWN))
    assert end == RunEnded("a", 1, Outcome.FAILED, error="/nowhere/at/all: No such file or directory", exit_code=127)


# --- starting


def test_an_epoch_that_was_had_or_an_older_one_is_refused(bench: Bench) -> None:
    bench.run(order("a", "noop", epoch=5))
    assert bench.run(order("a", "noop", epoch=4)) == [Refused("a", 4, repeated=True)]
    bench.reports.clear()
    assert bench.run(order("a", "noop", epoch=5)) == [Refused("a", 5, repeated=True)]
    assert isinstance(bench.run(order("a", "noop", epoch=6))[0], RunEnded)


def test_the_guard_itself_refuses_an_epoch_of_a_run_of_its_own(bench: Bench) -> None:
    bench.run(order("a", "noop", epoch=5, isolation=OWN))
    bench.runners._had.clear()  # as if the worker had forgotten
    assert bench.run(order("a", "noop", epoch=4, isolation=OWN)) == [Refused("a", 4, repeated=True)]


def test_without_a_lease_nothing_starts(bench: Bench) -> None:
    assert bench.run(order("a", "noop", partition=3)) == [Refused("a", 1, repeated=False)]
    assert bench.run(order("b", "noop", nonce="other")) == [Refused("b", 1, repeated=False)]


@pytest.mark.parametrize("isolation", [SHARED, OWN])
def test_a_lease_with_no_time_left_starts_nothing(bench: Bench, isolation: Isolation) -> None:
    end = bench.run(order("a", "noop", lease_ttl_s=0.7, isolation=isolation))
    assert end == [Refused("a", 1, repeated=False)]


def test_the_order_of_reports_is_that_of_events(bench: Bench) -> None:
    bench.run(*[order(f"t{number}", "prints") for number in range(20)])
    for number in range(20):
        mine = [r for r in bench.reports if r.task == f"t{number}"]
        assert isinstance(mine[-1], RunEnded)
        assert all(isinstance(r, RunOutput) for r in mine[:-1])


def test_many_runs_end_once_each(bench: Bench) -> None:
    total, done, sent = 20_000, 0, 0
    while done < total:
        room = min(2_000 - bench.runners.in_flight(), total - sent)
        if room > 500 or 0 < room == total - sent:
            bench.runners.launch([order(f"t{number}", "noop") for number in range(sent, sent + room)])
            sent += room
        bench.runners.wait(1.0)
        taken = bench.runners.take()
        done += len(taken)
        bench.reports += taken
    assert {r.task for r in bench.reports} == {f"t{number}" for number in range(total)}
    assert all(isinstance(r, RunEnded) and r.outcome is Outcome.SUCCEEDED for r in bench.reports)
    assert len(bench.reports) == total


def test_slow_functions_do_not_wait_behind_each_other(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(shared_processes=1, slots=6)
    bench.start(*[order(f"t{number}", "until_cancelled") for number in range(6)])  # all six are under way at once
    for number in range(6):
        bench.runners.stop(f"t{number}", 1, "cancelled", None, 20.0)
    assert {bench.ended(f"t{number}").outcome for number in range(6)} == {Outcome.CANCELLED}


@pytest.mark.parametrize("target", ["lists_payloads", "async_lists_payloads"])
def test_a_run_gets_the_payloads_of_its_batch_and_else_its_own_alone(bench: Bench, target: str) -> None:
    batched, alone = bench.run(order("a", target, payload=1, payloads=(1, 2, None)), order("b", target, payload=4))
    assert isinstance(batched, RunEnded)
    assert isinstance(alone, RunEnded)
    assert batched.result == [1, [1, 2, None]]
    assert alone.result == [4, [4]]

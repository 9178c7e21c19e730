"""What Prometheus is given."""

from __future__ import annotations

import threading

from prometheus_client.parser import text_string_to_metric_families

from fencepost.worker.meters import Meters
from fencepost.worker.metrics import PrometheusMeters

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(meters: PrometheusMeters) -> Samples:
    """(name, sorted labels): value, read back from the page that is served."""
    page, _ = meters.exposition()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def gauges(meters: Meters, lane: int = 0, rebalances: int = 0) -> None:
    meters.gauges(
        lane=lane, in_flight=3, ready=5, backlog=7, oldest_waiting_s=1.5, partitions=8, rebalances=rebalances,
        clock_difference_s=-2.25,
    )  # fmt: skip


def test_runs_are_counted_by_task_and_outcome_and_interruptions_by_cause() -> None:
    meters = PrometheusMeters("w")
    meters.run_ended("a", "succeeded", None)
    meters.run_ended("a", "succeeded", None)
    meters.run_ended("a", "interrupted", "fenced")
    meters.run_ended("b", "failed", None)
    found = samples(meters)
    assert {key[1]: value for key, value in found.items() if key[0] == "fencepost_runs_total"} == {
        (("outcome", "succeeded"), ("task", "a")): 2,
        (("outcome", "interrupted"), ("task", "a")): 1,
        (("outcome", "failed"), ("task", "b")): 1,
    }
    assert found["fencepost_interruptions_total", (("cause", "fenced"),)] == 1


def test_tasks_beyond_the_limit_count_under_other() -> None:
    meters = PrometheusMeters("w", task_labels=2)
    for number in range(1000):
        meters.run_ended(f"task-{number}", "succeeded", None)
    found = {dict(key[1])["task"]: v for key, v in samples(meters).items() if key[0] == "fencepost_runs_total"}
    assert found == {"task-0": 1, "task-1": 1, "other": 998}


def test_reasons_of_dead_letters_are_bounded_too() -> None:
    meters = PrometheusMeters("w")
    for number in range(500):
        meters.dead_letter(f"field-{number}")
    found = [value for key, value in samples(meters).items() if key[0] == "fencepost_dead_letters_total"]
    assert len(found) == 31
    assert sum(found) == 500


def test_the_schedule_delay_is_a_histogram_with_cumulative_buckets() -> None:
    meters = PrometheusMeters("w")
    for delay_s in (0.0, 0.005, 0.02, 7.0, 9999.0):
        meters.run_started("a", delay_s)
    found = samples(meters)
    name = "fencepost_schedule_delay_seconds"
    bucket = {dict(key[1])["le"]: value for key, value in found.items() if key[0] == f"{name}_bucket"}
    assert bucket["0.005"] == 2
    assert bucket["0.025"] == 3
    assert bucket["5.0"] == 3
    assert bucket["10.0"] == 4
    assert bucket["3600.0"] == 4
    assert bucket["+Inf"] == 5
    assert found[f"{name}_count", ()] == 5
    assert abs(found[f"{name}_sum", ()] - 10006.025) < 1e-6


def test_the_lanes_states_stand_side_by_side() -> None:
    meters = PrometheusMeters("w")
    gauges(meters, lane=0)
    gauges(meters, lane=1)
    found = samples(meters)
    for lane in "01":
        label = (("lane", lane),)
        assert found["fencepost_in_flight", label] == 3
        assert found["fencepost_ready", label] == 5
        assert found["fencepost_backlog", label] == 7
        assert found["fencepost_oldest_waiting_seconds", label] == 1.5
        assert found["fencepost_partitions", label] == 8
        assert found["fencepost_clock_difference_seconds", label] == -2.25


def test_rebalances_go_on_counting_over_a_new_member() -> None:
    meters = PrometheusMeters("w")
    for told in (2, 5, 1, 1, 3):
        gauges(meters, rebalances=told)
    assert samples(meters)["fencepost_rebalances_total", (("lane", "0"),)] == 8


def test_the_rest_is_there_by_name() -> None:
    meters = PrometheusMeters("w-1")
    meters.transaction("committed", 0.003, 4)
    meters.restored(1.5, 1000)
    meters.takeover(3.0)
    found = samples(meters)
    assert found["fencepost_transaction_seconds_count", (("outcome", "committed"),)] == 1
    assert found["fencepost_transaction_parts_total", ()] == 4
    assert found["fencepost_restore_seconds_count", ()] == 1
    assert found["fencepost_restored_tasks_total", ()] == 1000
    assert found["fencepost_takeover_seconds_sum", ()] == 3.0
    assert [dict(key[1])["worker"] for key in found if key[0] == "fencepost_worker_info"] == ["w-1"]
    assert found["process_open_fds", ()] > 0


def test_two_workers_in_one_process_do_not_share_a_registry() -> None:
    one, two = PrometheusMeters("one"), PrometheusMeters("two")
    one.run_ended("a", "succeeded", None)
    assert not [key for key in samples(two) if key[0] == "fencepost_runs_total"]


def test_a_name_that_is_not_valid_text_does_not_break_the_page() -> None:
    meters = PrometheusMeters("w")
    meters.run_ended("a\udc80", "succeeded", None)
    meters.dead_letter('quote " and \\ and\nline')
    found = samples(meters)
    assert found["fencepost_runs_total", (("outcome", "succeeded"), ("task", "a?"))] == 1
    assert found["fencepost_dead_letters_total", (("reason", 'quote " and \\ and\nline'),)] == 1


def test_no_count_is_lost_between_threads() -> None:
    meters = PrometheusMeters("w")

    def count() -> None:
        for _ in range(5000):
            meters.run_started("a", 0.01)
            meters.run_ended("a", "succeeded", None)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = samples(meters)
    assert found["fencepost_runs_total", (("outcome", "succeeded"), ("task", "a"))] == 20_000
    assert found["fencepost_schedule_delay_seconds_count", ()] == 20_000

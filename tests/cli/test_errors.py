"""Errors of the client library are named by what to do about them."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from fencepost.kafka.errors import (
    AbortAndOffer,
    Die,
    KafkaProblem,
    RetryLater,
    StepDown,
    classify,
    error_of,
    problem_of,
)


def error(code: int, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> KafkaError:
    return KafkaError(code, "text", fatal, retriable, abort)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (error(KafkaError._FENCED, fatal=True), StepDown),
        (error(KafkaError.PRODUCER_FENCED), StepDown),
        (error(KafkaError.INVALID_PRODUCER_EPOCH, fatal=True), StepDown),
        (error(KafkaError.INVALID_TXN_STATE, fatal=True, retriable=True), Die),
        (error(KafkaError.FENCED_INSTANCE_ID), Die),
        (error(KafkaError.ILLEGAL_GENERATION), AbortAndOffer),
        (error(KafkaError._TIMED_OUT, abort=True, retriable=True), AbortAndOffer),
        (error(KafkaError._TIMED_OUT, retriable=True), RetryLater),
        (error(KafkaError._TRANSPORT), RetryLater),
        (error(KafkaError.COORDINATOR_LOAD_IN_PROGRESS), RetryLater),
        (error(KafkaError.TOPIC_AUTHORIZATION_FAILED), Die),
        (error(KafkaError._AUTHENTICATION), Die),
        (error(KafkaError.UNKNOWN), Die),
    ],
)
def test_an_error_is_named_by_what_the_caller_must_do(given: KafkaError, expected: type[KafkaProblem]) -> None:
    assert classify(given) is expected


def test_the_name_of_the_error_stands_in_the_message() -> None:
    problem = problem_of(KafkaException(error(KafkaError._TIMED_OUT)), "reading t")
    assert isinstance(problem, RetryLater)
    assert str(problem) == "reading t: text (_TIMED_OUT)"


def test_an_exception_without_an_error_inside_is_an_error_too() -> None:
    assert error_of(KafkaException("odd")).code() == KafkaError._FAIL

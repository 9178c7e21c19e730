"""Errors of the client library, named by what the caller must do."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException


class KafkaProblem(Exception):
    """Something went wrong with Kafka. The subclass says what to do."""


class RetryLater(KafkaProblem):
    """Nothing is decided: make the same call again after a moment."""


class AbortAndOffer(KafkaProblem):
    """The transaction is lost, the producer is not: abort it, poll, and offer the same changes again if still owned."""


class StepDown(KafkaProblem):
    """A newer holder fenced this client: write nothing more with it; acquire again, with a new client."""


class Die(KafkaProblem):
    """This client cannot go on, or may not: end it (and the process, unless another client can take its place)."""


class Unavailable(RetryLater):
    """No broker could be reached within the time given; nothing was changed by this call."""


class NotInitialised(KafkaProblem):
    """The namespace has no topics yet, or not all of them."""


class WrongNamespace(KafkaProblem):
    """The topics are not what the namespace's record says: another partition count, or topics made again."""


class DeliveryFailed(KafkaProblem):
    """The record was certainly not written."""


class DeliveryUnknown(KafkaProblem):
    """The record may or may not have been written: no answer in time. The same `id` makes a second try harmless."""


_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.TRANSACTION_COORDINATOR_FENCED,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}
_GROUP_MOVED_ON = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.MEMBER_ID_REQUIRED,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError.TRANSACTION_ABORTABLE,
}
# librdkafka sets its flags on errors of transactional calls only; these come from other calls without one.
_PASSING = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._DESTROY_BROKER,  # one that left the cluster while it was asked
    KafkaError._IN_PROGRESS,
    KafkaError._ISR_INSUFF,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._NOENT,
    KafkaError._PREV_IN_PROGRESS,
    KafkaError._QUEUE_FULL,
    KafkaError._RESOLVE,
    KafkaError._RETRY,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._UNKNOWN_BROKER,
    KafkaError._WAIT_CACHE,
    KafkaError._WAIT_COORD,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}


def classify(error: KafkaError) -> type[KafkaProblem]:
    """What to do about it. An error that is not known to pass is :class:`Die`: loud, not silently repeated.

    Order matters: librdkafka reports being fenced as fatal, and a fatal error may carry its cause's retriable flag.
    """
    code = error.code()
    if code in _FENCED:
        return StepDown
    if error.fatal():
        return Die
    if error.txn_requires_abort() or code in _GROUP_MOVED_ON:
        return AbortAndOffer
    if error.retriable() or code in _PASSING:
        return RetryLater
    return Die


def error_of(exception: KafkaException) -> KafkaError:
    """The error inside an exception of the client library."""
    inner: Any = exception.args[0] if exception.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(exception))


def problem_of(exception: KafkaException, doing: str) -> KafkaProblem:
    """An exception of the class that `classify` says, with what was being done in its message."""
    error = error_of(exception)
    return classify(error)(f"{doing}: {describe(error)}")


def describe(error: KafkaError) -> str:
    """The error in words, with its name, which is what one searches for."""
    return f"{error.str()} ({error.name()})"

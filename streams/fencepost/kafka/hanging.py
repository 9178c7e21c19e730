"""Transactions that nobody ends: who has one open on a partition, and how it is closed.

Committed readers see nothing behind an open transaction. Mostly the broker ends it after its time limit at the latest,
but not always: markers to partitions that have no leader at that moment are dropped by the broker (4.3.1 says that they
"are likely deleted already and hence can be skipped"; a single broker that was frozen for longer than its session comes
to this), and the transaction counts as ended while its records stay open for ever. To initialise its transactional ID
is then not enough; but the marker of a later transaction of the same producer, on the same partition, ends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from confluent_kafka import KafkaException, TopicPartition

from fencepost.kafka.bounded import BoundedCalls, Overdue
from fencepost.kafka.errors import KafkaProblem, RetryLater, StepDown, problem_of
from fencepost.kafka.member import GroupMetadata
from fencepost.kafka.reader import Place
from fencepost.kafka.scan import Record, scan
from fencepost.kafka.transaction import OutRecord, initialise, make_producer
from fencepost.settings import Settings

_FIRST = 200  # records looked at: the first of a transaction may be one that names nobody


def open_records(settings: Settings, place: Place, committed_end: int, stall_s: float) -> list[Record]:
    """What lies behind the committed end of a partition: first of all a record of the transaction that is open there.

    Raises KafkaProblem.
    """
    found = []
    for record in scan(settings, place[0], [place[1]], committed_end, "read_uncommitted", stall_s):
        found.append(record)
        if len(found) == _FIRST:
            break
    return found


def close_transactions(
    settings: Settings,
    ids: Sequence[str],
    records: Sequence[OutRecord],
    offset: Place,
    group: GroupMetadata,
    timeout_s: float,
) -> None:
    """For each transactional ID: end what it has open, then abort a transaction on the partitions of `records`.

    The abort reaches the group's offsets too: `offset` names a place of them. Raises RetryLater when it cannot be said
    of one ID, or Die.
    """

    def close(transactional_id: str) -> KafkaProblem | None:
        producer = make_producer(settings, transactional_id, lambda _error: None)
        calls = BoundedCalls()
        try:
            initialise(producer, timeout_s)
            producer.begin_transaction()
            for record in records:
                producer.produce(record.topic, record.value, record.key, record.partition)
            if producer.flush(timeout_s):
                return RetryLater("records of a closing transaction were not taken")
            marks = [TopicPartition(*offset, 0)]
            # Whether the group takes the offset does not matter, only that the transaction names its log.
            with suppress(KafkaException):
                calls.call(lambda: producer.send_offsets_to_transaction(marks, group.raw, timeout_s), timeout_s + 1.0)
            producer.abort_transaction(timeout_s)
        except Overdue as overdue:
            return RetryLater(f"closing a transaction: {overdue}")
        except StepDown:
            return None  # ended at the same moment by another: whoever it was comes here too
        except KafkaException as exception:
            return problem_of(exception, "closing a transaction")
        except KafkaProblem as problem:
            return problem
        finally:
            calls.close()
        return None

    with ThreadPoolExecutor(max(1, len(ids))) as pool:
        problems = [problem for problem in pool.map(close, ids) if problem is not None]
    if problems:
        raise RetryLater(str(problems[0]))

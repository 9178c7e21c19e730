"""The transactional producer as the client library is: silent repeats, no transactions v2, fatal errors that stay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from fencepost.kafka.member import _parse
from tests.simulation import stage
from tests.simulation.log import Headers, Place
from tests.simulation.network import TIMEOUT
from tests.simulation.requests import ask, at_once, raised
from tests.simulation.transactions import OFFSETS

_Record = tuple[bytes | None, bytes | None, Headers | None]
_FENCED = {"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}


class SimProducer:
    """Stands for `confluent_kafka.Producer` where it is transactional."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._process = stage.here()
        self._kernel = self._process.world.kernel
        self._broker = self._process.world.broker
        self._name: str = config["transactional.id"]
        self._timeout_us = int(config["transaction.timeout.ms"]) * 1000
        self._on_error: Callable[[KafkaError], None] = config["error_cb"]
        self._broken = False
        self._number = -1
        self._epoch = -1
        self._fatal: KafkaException | None = None
        self._failed: KafkaException | None = None  # the transaction can only be aborted
        self._sequences: dict[Place, int] = {}
        self._uncertain = False  # a record's answer never came: a new epoch is needed after the abort
        self._open = False
        self._registered: dict[Place, None] = {}
        self._queue: list[tuple[Place, _Record]] = []

    # -- what the ring calls --

    def init_transactions(self, timeout_s: float) -> None:
        answer = self._ask("InitProducerId", lambda: self._initialise(), self._until_us(timeout_s))
        if answer is TIMEOUT:
            raise raised("_TIMED_OUT", retriable=True)
        self._number, self._epoch = answer
        self._tell()

    def begin_transaction(self) -> None:
        self._raise_fatal()
        self._open, self._failed = True, None
        self._registered, self._queue = {}, []

    def produce(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int, headers: Headers | None = None
    ) -> None:
        self._raise_fatal()
        self._queue.append(((topic, partition), (key, value, headers)))

    def flush(self, timeout_s: float) -> int:
        until_us = self._until_us(timeout_s)
        while self._queue and self._failed is None and self._fatal is None:
            places = list(dict.fromkeys(place for place, _record in self._queue))
            if not self._register([place for place in places if place not in self._registered], until_us):
                break
            place = places[0]
            batch = [record for at, record in self._queue if at == place]
            sequence = self._sequences.get(place, 0)
            produce = partial(self._broker.produce, place, self._number, self._epoch, sequence, batch)
            answer = self._ask("Produce", produce, until_us)
            if answer is TIMEOUT:
                self._uncertain = True
                break
            if answer is not None:
                self._refused(answer)
                break
            self._sequences[place] = sequence + len(batch)
            self._queue = [item for item in self._queue if item[0] != place]
        self._tell()
        # Records that failed for good have been delivered, as failed: the transaction's end reports them.
        return 0 if self._failed is not None or self._fatal is not None else len(self._queue)

    def poll(self, _timeout_s: float = 0) -> int:
        self._tell()
        return 0

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], raw: object, timeout_s: float) -> None:
        self._raise_fatal()
        if self._failed is not None:
            raise self._failed
        until_us = self._until_us(timeout_s)
        metadata = _parse(raw)
        marks = {(at.topic, at.partition): (at.offset, at.metadata or "") for at in offsets}
        number, epoch = self._number, self._epoch
        if OFFSETS not in self._registered and not self._register([OFFSETS], until_us):
            self._raise_fatal()
            raise self._failed_or("_TIMED_OUT")
        answer = self._ask(
            "TxnOffsetCommit",
            lambda: self._broker.commit_offsets(number, epoch, metadata.generation, metadata.member_id, marks),
            until_us,
        )
        self._tell()
        if answer is TIMEOUT:
            raise self._abortable("_TIMED_OUT")
        if answer is not None:
            self._refused(answer)
            self._raise_fatal()
            raise self._abortable(str(answer))

    def commit_transaction(self, timeout_s: float) -> None:
        self._raise_fatal()
        if self._failed is not None:
            raise self._failed
        if self._registered:
            self._end(True, timeout_s)
        self._open = False
        self._tell()

    def abort_transaction(self, timeout_s: float) -> None:
        self._raise_fatal()
        self._queue = []
        if self._registered:
            self._end(False, timeout_s)
        if self._uncertain:
            self._raise_epoch(timeout_s)
        self._open, self._failed = False, None
        self._tell()

    # -- inside --

    def _end(self, committed: bool, timeout_s: float) -> None:
        number, epoch = self._number, self._epoch
        answer = self._ask(
            "EndTxn", lambda: self._coordinated(lambda: self._broker.transactions.end(number, epoch, committed)),
            self._until_us(timeout_s),
        )  # fmt: skip
        if answer is TIMEOUT:
            raise raised("_TIMED_OUT", retriable=True)
        if answer is not None:
            self._refused(answer)
            self._raise_fatal()
            raise self._abortable(str(answer))

    def _raise_epoch(self, timeout_s: float) -> None:
        """After records whose fate is not known, the library gets itself a new epoch."""
        answer = self._ask("InitProducerId", lambda: self._initialise(), self._until_us(timeout_s))
        if answer is TIMEOUT:
            raise raised("_TIMED_OUT", retriable=True)
        self._number, self._epoch = answer
        self._sequences = {}
        self._uncertain = False

    def _register(self, places: list[Place], until_us: int) -> bool:
        """Add partitions to the transaction, as far as the client thinks that they are not in it."""
        if not places:
            return True
        number, epoch = self._number, self._epoch
        kind = "AddOffsetsToTxn" if places == [OFFSETS] else "AddPartitionsToTxn"
        answer = self._ask(
            kind, lambda: self._coordinated(lambda: self._broker.transactions.add(number, epoch, places)), until_us
        )
        # Given up or not: a copy may have arrived, so the transaction has to be ended at the coordinator.
        self._registered.update(dict.fromkeys(places))
        if answer is TIMEOUT:
            return False
        if answer is not None:
            self._refused(answer)
            return False
        return True

    def _initialise(self) -> Any:
        return self._coordinated(lambda: self._broker.transactions.initialise(self._name, self._timeout_us))

    def _coordinated(self, answer: Callable[[], Any]) -> Any:
        if self._kernel.now_us < self._broker.coordinator_down_until_us:
            return "NOT_COORDINATOR"
        return answer()

    def _ask(self, kind: str, answer: Callable[[], Any], until_us: int) -> Any:
        return ask(self._process, kind, at_once(answer), until_us, self._note_break, self._name)

    def _until_us(self, timeout_s: float) -> int:
        return self._kernel.now_us + self._process.clock.true_us(timeout_s)

    def _note_break(self) -> None:
        self._broken = True

    def _tell(self) -> None:
        if self._broken:
            self._broken = False
            self._on_error(KafkaError(KafkaError._TRANSPORT, "disconnected"))

    def _failed_or(self, name: str) -> KafkaException:
        return self._failed if self._failed is not None else self._abortable(name)

    def _abortable(self, name: str) -> KafkaException:
        self._failed = raised(name, abort=True)
        return self._failed

    def _refused(self, name: str) -> None:
        if name in _FENCED:
            self._fatal = raised("_FENCED", fatal=True)
        elif name in ("INVALID_TXN_STATE", "OUT_OF_ORDER_SEQUENCE_NUMBER"):
            self._fatal = raised(name, fatal=True)
        else:
            self._abortable(name)

    def _raise_fatal(self) -> None:
        if self._fatal is not None:
            raise self._fatal

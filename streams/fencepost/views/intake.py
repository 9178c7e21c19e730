"""Records of topics by faust, each at least once: committed ones only, a batch at a time, offsets when we say so.

faust's own bookkeeping of what is done is not used. It has committed too much where offsets have gaps (every
transaction leaves one), counts a record as done when the code that handles it fails, and has read on from the wrong
place after a rebalance. Here

- only committed records are read (faust would read others unless it is in its exactly-once mode);
- nothing is acknowledged to faust; the offsets to commit are given, after the records were dealt with;
- after each assignment the first record of a partition is compared with the committed offset. What lies between is read
  from the broker; what was committed already is left out;
- an error that nobody expects ends the process without a commit, and the next one begins where the last commit was.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver

from fencepost.kafka.scan import scan
from fencepost.settings import Settings
from fencepost.views.credentials import credentials_of
from fencepost.views.record import SourceRecord

Place = tuple[str, int]
Handle = Callable[[list[SourceRecord]], AsyncIterator[list[SourceRecord]]]
AHEAD = 500  # records held here; beyond it faust stops fetching
BATCH = 50
START_LIMIT_S = 60.0
STOP_LIMIT_S = 10.0


class _CommittedOnlyThread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        if consumer._isolation_level not in ("read_committed", "read_uncommitted"):
            raise RuntimeError("this version of the client keeps its isolation level elsewhere")
        consumer._isolation_level = "read_committed"
        return consumer


class _CommittedOnlyConsumer(driver.Consumer):
    def _new_consumer_thread(self) -> _CommittedOnlyThread:
        return _CommittedOnlyThread(self, loop=self.loop, beacon=self.beacon)


class _Transport(driver.Transport):
    Consumer = _CommittedOnlyConsumer


class _App(faust.App):
    def _new_transport(self) -> _Transport:
        return _Transport(self.conf.broker_consumer, self)


class Intake:
    """One member of a consumer group over some topics. All methods belong to one event loop."""

    def __init__(self, settings: Settings, group: str, topics: Sequence[str], log: Any) -> None:
        self._settings, self._log = settings, log
        self.group, self.topics = group, tuple(topics)
        self._queue: asyncio.Queue[SourceRecord] = asyncio.Queue(AHEAD)
        self._next: dict[Place, int] = {}  # by partition: the offset after the last record that was handed out
        self._assignments = 0  # changes whenever partitions are taken or given
        self._joined = False
        self._scratch = tempfile.TemporaryDirectory(prefix="fencepost-views-")
        self._app = self._made(group, topics)

    @property
    def ready(self) -> bool:
        """Whether this member is in the group: it has been told what it has to read, which may be nothing."""
        return self._joined and self.failure is None

    @property
    def assignments(self) -> int:
        """Changes whenever partitions are taken or given."""
        return self._assignments

    @property
    def partitions(self) -> list[Place]:
        """What it reads now."""
        return (
            sorted((place.topic, place.partition) for place in self._app.consumer.assignment()) if self._joined else []
        )

    async def start(self) -> None:
        """Join the group. Raises TimeoutError where Kafka does not answer."""
        await asyncio.wait_for(self._app.start(), START_LIMIT_S)

    async def stop(self) -> None:
        """Leave the group, so that others take over at once; bounded."""
        try:
            await asyncio.wait_for(self._app.stop(), STOP_LIMIT_S)
        except TimeoutError:
            self._log.warning("leaving the group took too long", limit_s=STOP_LIMIT_S)
        self._scratch.cleanup()

    @property
    def failure(self) -> BaseException | None:
        """What ended faust, if it ended by itself."""
        reason: BaseException | None = self._app.crash_reason
        return reason

    async def run(self, handle: Handle, stop: asyncio.Event) -> None:
        """Until told to stop: records go to `handle`; what it yields is done, and committed before it goes on.

        Raises what `handle` raises, and RuntimeError where faust ended by itself.
        """
        while not stop.is_set():
            if self.failure is not None:
                raise RuntimeError(f"the consumer ended: {self.failure!r}") from self.failure
            assignment = self._assignments
            records = await self._take()
            if assignment != self._assignments:
                self._next.clear()  # what was taken comes again, here or elsewhere
                continue
            if records:
                async for done in handle(records):
                    if assignment != self._assignments:
                        break
                    await self._commit(done)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _take(self) -> list[SourceRecord]:
        """What is there, 50 records at most; waits a moment for the first."""
        try:
            first = await asyncio.wait_for(self._queue.get(), 0.2)
        except TimeoutError:
            return []
        found = await self._in_order(first)
        while len(found) < BATCH and not self._queue.empty():
            found += await self._in_order(self._queue.get_nowait())
        return found

    async def _in_order(self, record: SourceRecord) -> list[SourceRecord]:
        """The record, after any that were passed over; nothing where it was dealt with already."""
        place = (record.topic, record.partition)
        known = self._next.get(place)
        found = [record]
        if known is None:
            known = self._committed(place)
            if record.offset > known:
                found = [*await asyncio.to_thread(self._between, place, known, record.offset), record]
        if record.offset < known:
            return []
        self._next[place] = record.offset + 1
        return found

    def _committed(self, place: Place) -> int:
        """Where the group stands; the beginning where it never stood anywhere."""
        consumer: Any = self._app.consumer
        for known, offset in consumer._committed_offset.items():
            if (known.topic, known.partition) == place:
                return max(0, int(offset or 0))
        return 0

    def _between(self, place: Place, first: int, end: int) -> list[SourceRecord]:
        """What lies between the committed offset and the first record we were given: mostly ends of transactions."""
        topic, number = place
        found = []
        for record in scan(self._settings, topic, [number], first):
            if record.offset >= end:
                break
            found.append(
                SourceRecord(topic, number, record.offset, record.key, record.value, record.headers, record.at_ms)
            )
        if found:
            self._log.warning(
                "records were passed over and read again", topic=topic, partition=number, count=len(found)
            )
        return found

    # --- committing --------------------------------------------------------------------------------------------------

    async def _commit(self, records: list[SourceRecord]) -> None:
        ends: dict[Place, int] = {(record.topic, record.partition): record.offset + 1 for record in records}
        consumer: Any = self._app.consumer
        mine = [place for place in consumer.assignment() if (place.topic, place.partition) in ends]
        if mine:
            await consumer._commit_offsets({place: ends[place.topic, place.partition] for place in mine})

    # --- faust -------------------------------------------------------------------------------------------------------

    def _made(self, group: str, topics: Sequence[str]) -> _App:
        servers = ";".join(f"kafka://{server.strip()}" for server in self._settings.bootstrap.split(","))
        session_s = max(6.0, self._settings.session_timeout_s)  # the stock minimum of the classic protocol
        app = _App(
            group,
            broker=servers,
            broker_credentials=credentials_of(self._settings.client),
            broker_session_timeout=session_s,
            broker_heartbeat_interval=session_s / 5,
            broker_commit_interval=3600.0,
            consumer_auto_offset_reset="earliest",
            stream_wait_empty=False,
            topic_disable_leader=True,
            topic_allow_declare=False,
            web_enabled=False,
            store="memory://",
            datadir=self._scratch.name,
        )

        async def read(stream: Any) -> Any:
            async for event in stream.noack().events():
                await self._queue.put(_record(event.message))
                yield None

        channel = app.topic(*topics, key_serializer="raw", value_serializer="raw", key_type=bytes, value_type=bytes)
        app.agent(channel, name="fencepost.views.intake")(read)
        app.on_partitions_revoked.connect(self._forget, weak=False)
        app.on_partitions_assigned.connect(self._given, weak=False)
        return app

    async def _given(self, *signal: Any, **more: Any) -> None:
        await self._forget()
        self._joined = True

    async def _forget(self, *_signal: Any, **_more: Any) -> None:
        """Records that wait here may be somebody else's by now; those of ours come again."""
        self._assignments += 1
        self._next.clear()
        while not self._queue.empty():
            self._queue.get_nowait()


def _record(message: Any) -> SourceRecord:
    headers = message.headers or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    at_ms = 0 if message.timestamp is None else round(message.timestamp * 1000)
    return SourceRecord(
        message.topic, message.partition, message.offset, message.key, message.value, tuple(pairs), at_ms
    )

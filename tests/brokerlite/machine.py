"""The broker's machine driven by hand: no socket, no clock, a folder of the test's own."""

import math
import uuid
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

from ottla.brokerlite.handlers import SERVED
from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.core import Answer, BrokerCore, Call, CloseConnection, HoldConnection, Settings
from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.machines.partitions.partition_log import Appended, PartitionLog
from ottla.brokerlite.machines.partitions.validation import validated
from ottla.brokerlite.machines.topics.housekeeping import HousekeepingSettings
from ottla.brokerlite.storage.data_folder import DataFolder
from ottla.brokerlite.storage.disk import Disk
from ottla.client_info import ANONYMOUS, ClientInfo
from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.frames import RequestHeader
from ottla.codec.records import BatchBuilder, Record, read_batches
from ottla.codec.wire import Part, api

T = TypeVar("T")

START = 100.0
"""The first time on a machine's clock."""
TODAY = 1_700_000_000_000
"""Milliseconds since 1970."""
NEWEST = {key: served.highest for key, served in SERVED.items()} | {0: 12, 1: 12, 8: 9, 9: 9}
"""The versions that `Machine.ask` uses: the highest ones, but topics must still be named by name."""


def a_batch(*values: bytes, key: bytes | None = b"k", timestamp: int = TODAY, **build: Any) -> bytes:
    """A produced record set: one batch of ``values``, a millisecond apart."""
    builder = BatchBuilder()
    for i, value in enumerate(values or (b"value",)):
        builder.append(timestamp + i, key, value)
    return builder.build(**build)


def idempotent(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> bytes:
    values = [b"%d" % (sequence + i) for i in range(count)]
    return a_batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def store(
    log: PartitionLog, records: bytes | None, version: int = 13, *, timestamp: int = TODAY, now: float = 0.0
) -> Appended:
    """Append a produced record set to a partition."""
    batch = validated(records, version=version, settings=log.settings, timestamp=timestamp, name=log.name)
    return log.append(batch, timestamp, now)


def values_of(records: Part | None) -> list[bytes | None]:
    return [record.value for record in records_of(records)]


def records_of(records: Part | None) -> list[Record]:
    return [record for batch in read_batches(bytes(records or b"")) for record in batch.records()]


def producing(
    *record_sets: bytes | None, topic: str = "t", partition: int = 0, acks: int = -1, **others: Any
) -> ProduceRequest:
    """A Produce request whose record sets go to consecutive partitions, beginning with ``partition``."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=(
            TopicProduceData(
                name=topic,
                partition_data=tuple(
                    PartitionProduceData(index=partition + i, records=records) for i, records in enumerate(record_sets)
                ),
            ),
        ),
        **others,
    )


def fetching(
    offset: int = 0,
    *,
    topic: str = "t",
    partitions: tuple[int, ...] = (0,),
    wait: float = 0.5,
    min_bytes: int = 1,
    max_bytes: int = 2**20,
    partition_max_bytes: int = 2**20,
    **others: Any,
) -> FetchRequest:
    asked = tuple(
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for index in partitions
    )
    return FetchRequest(
        max_wait_ms=int(wait * 1000),
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=(FetchTopic(topic=topic, partitions=asked),),
        **others,
    )


def a_session(principal: str = ANONYMOUS) -> ClientInfo:
    return ClientInfo(local_host="here", local_port=9092, peer_host="127.0.0.1", peer_port=50_000, principal=principal)


def work_off(job: Generator[Work, None, T]) -> T:
    """Run a job in this thread, in the steps of the driver, and return its result."""
    raised: Exception | None = None
    try:
        while True:
            work = next(job) if raised is None else job.throw(raised)
            try:
                work()
                raised = None
            except Exception as error:
                raised = error
    except StopIteration as done:
        returned: T = done.value
        return returned


class Flushes:
    """What a partition needs of a data folder: takes its flushes."""

    def __init__(self, full: Callable[[Work], object] = lambda flush: None) -> None:
        self._full = full

    def full(self, flush: Work) -> None:
        self._full(flush)

    def written(self, partition: object, size: int) -> None:
        pass

    def appending(self) -> None:
        pass


class Machine:
    """A `BrokerCore` on a folder.

    Attributes:
        now: the time in seconds; the test sets it.
    """

    def __init__(
        self,
        data: Path,
        *,
        defaults: dict[str, str] | None = None,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
        disk: Disk | None = None,
        folder_sync: bool = False,
        **settings: Any,
    ) -> None:
        self.now = START
        self.disk = disk
        self.folder = DataFolder(
            data, index_interval_bytes=4096, sync=folder_sync, chore=lambda chore: chore(), disk=disk
        )
        self.folder.open(1, None)
        known: dict[str, Any] = {"node_id": 1, "cluster_id": "c", "host": "broker", "port": 9092} | settings
        self.core = BrokerCore(
            Settings(**known),
            self.folder,
            SERVED,
            Clock.at(self.now, TODAY),
            new_id=new_id,
            defaults=defaults,
        )
        self._settings = settings
        self._tickets = 0

    def send(
        self,
        message: Any,
        version: int | None = None,
        *,
        connection: int = 1,
        timestamp: int = TODAY,
        principal: str = ANONYMOUS,
        session_ends_at: float = math.inf,
    ) -> int:
        """Hand in a request; return its ticket."""
        session = a_session(principal)
        session.session_ends_at = session_ends_at
        self._tickets += 1
        key = api(type(message)).key
        header = RequestHeader(
            api_key=key,
            api_version=NEWEST[key] if version is None else version,
            correlation_id=self._tickets,
            client_id=None,
        )
        self.core.handle(self._tickets, Call(connection, session, header, message, self.now, timestamp))
        return self._tickets

    def poll(self) -> list[Answer | CloseConnection]:
        """What is to be sent; jobs are done at once, so that no connection is held."""
        actions = self.core.poll(self.now)
        while jobs := self.core.jobs():
            for job in jobs:
                work_off(job)
            actions += self.core.poll(self.now)
        return [each for each in actions if not isinstance(each, HoldConnection)]

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and run everything that comes due."""
        end = self.now + seconds
        while (deadline := self.core.deadline) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.poll()
        self.now = end

    @property
    def is_idle(self) -> bool:
        """Whether no request is waiting; the broker's own housekeeping always has a deadline."""
        return self.core.deadline == START + HousekeepingSettings().cleaner_backoff

    def ask(self, message: Any, version: int | None = None, *, principal: str = ANONYMOUS) -> Any:
        """Hand in a request that is answered at once; return the answer."""
        ticket = self.send(message, version, principal=principal)
        (action,) = self.poll()
        assert isinstance(action, Answer) and action.ticket == ticket
        return action.message

    def log(self, topic: str = "t", partition: int = 0) -> PartitionLog:
        found = self.core.topics.find_own(topic)
        assert found is not None
        return found.partitions[partition]

    def produce(self, *records: bytes, topic: str = "t", partition: int = 0) -> None:
        """Append record sets, which the partition must accept."""
        for each in records:
            answer = self.ask(producing(each, topic=topic, partition=partition))
            assert answer.responses[0].partition_responses[0].error_code == 0

    def restart(self, *, clean: bool = True) -> "Machine":
        """Another machine on the same folder, after the end of this one."""
        (self.folder.close if clean else self.folder.abandon)()
        return Machine(self.folder.path, disk=self.disk, **self._settings)

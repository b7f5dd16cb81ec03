"""The trio face of a consumer."""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

import trio

from ottla.codec.records import Record
from ottla.errors import Closed, DecodeError, LocalProtocolError
from ottla.sdk.drivers.trio import TrioDriver
from ottla.sdk.machines.cluster import TopicPartition
from ottla.sdk.machines.core import ClientCore
from ottla.sdk.machines.fetcher import Fetched, FetcherMachine, Start, Time
from ottla.sdk.places import Where, start_at


class Batch:
    """Records of one partition, in order; iterate over it, or take `records`.

    Attributes:
        topic, partition: where they come from.
        high_watermark: one past the last record that could be read when they were fetched.
    """

    __slots__ = ("_fetched", "_records", "high_watermark", "partition", "topic")

    def __init__(self, fetched: Fetched) -> None:
        self.topic, self.partition = fetched.topic, fetched.partition
        self.high_watermark = fetched.high_watermark
        self._fetched: Fetched | None = fetched
        self._records: list[Record] = []

    @property
    def records(self) -> list[Record]:
        """The records, decoded at the first use.

        Raises:
            DecodeError: a batch is damaged; says which.
        """
        if (fetched := self._fetched) is not None:
            records: list[Record] = []
            for batch in fetched.batches:
                try:
                    records += batch.records()
                except DecodeError as error:
                    error.path = f"{self.topic}-{self.partition} batch at offset {batch.base_offset}: {error.path}"
                    raise
            first = fetched.first_offset
            # Only the first batch can begin before what was asked for.
            self._records = (
                records
                if not records or records[0].offset >= first
                else [each for each in records if each.offset >= first]
            )
            self._fetched = None
        return self._records

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"<Batch of {self.topic}-{self.partition}, {len(self)} records>"


class Consumer:
    """Reads partitions; made by `Client.consumer`, used as ``async with client.consumer("t") as consumer``.

        async for batch in consumer:
            for record in batch:
                handle(record)

    Only this loop may wait for ever, for records that nobody sends; partitions that cannot be read are reported in the
    log, or raised where no waiting helps. When the block is entered, all positions are known: ``start="end"`` means the
    end at that moment.
    """

    def __init__(
        self,
        driver: TrioDriver,
        topics: Sequence[str],
        assignment: Mapping[TopicPartition, Start],
        start: Start,
        reset: Time | None,
        isolation: int,
    ) -> None:
        self._driver, self._topics, self._assignment, self._start = driver, topics, dict(assignment), start
        self._machine = FetcherMachine(driver.core, isolation=isolation, reset=reset)

    async def __aenter__(self) -> Self:
        core: ClientCore = self._driver.core
        try:
            for name in self._topics or sorted({topic for topic, _ in self._assignment}):
                topic = await self._driver.call(lambda now, name=name: core.topic(name, now))  # type: ignore[misc]
                if self._topics:
                    self._assignment |= {(name, partition): self._start for partition in topic.partitions}
            self._machine.assign(self._assignment, trio.current_time())
            self._machine.follow(self._topics)
            await self._resolve()
        except BaseException:
            self._machine.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._machine.close()
        self._driver.nudge()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """The next batch of some partition; waits until there is one.

        Raises:
            OffsetOutOfRange: a position is outside the log, and ``reset`` is ``"error"``.
            UnknownTopicOrPartition, CorruptMessage, TopicAuthorizationFailed, …: a partition cannot be read on.
        """
        while True:
            if self._machine.closed:
                raise Closed("the consumer is closed")
            # Cancelled before a batch is taken, or not at all: what is taken counts as read.
            await trio.lowlevel.checkpoint_if_cancelled()
            fetched = self._machine.take()
            if fetched is not None:
                self._driver.nudge()
                await trio.lowlevel.cancel_shielded_checkpoint()
                return Batch(fetched)
            await self._driver.call(lambda now: self._machine.wait())

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read, sorted."""
        return self._machine.assignment

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that the loop gets from the partition."""
        position = self._machine.position((topic, partition))
        if position is None:
            raise LocalProtocolError(f"the position of {topic}-{partition} is being looked up: await seek first")
        return position

    async def seek(self, places: Mapping[TopicPartition, Where]) -> None:
        """Go on elsewhere: ``{("t", 0): "beginning"}``, ``"end"``, a datetime or an offset.

        Returns once the offsets are known.
        """
        self._machine.assign({place: start_at(where) for place, where in places.items()}, trio.current_time())
        await self._resolve()

    async def _resolve(self) -> None:
        while not self._machine.resolved:
            await self._driver.call(lambda now: self._machine.moved())
        self._machine.raise_errors()

"""The trio face of the client: `connect`, and what a `Client` does.

    async with ottla.connect("localhost:9092") as client, client.producer() as producer:
        await producer.send("events", b"hello", key=b"k")

Rules:
- A client owns one nursery: its tasks end with its block, and their errors are raised there.
- Every call ends within the bounds given to `connect`; callers shorten them with `trio.move_on_after` and `fail_after`.
"""

import random
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self

import trio

from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.codec.compression import Compression
from ottla.codec.partitioners import PARTITIONERS, Partitioner
from ottla.errors import Closed, ConfigurationError, LocalProtocolError
from ottla.sdk import discovery
from ottla.sdk.admin import TopicDescription
from ottla.sdk.consumer import Consumer
from ottla.sdk.drivers.trio import TrioDriver
from ottla.sdk.machines import calls
from ottla.sdk.machines.cluster import TopicPartition
from ottla.sdk.machines.core import ClientCore
from ottla.sdk.machines.fetcher import READ_COMMITTED, READ_UNCOMMITTED, Offset, Time
from ottla.sdk.machines.options import Options, announced_name, parse_bootstrap
from ottla.sdk.machines.producer import ProducerOptions
from ottla.sdk.places import Where, start_at
from ottla.sdk.producer import Producer


def connect(
    bootstrap: str | list[str],
    *,
    client_id: str = "ottla",
    connect_timeout: float = 10.0,
    request_timeout: float = 30.0,
    api_timeout: float = 60.0,
    delivery_timeout: float = 120.0,
    max_request_size: int = 2**20,
    fetch_max_bytes: int = 50 * 2**20,
    partition_max_bytes: int = 2**20,
    fetch_max_wait: float = 0.5,
) -> "Client":
    """A client; use it as ``async with connect(...) as client``. Durations in seconds, sizes in bytes.

    Args:
        bootstrap: ``host:port`` (several separated by commas, or a list), ``zeroconf://name``, or ``zeroconf://`` for
            whatever is announced on the network.
        client_id: how brokers name this client in their logs and quotas.
        connect_timeout: for one connection, and for `connect` to hear from any broker.
        request_timeout: for one request to one broker.
        api_timeout: for a whole call (administration, offsets, unknown topics), repetitions included.
        delivery_timeout: from `send` to the broker's acknowledgement, repetitions included.
        max_request_size: of one Produce request, and so of one record.
        fetch_max_bytes, partition_max_bytes: of one answer to Fetch, and of one partition in it.
        fetch_max_wait: how long a broker may hold back a Fetch that finds nothing.

    Raises:
        ConfigurationError: an option or an address makes no sense (at once).
        BrokerUnreachable: nobody answered within ``connect_timeout``; says who was tried (on entering the block).
    """
    options = Options(
        client_id=client_id,
        connect_timeout=connect_timeout,
        request_timeout=request_timeout,
        api_timeout=api_timeout,
        delivery_timeout=delivery_timeout,
        max_request_size=max_request_size,
        fetch_max_bytes=fetch_max_bytes,
        partition_max_bytes=partition_max_bytes,
        fetch_max_wait=fetch_max_wait,
    )
    return Client(bootstrap, options)


class Client:
    """Produces, consumes and administers over one set of connections. Made by `connect`."""

    def __init__(self, bootstrap: str | list[str], options: Options) -> None:
        self._bootstrap, self._options = bootstrap, options
        self._announced, self._name = announced_name(bootstrap)
        if not self._announced:
            parse_bootstrap(bootstrap)
        self._rng = random.Random()
        self._nursery_manager = trio.open_nursery()
        self._running: TrioDriver | None = None

    async def __aenter__(self) -> Self:
        bootstrap = self._bootstrap
        if self._announced:
            bootstrap = await discovery.find(self._name, self._options.connect_timeout)
        core = ClientCore(parse_bootstrap(bootstrap), self._options, self._rng)
        nursery = await self._nursery_manager.__aenter__()
        driver = self._running = TrioDriver(core, nursery)
        nursery.start_soon(driver.run)
        try:
            await driver.call(core.connect)
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        driver = self._driver
        driver.core.close(trio.current_time())
        self._running = None
        driver.cancel()
        # Only a cancellation belongs to the nursery, which may have been its cause; other errors pass as they are.
        inner = error if isinstance(error, trio.Cancelled) else None
        try:
            await self._nursery_manager.__aexit__(type(inner) if inner else None, inner, traceback if inner else None)
        except BaseExceptionGroup as group:
            raise _unwrapped(group) from error

    @property
    def _driver(self) -> TrioDriver:
        if self._running is None:
            raise Closed("the client is closed, or was never opened: use it as `async with connect(...) as client`")
        return self._running

    # -- producing and consuming -------------------------------------------------------------------------------------

    def producer(
        self,
        *,
        acks: Literal["all"] | int = "all",
        idempotent: bool | None = None,
        linger: float = 0.005,
        batch_size: int = 64 * 2**10,
        compression: str = "none",
        compression_level: int | None = None,
        partitioner: str | Partitioner = "murmur2",
        buffer_memory: int = 32 * 2**20,
    ) -> Producer:
        """A producer; use it as ``async with client.producer() as producer``.

        Args:
            acks: ``"all"`` (-1), 1 or 0: how many replicas must have a record before it counts as stored.
            idempotent: each record is stored once and in order whatever has to be repeated; needs ``acks="all"``, with
                which it is the default.
            linger: seconds that a batch waits for more records.
            batch_size: bytes of a batch before compression.
            compression: ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``; ``compression_level`` as its
                library counts.
            partitioner: ``"murmur2"`` (as Java), ``"crc32"`` (as librdkafka), ``"fnv1a"``, ``"fnv1a_reference"``, or a
                function of a key and the number of partitions.
            buffer_memory: bytes of records on their way; more have to wait.

        Raises:
            ConfigurationError: the options contradict each other.
        """
        number = -1 if acks == "all" else acks
        if number not in (-1, 0, 1):
            raise ConfigurationError(f"acks must be 'all', 1 or 0, not {acks!r}")
        if idempotent and number != -1:
            raise ConfigurationError("an idempotent producer needs acks='all'")
        if linger < 0 or batch_size < 1 or buffer_memory < 1:
            raise ConfigurationError("linger cannot be negative; batch_size and buffer_memory must be positive")
        try:
            codec = Compression.named(compression)
            place = PARTITIONERS[partitioner] if isinstance(partitioner, str) else partitioner
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        except KeyError:
            names = ", ".join(PARTITIONERS)
            raise ConfigurationError(f"partitioner {partitioner!r} is not one of {names}, nor a function") from None
        options = ProducerOptions(
            acks=number,
            idempotent=number == -1 if idempotent is None else idempotent,
            linger=linger,
            batch_size=batch_size,
            compression=codec,
            compression_level=compression_level,
            partitioner=place,
            buffer_memory=buffer_memory,
        )
        return Producer(self._driver, options, self._rng)

    def consumer(
        self,
        *topics: str,
        assign: Mapping[TopicPartition, Where] | None = None,
        start: Where = "beginning",
        reset: Literal["error", "beginning", "end"] = "error",
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    ) -> Consumer:
        """A consumer of whole topics or of assigned partitions; use it as ``async with client.consumer("t") as c``.

        Args:
            topics: read all partitions of these, also those they get later.
            assign: instead of topics, ``{("t", 0): where}``.
            start: where to begin in the partitions of ``topics``.
            reset: where to go on when a position lies outside the log, because retention deleted what was there.
            isolation: ``"read_committed"`` hides records of open and aborted transactions.

        Raises:
            LocalProtocolError: neither topics nor an assignment, or both.
        """
        if bool(topics) == bool(assign):
            raise LocalProtocolError("a consumer reads either topics or an assignment: give one of them")
        for name in (*topics, *(place[0] if isinstance(place, tuple) else place for place in assign or ())):
            if not isinstance(name, str):
                raise LocalProtocolError(f"topics are named by strings, as in client.consumer('a', 'b'), not {name!r}")
        if any(not isinstance(place, tuple) for place in assign or ()):
            raise LocalProtocolError("an assignment is {(topic, partition): where}, as in {('events', 0): 'beginning'}")
        resets = {"error": None, "beginning": Time(EARLIEST), "end": Time(LATEST)}
        levels = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
        if reset not in resets or isolation not in levels:
            raise ConfigurationError(f"reset is one of {list(resets)}, isolation one of {list(levels)}")
        starts = {place: start_at(where) for place, where in (assign or {}).items()}
        return Consumer(self._driver, topics, starts, start_at(start), resets[reset], levels[isolation])

    # -- administration ----------------------------------------------------------------------------------------------

    async def offsets(self, wanted: Mapping[TopicPartition, Where]) -> dict[TopicPartition, int]:
        """The offsets of places: ``{("t", 0): "end"}``; -1 where no record is as young as the time asked for.

        Raises:
            UnknownTopicOrPartition: one of them does not exist.
        """
        starts = {place: start_at(where) for place, where in wanted.items()}
        times = {place: start.timestamp for place, start in starts.items() if isinstance(start, Time)}
        found = await self._driver.call(lambda now: calls.offsets(self._driver.core, times, now))
        return {place: start.offset if isinstance(start, Offset) else found[place] for place, start in starts.items()}

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> TopicDescription:
        """Make a topic and wait until it can be used; -1 leaves a number to the broker.

        Raises:
            TopicAlreadyExists, InvalidTopic, InvalidPartitions, InvalidReplicationFactor, InvalidConfig: as the broker
                says.
        """
        given = dict(configs or {})
        topic = await self._driver.call(
            lambda now: calls.create_topic(self._driver.core, name, partitions, replication_factor, given, now)
        )
        return TopicDescription.of(topic, given)

    async def delete_topic(self, name: str) -> None:
        """Remove a topic and all its records.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        await self._driver.call(lambda now: calls.delete_topic(self._driver.core, name, now))

    async def list_topics(self) -> list[str]:
        """The names of all topics but Kafka's internal ones, sorted."""
        return await self._driver.call(lambda now: calls.list_topics(self._driver.core, now))

    async def describe_topic(self, name: str) -> TopicDescription:
        """A topic, its partitions, and the configuration that was set for it.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        found = await self._driver.call(lambda now: calls.describe_topic(self._driver.core, name, now))
        return TopicDescription.of(found.topic, found.configs)


def _unwrapped(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error itself where a group holds but one."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error

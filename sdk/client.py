"""The client: `connect`, and the methods of `Client`, for any loop that has a driver.

    async with ottla.connect("localhost:9092") as client, client.producer() as producer:
        await producer.send("events", b"hello", key=b"k")

Rules:
- A client's background work ends with its block, which raises its errors.
- Every call ends within the timeouts given to `connect`; to shorten one, use your loop's own means, such as
  `trio.move_on_after`.
"""

import random
import sys
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from ottla.codec.apis.list_offsets import MAX_TIMESTAMP
from ottla.errors import Closed, ConfigurationError, LocalProtocolError, OttlaError, PartialFailure
from ottla.sdk import calls, mdns
from ottla.sdk.admin import (
    SCRAM_MECHANISMS,
    BrokerDescription,
    CommittedOffset,
    GroupDescription,
    GroupLag,
    GroupListing,
    HangingTransaction,
    ListedOffset,
    ProducerIdAndEpoch,
    ProducerState,
    ResetPlan,
    ScramCredentialHash,
    ShareGroupDescription,
    ShareOffset,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
    UserDescription,
)
from ottla.sdk.arguments import by_topic_partition, integer, known, listed, scoped, seconds, strings
from ottla.sdk.blocks import ClientNames, Suggesting
from ottla.sdk.client_parts import ClientParts
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.options import ConsumerOptions, ConsumerPlan, TopicFilter
from ottla.sdk.consume.partitions.fetched import Fetched
from ottla.sdk.consume.partitions.position import NoStart, Offset, Start, Time
from ottla.sdk.consume.partitions.record_sets import READ_COMMITTED, READ_UNCOMMITTED
from ottla.sdk.consume.partitions.starts import Where, fixed_start_at, start_at
from ottla.sdk.consume.reading.fetcher import Fetcher
from ottla.sdk.consumer import Consumer, ConsumerHooks
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.driver import Driver, DriverType
from ottla.sdk.drivers.pump import Pump
from ottla.sdk.events import Node
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.logs import logger
from ottla.sdk.metrics import Metric
from ottla.sdk.options import ClientOptions, announced_name, as_arguments, parse_bootstrap
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import K, V
from ottla.sdk.producer import Producer, ProducerHooks
from ottla.sdk.share.options import ShareConsumerOptions
from ottla.sdk.share_consumer import ShareConsumer
from ottla.sdk.signatures import advising_call, declared_by
from ottla.sdk.transaction.options import TransformOptions
from ottla.sdk.transform import Transform
from ottla.topic_configs import of_changes, of_strings

if TYPE_CHECKING:
    from ottla.sdk.acls import AclBinding, AclBindingFilter
    from ottla.sdk.calls.transactions import Writer

log = logger("ottla.sdk.consumer")


@declared_by(ClientOptions)
def connect(options: ClientOptions) -> "Client":
    """A client for trio; use it as ``async with connect("localhost:9092") as client``.

    Raises:
        ConfigurationError: an option or an address is invalid; raised at once.
        BrokerUnreachable: no broker answered within ``connect_timeout``; names the addresses tried. Raised on entering
            the block.
    """
    from ottla.sdk.drivers.trio import TrioDriver  # only here: asyncio needs nothing of trio

    return Client(options, TrioDriver)


def _never_left(driver: Pump[Any]) -> None:
    """Log an error if a client is freed, or the program ends, before its block ended: no data are lost silently."""
    core, ours = driver.core, driver.abandon()
    if core.closed is None and ours:
        # A finalizer imports nothing: it runs at any line, and after the import system has stopped. Without this module
        # there was no producer.
        kind = getattr(sys.modules.get("ottla.sdk.produce.core"), "ProducerCore", ())
        records = sum(part.pending for part in core.parts if isinstance(part, kind))
        what = "a client's block never ended, so records that its producers accepted may be lost, and its consumers"
        why = f"{what} never leave their groups: use `async with` (`with`), or call the method that ends its block"
        logger("ottla.sdk").error(why, extra={"records": records})


class Client(Suggesting, ClientNames, ClientParts):
    """Produces, consumes and administers over one set of connections. Created by `connect`.

    In addition to the errors that it documents, every call may raise `TimeoutExpired` (after `api_timeout`; says what
    it waited for), `Closed`, and any `BrokerError` that the broker answers, such as `TopicAuthorizationFailed`.
    """

    def __init__(self, options: ClientOptions, driver: DriverType) -> None:
        self._options, self._kind = options, driver
        self._rng = random.Random()
        self._running: Driver[Any] | None = None
        self._opened = False

    async def __aenter__(self) -> Self:
        if self._opened:
            raise LocalProtocolError("a client can be opened only once: create another one with connect(...)")
        self._opened = True
        self._kind.require_loop()
        announced, name = announced_name(self._options.bootstrap)
        find = partial(mdns.find, name, self._options.connect_timeout)
        addresses = parse_bootstrap(await self._kind.in_thread(find) if announced else self._options.bootstrap)
        core = ClientCore(addresses, self._options, self._rng, find=find if announced else None)
        driver = self._running = self._kind(core)
        self._finalizer = weakref.finalize(self, _never_left, driver)
        await driver.start()
        try:
            await driver.call(core.connect)
        except BaseException as error:  # a cancellation included
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        driver = self._driver
        if driver.is_gone(error):
            return
        driver.refuse_another_loop()
        driver.refuse_in_own_thread()
        self._finalizer.detach()
        try:
            await driver.run(driver.core.leave_groups())
        finally:  # also if a cancellation waited for this and is raised now: other calls may wait for a result
            try:
                driver.close()
            finally:
                self._running = None
                await driver.stop(error)

    @property
    def _driver(self) -> Driver[Any]:
        if self._running is None:
            raise Closed("the client is closed, or was never opened: use it as `async with connect(...) as client`")
        return self._running

    # -- to see what happens -----------------------------------------------------------------------------------------

    def metrics(self) -> list[Metric]:
        """Every metric, under Kafka's name for it (`ottla.sdk.metrics`); may be called from any thread."""
        driver = self._driver
        return driver.read(lambda: driver.core.metrics.snapshot(driver.now()))

    def explain(self) -> str:
        """The client's present waits, a line for each: which node or partition, why, what was tried.

        Empty while the client waits for nothing unusual.
        """
        driver = self._driver
        return driver.read(lambda: "\n".join(driver.core.explain(driver.now())))

    # -- producing and consuming: `ClientParts` has these calls, with an argument for each option ---------------------

    def _producer(self, options: ProducerOptions, hooks: ProducerHooks[K, V]) -> Producer[K, V]:
        """A producer; use it as ``async with client.producer() as producer``.

        Raises:
            ConfigurationError: an option is invalid, or options contradict each other.
        """
        limit = options.delivery_timeout or self._options.delivery_timeout
        if options.linger >= limit:
            needs = f"linger must be below delivery_timeout, {limit:g} s, not {options.linger:g} s"
            raise ConfigurationError(f"{needs}: no batch would be sent in time")
        return Producer(self._driver, options, self._rng, hooks)

    def _consumer(
        self, topics: tuple[str, ...], options: ConsumerOptions, hooks: ConsumerHooks, member: MemberOptions
    ) -> Consumer:
        """A consumer; use it as ``async with client.consumer("t", group="g") as consumer``. Durations in seconds.

        Consumers of the same group in one process share the topic's partitions, and so read it in parallel.

        Args:
            topics: read these: all their partitions, or the partitions that the group assigns to this member.

        Raises:
            ConfigurationError: an option is invalid, options contradict each other, or not exactly one of topics,
                pattern and assign is given.
        """
        _check_what_to_read(topics, options)
        shared = options.group is not None and not options.assign
        if options.pattern_re2 is not None and not (shared and member.group_protocol == "consumer"):
            raise ConfigurationError("pattern_re2 needs a group, and group_protocol='consumer': brokers match it there")
        if not shared:
            _check_without_member(hooks.listener, member)
        plan = ConsumerPlan(
            start=_start_at(options.start, options.group),
            topics=topics,
            matches=TopicFilter(options.pattern, options.deny) if options.pattern else None,
            member=member.checked() if shared else None,
            options=options,
        )
        wanted = by_topic_partition("assign", options.assign or {})
        starts = {place: None if where == "committed" else start_at(where) for place, where in wanted.items()}
        if options.group is None and None in starts.values():
            raise ConfigurationError("'committed' needs a group, as in group='billing'")
        again = None if options.reset == "error" else start_at(options.reset)
        if isinstance(again, Offset):
            raise ConfigurationError(f"reset must be 'error', 'beginning', 'end' or a time, not {options.reset!r}")
        core, level = self._driver.core, isolation_level(options.isolation)
        fetcher = partial(Fetcher, core, isolation=level, reset=again, wall=lambda: time.time())
        return Consumer(self._driver, plan, fetcher, starts, hooks)

    def _share_consumer(self, topics: tuple[str, ...], options: ShareConsumerOptions) -> ShareConsumer:
        """A member of a share group, which shares records instead of partitions (KIP-932, Kafka 4.2 or newer).

        Use it as ``async with client.share_consumer("jobs", group="workers") as jobs``. Each record is locked for one
        member of the group, which accepts, releases or rejects it.

        Args:
            topics: read these.

        Raises:
            ConfigurationError: an option is invalid, or no topic is given.
        """
        if not topics:
            raise ConfigurationError("name the topics to read, as in client.share_consumer('jobs', group='workers')")
        for name in topics:
            if not isinstance(name, str):
                raise ConfigurationError(f"topics are named by strings, as in client.share_consumer('a'), not {name!r}")
        return ShareConsumer(self._driver, topics, options)

    def _transform(
        self,
        topics: tuple[str, ...],
        options: TransformOptions,
        reading: ConsumerOptions,
        reading_hooks: ConsumerHooks,
        member: MemberOptions,
        sending: ProducerOptions,
        sending_hooks: ProducerHooks[K, V],
    ) -> Transform[K, V]:
        """Read topics as a member of a group, and write the results, exactly once.

        Use it as ``async with client.transform("in", group=..., transactional_id=...) as transform``: records and
        offsets are committed together.

        Args:
            topics: as in `consumer`.

        Raises:
            ConfigurationError: an option is invalid, options contradict each other, or not exactly one of topics and
                pattern is given.
        """
        # By the public methods: a subclass or a tracer that has replaced them expects every consumer and producer.
        consumer = self.consumer(*topics, **as_arguments(reading, reading_hooks, member))
        producer: Producer[K, V] = self.producer(**as_arguments(sending, sending_hooks))
        return Transform(self._driver, consumer, producer, options)

    # -- administration ----------------------------------------------------------------------------------------------

    async def leader(self, topic: str, partition: int) -> Node:
        """The node that leads the partition at this moment: its id, host, port and rack. Waits for an election.

        Raises:
            UnknownTopicOrPartition: there is no such partition.
        """
        [place] = listed("topic and partition", [(topic, partition)])
        return await self._driver.call(lambda now: calls.leader(self._driver.core, place, now))

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 2**20,
        wait: float = 0.5,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    ) -> Fetched:
        """Read a partition from ``offset`` on with a single Fetch request to its leader; keeps no position.

        Iterate over the result; it may hold no record. ``next_offset`` says where to continue. If a response would take
        more than ``fetch_batch_memory`` when decompressed, only its first batches are returned.

        Args:
            max_bytes: of the response; a single batch may be larger.
            wait: seconds that the leader may wait for a record if there is none.

        Raises:
            OffsetOutOfRange: ``offset`` is before the beginning of the log, or after its end.
            UnknownTopicOrPartition: there is no such partition.
        """
        [place] = listed("topic and partition", [(topic, partition)])
        return (await self.fetch_many({place: offset}, max_bytes=max_bytes, wait=wait, isolation=isolation))[place]

    async def fetch_many(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        max_bytes: int = 2**20,
        wait: float = 0.5,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    ) -> dict[TopicPartition, Fetched]:
        """Like `fetch`, for several partitions, ``{("t", 0): 42}``: one Fetch request to each of their leaders.

        Args:
            max_bytes: of each partition; a single batch may be larger.
            wait: seconds that a leader may wait if none of its partitions has a record.

        Raises:
            PartialFailure: some of several partitions could not be read; ``.found`` has the others.
            OffsetOutOfRange, UnknownTopicOrPartition: as in `fetch`, if you asked for a single one.
        """
        how, starts = self._how(max_bytes, wait, isolation), by_topic_partition("offsets", offsets)
        for offset in starts.values():
            if integer("an offset", offset) < 0:
                raise ConfigurationError(f"a fetch needs an offset of 0 or more, not {offset}")
        answers = await self._driver.call(lambda now: calls.fetch_many(self._driver.core, starts, now, how))
        found = {place: each for place, each in answers.items() if isinstance(each, Fetched)}
        failed = {f"{place[0]}-{place[1]}": each for place, each in answers.items() if isinstance(each, OttlaError)}
        if failed and len(answers) == 1:
            raise failed.popitem()[1]
        if failed:
            raise PartialFailure(f"fetching {len(answers)} partitions", found, failed)
        return found

    def _how(self, max_bytes: int, wait: float, isolation: str) -> calls.How:
        if max_bytes < 1 or not 0 <= wait < self._options.request_timeout:
            raise ConfigurationError("a fetch needs a positive max_bytes, and a wait shorter than request_timeout")
        return calls.How(max_bytes, wait, isolation_level(isolation))

    async def offsets_before(
        self,
        times: Mapping[TopicPartition, datetime | timedelta],
        *,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    ) -> dict[TopicPartition, int]:
        """The last offset before a time, or so long ago, of each: ``{("t", 0): datetime(2026, 1, 1, tzinfo=UTC)}``.

        It precedes the first record of that time or later: every record up to it is older, even if timestamps do not
        ascend. If no record is that recent, it is the last offset of the log; -1 if no record is older. Compaction and
        transactions leave gaps, so there may be no record at this very offset.

        Args:
            isolation: as in `offsets`.

        Raises:
            UnknownTopicOrPartition: one of them does not exist.
        """
        level, stamps = isolation_level(isolation), dict[TopicPartition, int]()
        for place, when in by_topic_partition("times", times).items():
            if not isinstance(when, datetime | timedelta):
                raise ConfigurationError(f"{when!r} is not a time: give a datetime, or a timedelta (so long ago)")
            at = fixed_start_at(when, time.time())
            stamps[place] = at.timestamp if isinstance(at, Time) else -1
        return await self._driver.call(lambda now: calls.offsets_before(self._driver.core, stamps, now, level))

    async def offsets(
        self,
        wanted: Mapping[TopicPartition, Where],
        *,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    ) -> dict[TopicPartition, int]:
        """Look up offsets: ``{("t", 0): "end"}``; -1 if no record is as recent as the time asked for.

        Args:
            isolation: with ``"read_committed"`` a log ends at its last stable offset, where its first open transaction
                begins.

        Raises:
            UnknownTopicOrPartition: one of them does not exist.
        """
        level = isolation_level(isolation)
        starts = {
            place: fixed_start_at(where, time.time()) for place, where in by_topic_partition("wanted", wanted).items()
        }
        times = {place: start.timestamp for place, start in starts.items() if isinstance(start, Time)}
        found = await self._driver.call(lambda now: calls.offsets(self._driver.core, times, now, level))
        return {place: start.offset if isinstance(start, Offset) else found[place] for place, start in starts.items()}

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, Literal["beginning", "end", "max_timestamp"] | datetime],
        *,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    ) -> dict[TopicPartition, ListedOffset]:
        """Like `offsets`, with the timestamp and the leader epoch of each record found.

        Args:
            wanted: ``"max_timestamp"`` is the record with the largest timestamp.
            isolation: as in `offsets`.

        Raises:
            UnknownTopicOrPartition: one of them does not exist.
            UnsupportedVersion: ``"max_timestamp"`` needs brokers of Kafka 3.0 or newer.
        """
        level = isolation_level(isolation)
        times: dict[TopicPartition, int] = {}
        for place, where in by_topic_partition("wanted", wanted).items():
            start = Time(MAX_TIMESTAMP) if where == "max_timestamp" else fixed_start_at(where, time.time())
            if isinstance(start, Offset):
                raise ConfigurationError(f"{where!r} is an offset already: ask for a time or an end of the log")
            times[place] = start.timestamp
        return await self._driver.call(lambda now: calls.list_offsets(self._driver.core, times, now, level))

    async def brokers(self) -> tuple[BrokerDescription, ...]:
        """The brokers of the cluster at this moment, sorted by id: address, rack, and whether it is the controller."""
        return await self._driver.call(lambda now: calls.brokers(self._driver.core, now))

    @advising_call
    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> TopicDescription:
        """Create a topic and wait until it can be used; -1 means the broker's default.

        Raises:
            TopicAlreadyExists, InvalidTopic, InvalidPartitions, InvalidReplicationFactor, InvalidConfig: the broker
                refused.
            UnsupportedVersion: a broker before Kafka 2.4 has no default for these numbers.
            ConfigurationError: a name or value in ``configs`` is not a string.
        """
        given = {} if configs is None else of_strings(configs)
        return await self._driver.call(
            lambda now: calls.create_topic(self._driver.core, name, partitions, replication_factor, given, now)
        )

    async def create_partitions(self, topic: str, total: int) -> TopicDescription:
        """Add partitions to a topic, up to ``total``, and wait until they can be used.

        Existing records stay where they are; new ones with the same key may go to another partition. The description
        has no `configs`.

        Raises:
            InvalidPartitions: the topic has as many already, or more: partitions are never removed.
            UnknownTopicOrPartition: there is no such topic.
            UnsupportedVersion: the broker is older than Kafka 1.0.
        """
        return await self._driver.call(lambda now: calls.create_partitions(self._driver.core, topic, total, now))

    async def configure_topic(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Change some of a topic's configurations; all others stay as they are.

        Brokers apply the change a little after the call returns.

        Args:
            configs: Kafka's names and values, as strings; ``None`` returns a configuration to the broker's default.

        Raises:
            InvalidConfig: a name is unknown, or a value does not fit; the topic stays as it was.
            UnknownTopicOrPartition: there is no such topic.
            UnsupportedVersion: the broker is older than Kafka 2.3.
            ConfigurationError: a name or value in ``configs`` is not a string.
        """
        changes = of_changes(configs)
        await self._driver.call(lambda now: calls.configure_topic(self._driver.core, name, changes, now))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        await self._driver.call(lambda now: calls.delete_topic(self._driver.core, name, now))

    async def list_topics(self) -> list[str]:
        """The names of all topics except Kafka's internal ones, sorted."""
        return await self._driver.call(lambda now: calls.list_topics(self._driver.core, now))

    async def describe_topic(self, name: str, *, configs: bool = True) -> TopicDescription:
        """A topic, its partitions, and the configuration that was set for it.

        It needs Describe on the topic. Without DescribeConfigs, its ``configs`` are ``None``, and the broker may log a
        denial.

        Args:
            configs: whether to ask for the configuration. Without, the answer has no ``configs``.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        return await self._driver.call(lambda now: calls.describe_topic(self._driver.core, name, now, configs=configs))

    # -- administration of ACLs --------------------------------------------------------------------------------------

    async def create_acls(self, acls: "Iterable[AclBinding]") -> None:
        """Create ACLs; existing ACLs stay as they are.

        Raises:
            ConfigurationError: an ACL would have no effect: its operation does not fit its resource, for example.
            SecurityDisabled: the brokers have no authorizer.
            PartialFailure: some ACLs could not be created.
        """
        await self._driver.call(lambda now: calls.create_acls(self._driver.core, acls, now))

    async def describe_acls(self, wanted: "AclBindingFilter | None" = None) -> "tuple[AclBinding, ...]":
        """The ACLs that a filter matches, sorted by resource; without a filter, all.

        Raises:
            SecurityDisabled: the brokers have no authorizer.
        """
        return await self._driver.call(lambda now: calls.describe_acls(self._driver.core, wanted, now))

    async def delete_acls(self, filters: "Iterable[AclBindingFilter]") -> "tuple[AclBinding, ...]":
        """Delete the ACLs that any of the filters matches; return them, sorted by resource.

        If a response is lost, the retry finds no ACLs, and the result lacks the ACLs that the first request deleted.

        Raises:
            SecurityDisabled: the brokers have no authorizer.
            PartialFailure: some ACLs could not be deleted.
        """
        return await self._driver.call(lambda now: calls.delete_acls(self._driver.core, filters, now))

    # -- administration of users --------------------------------------------------------------------------------------

    async def describe_users(self, users: Iterable[str] = ()) -> tuple[UserDescription, ...]:
        """The users that log in by SCRAM, sorted by name; or only ``users``.

        Raises:
            ResourceNotFound: one of ``users`` does not exist.
            UnsupportedVersion: the broker is older than Kafka 2.7.
        """
        names = strings("users", users)
        return await self._driver.call(lambda now: calls.describe_users(self._driver.core, names, now))

    async def set_scram_credential(self, user: str, hashed: ScramCredentialHash) -> None:
        """Create a user, or change its password for one mechanism; open connections of the user continue.

        Use TLS: everyone who sees the salted password can log in with it.

        Raises:
            UnacceptableCredential: the name is empty, or there are too few or too many iterations.
            UnsupportedVersion: the broker is older than Kafka 2.7.
        """
        await self._driver.call(lambda now: calls.set_credential(self._driver.core, user, hashed, now))

    async def delete_scram_credential(self, user: str, mechanism: str) -> None:
        """Take a user's password for one mechanism away; open connections of the user continue.

        Raises:
            ResourceNotFound: the user has none.
            ConfigurationError: there is no such mechanism.
            UnsupportedVersion: the broker is older than Kafka 2.7.
        """
        [name] = known("mechanism", tuple(SCRAM_MECHANISMS), (mechanism,))
        await self._driver.call(lambda now: calls.delete_credential(self._driver.core, user, name, now))

    # -- administration of groups ------------------------------------------------------------------------------------

    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> tuple[GroupListing, ...]:
        """All groups, of every broker, sorted by name; or only groups in one of ``states`` and of one of ``types``.

        Args:
            states: ``"Stable"``, ``"Empty"``, ``"PreparingRebalance"``, …, case-insensitive.
            types: ``"classic"``, ``"consumer"``, ``"share"``, ``"streams"``.

        Raises:
            ConfigurationError: there is no such state or type; suggests the nearest.
            PartialFailure: a broker did not answer within `connect_timeout`; ``.found`` has the others' groups.
            UnsupportedVersion: states need brokers of Kafka 2.6 or newer.
        """
        kept = strings("states", states), strings("types", types)
        return await self._driver.call(lambda now: calls.list_groups(self._driver.core, *kept, now))

    async def describe_group(self, group: str) -> GroupDescription:
        """State, protocol, coordinator and members of a classic group or a consumer group.

        Raises:
            GroupIdNotFound: there is no such group.
        """
        return (await self.describe_groups([group]))[group]

    async def describe_groups(self, groups: Iterable[str]) -> dict[str, GroupDescription]:
        """Like `describe_group`, with one request to each coordinator.

        Raises:
            PartialFailure: some of several groups could not be described; ``.found`` has the others.
        """
        names = strings("groups", groups)
        return await self._driver.call(lambda now: calls.describe_groups(self._driver.core, names, now))

    async def group_lag(
        self, group: str, *, isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    ) -> GroupLag:
        """Describe a group, and its lag in each partition that it has committed or that a member reads.

        Args:
            isolation: as the group's members use it, see `offsets`; brokers do not know it.

        Raises:
            GroupIdNotFound: there is no such group.
        """
        return (await self.group_lags([group], isolation=isolation))[group]

    async def group_lags(
        self,
        groups: Iterable[str],
        *,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    ) -> dict[str, GroupLag]:
        """Like `group_lag`, for many groups.

        Raises:
            PartialFailure: some of several groups could not be described; ``.found`` has the others.
        """
        names, level = strings("groups", groups), isolation_level(isolation)
        return await self._driver.call(lambda now: calls.group_lags(self._driver.core, names, now, level))

    async def committed(
        self, group: str, places: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that a group has committed, of ``places`` or of all partitions.

        A partition without a committed offset has no entry. A group that does not exist has committed nothing.

        Raises:
            UnsupportedVersion: all partitions need brokers of Kafka 0.10.2 or newer.
        """
        asked = {group: None if places is None else listed("places", places)}
        return (await self._driver.call(lambda now: calls.committed(self._driver.core, asked, now)))[group]

    async def delete_group(self, group: str) -> None:
        """Delete a group without members, and its offsets.

        Raises:
            GroupIdNotFound: there is no such group.
            NonEmptyGroup: it has members; names them.
            UnsupportedVersion: the broker is older than Kafka 1.1.
        """
        await self.delete_groups([group])

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Like `delete_group`, with one request to each coordinator.

        Raises:
            PartialFailure: some of several groups were not deleted; ``.failures`` has them.
        """
        names = strings("groups", groups)
        await self._driver.call(lambda now: calls.delete_groups(self._driver.core, names, now))

    async def delete_offsets(self, group: str, places: Iterable[TopicPartition]) -> None:
        """Delete the offsets that a group has committed in partitions to which no member subscribes.

        Raises:
            GroupIdNotFound: there is no such group.
            GroupSubscribedToTopic: a member subscribes to the topic.
            PartialFailure: the offsets of some of several partitions were not deleted; ``.failures`` has them.
            UnsupportedVersion: the broker is older than Kafka 2.4.
        """
        asked = listed("places", places)
        await self._driver.call(lambda now: calls.delete_offsets(self._driver.core, group, asked, now))

    async def reset_offsets(
        self,
        group: str,
        to: "Where | Literal['current'] | timedelta | Mapping[TopicPartition, int] | None" = None,
        *,
        shift_by: int | None = None,
        topics: Iterable[str | TopicPartition] | None = None,
        execute: bool = False,
    ) -> ResetPlan:
        """Plan where a group without members continues, and with ``execute`` commit it.

            plan = await client.reset_offsets("billing", timedelta(hours=1), topics=["orders"])
            await client.reset_offsets("billing", {("orders", 0): 4711}, execute=True)

        Args:
            to: ``"beginning"``, ``"end"``, an offset, a datetime, a timedelta (so long ago), ``"current"`` (the
                committed offset, or the end), or an offset for each partition, such as `offsets_from_csv` reads.
            shift_by: instead of ``to``: records to skip; a negative number goes back.
            topics: names of topics and ``(topic, partition)``; by default every partition that the group has committed.

        Returns:
            The old and the new offset of each partition. An offset outside the log becomes the nearer end of the log,
            with a note. The commit creates a group that does not exist yet, with a note, too.

        Raises:
            NonEmptyGroup: the group has members; names them.
            GroupIdNotFound: it is a share group.
            UnknownTopicOrPartition: a topic or partition does not exist.
            LocalProtocolError: ``shift_by`` for a partition without a committed offset.
            ConfigurationError: an argument is invalid, or arguments contradict each other.
        """
        target = _reset_target(to, shift_by)
        if isinstance(target, calls.resets.Exactly) and topics is not None:
            raise ConfigurationError("offsets given for each partition say which partitions: leave out `topics`")
        scope = None if topics is None else scoped("topics", topics)
        return await self._driver.call(
            lambda now: calls.resets.reset_offsets(self._driver.core, group, target, scope, execute, now)
        )

    # -- administration of share groups ------------------------------------------------------------------------------

    async def describe_share_group(self, group: str) -> ShareGroupDescription:
        """State, coordinator and members of a share group; `list_groups` with ``types=["share"]`` lists them.

        Raises:
            GroupIdNotFound: there is no such share group.
            UnsupportedVersion: the brokers are older than Kafka 4.1.
        """
        return (await self.describe_share_groups([group]))[group]

    async def describe_share_groups(self, groups: Iterable[str]) -> dict[str, ShareGroupDescription]:
        """Like `describe_share_group`, with one request to each coordinator.

        Raises:
            PartialFailure: some of several groups could not be described; ``.found`` has the others.
        """
        names = strings("groups", groups)
        return await self._driver.call(lambda now: calls.describe_share_groups(self._driver.core, names, now))

    async def share_offsets(
        self, group: str, places: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, ShareOffset]:
        """How far a share group is, in ``places`` or in all partitions that it has read.

        Raises:
            GroupIdNotFound: there is no such share group.
            UnsupportedVersion: the brokers are older than Kafka 4.1.
        """
        asked = {group: None if places is None else listed("places", places)}
        return (await self._driver.call(lambda now: calls.share_offsets(self._driver.core, asked, now)))[group]

    async def reset_share_offsets(
        self,
        group: str,
        to: "Where | timedelta | Mapping[TopicPartition, int]",
        *,
        topics: Iterable[str | TopicPartition] | None = None,
        execute: bool = False,
    ) -> ResetPlan:
        """Plan where a share group without members continues, and with ``execute`` carry it out.

        The group gets all records from there on again, accepted ones included; delivery counts begin again.

        Args:
            to: ``"beginning"``, ``"end"``, an offset, a datetime, a timedelta (so long ago), or an offset for each
                partition.
            topics: names of topics and ``(topic, partition)``; by default every partition that the group has read.

        Returns:
            As `reset_offsets`.

        Raises:
            NonEmptyGroup: the group has members; names them.
            GroupIdNotFound: it is a consumer group.
            UnknownTopicOrPartition: a topic or partition does not exist.
            ConfigurationError: an argument is invalid, or arguments contradict each other.
            UnsupportedVersion: the brokers are older than Kafka 4.1.
        """
        if to == "current":
            raise ConfigurationError("to must be 'beginning', 'end', an offset, a time, or offsets, not 'current'")
        target = _reset_target(to, None)
        if isinstance(target, calls.resets.Exactly) and topics is not None:
            raise ConfigurationError("offsets given for each partition say which partitions: leave out `topics`")
        scope = None if topics is None else scoped("topics", topics)
        return await self._driver.call(
            lambda now: calls.reset_share_offsets(self._driver.core, group, target, scope, execute, now)
        )

    async def delete_share_offsets(self, group: str, topics: Iterable[str]) -> None:
        """Delete the progress of a share group without members in whole topics.

        If it reads such a topic again, it begins where its configuration ``share.auto.offset.reset`` says.

        Raises:
            GroupIdNotFound: there is no such share group.
            NonEmptyGroup: it has members; names them.
            PartialFailure: some of several topics failed; ``.failures`` has them.
        """
        names = strings("topics", topics)
        await self._driver.call(lambda now: calls.delete_share_offsets(self._driver.core, group, names, now))

    # -- administration of transactions ------------------------------------------------------------------------------

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        running_longer: float | None = None,
    ) -> tuple[TransactionListing, ...]:
        """All transactional ids, of every broker, sorted, whether or not a transaction is open.

        Args:
            states: only ids in one of these states: ``"Ongoing"``, ``"CompleteCommit"``, …, case-insensitive.
            producer_ids: only ids with one of these.
            running_longer: only ids whose transaction has been open for more than so many seconds.

        Raises:
            ConfigurationError: there is no such state, or no transaction can be open in it.
            PartialFailure: a broker did not answer within `connect_timeout`; ``.found`` has the others' ids.
            UnsupportedVersion: the brokers are older than Kafka 3.0, or than 3.8 with ``running_longer``.
        """
        asked = strings("states", states), [integer("each of producer_ids", each) for each in producer_ids]
        longer = None if running_longer is None else seconds("running_longer", running_longer)
        return await self._driver.call(lambda now: calls.list_transactions(self._driver.core, *asked, longer, now))

    async def describe_transactions(self, *transactional_ids: str) -> dict[str, TransactionDescription]:
        """Describe each transactional id, as its coordinator knows it: its producer, its state, its open transaction.

        Raises:
            TransactionalIdNotFound: there is no such id; the coordinator forgets idle ones after a week
                (``transactional.id.expiration.ms``).
            PartialFailure: some of several ids could not be described; ``.found`` has the others.
            UnsupportedVersion: the broker is older than Kafka 3.0.
        """
        ids = strings("transactional_ids", transactional_ids)
        return await self._driver.call(lambda now: calls.describe_transactions(self._driver.core, ids, now))

    async def describe_producers(
        self, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The producers that each partition remembers, and where their open transactions begin.

        A partition does not remember producers that use neither transactions nor idempotence. It forgets the others a
        day after their last write (``producer.id.expiration.ms``), unless they have an open transaction.

        Raises:
            UnknownTopicOrPartition: there is no such partition.
            PartialFailure: some of several partitions could not be described; ``.found`` has the others.
            UnsupportedVersion: the broker is older than Kafka 2.8.
        """
        asked = listed("places", places)
        return await self._driver.call(lambda now: calls.describe_producers(self._driver.core, asked, now))

    async def find_hanging_transactions(
        self, topics: Iterable[str | TopicPartition] | None = None, *, max_transaction_timeout: float = 900.0
    ) -> tuple[HangingTransaction, ...]:
        """Find transactions that are open in a partition although no coordinator is going to end them there.

        You need the right to describe all transactional ids: a transaction that the broker hides from you seems to
        hang.

        Args:
            topics: names of topics and ``(topic, partition)``; by default every partition, also of Kafka's own topics.
            max_transaction_timeout: only transactions whose last record is older, in seconds. Give the brokers'
                ``transaction.max.timeout.ms``, within which a coordinator ends every transaction that it knows.

        Raises:
            UnknownTopicOrPartition: a topic or partition does not exist.
            PartialFailure: some partitions or brokers did not answer; ``.found`` has the ones that certainly hang.
            UnsupportedVersion: the brokers are older than Kafka 3.0.
        """
        scope = None if topics is None else scoped("topics", topics)
        timeout = seconds("max_transaction_timeout", max_transaction_timeout)
        wall = time.time() - self._driver.now()
        return await self._driver.call(
            lambda now: calls.find_hanging_transactions(self._driver.core, scope, timeout, now, wall)
        )

    async def abort_hanging_transaction(
        self,
        topic: str,
        partition: int,
        start_offset: int | None = None,
        *,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        coordinator_epoch: int | None = None,
        force: bool = False,
    ) -> None:
        """Abort a transaction that hangs in a partition: its records there count as aborted, and readers go on.

        Args:
            start_offset: where it begins, as `find_hanging_transactions` and `describe_producers` say.
            producer_id, producer_epoch, coordinator_epoch: instead, for brokers before Kafka 2.8; a dump of the log
                shows them. A coordinator_epoch of -1 means that there was no marker yet.
            force: even if its coordinator is going to end it, and without asking the coordinator, as brokers before
                Kafka 3.0 cannot answer. This breaks an ongoing transaction: complete elsewhere, it is aborted here.

        Raises:
            LocalProtocolError: no transaction begins there, or its coordinator is going to end it; says which.
            InvalidProducerEpoch, TransactionCoordinatorFenced: the partition has seen a newer producer or coordinator.
            ClusterAuthorizationFailed: you need the right to alter the cluster.
            UnsupportedVersion: the brokers are older, or this is a proxy, which does not forward the request.
        """
        [place] = listed("topic and partition", [(topic, partition)])
        which = _which_transaction(start_offset, (producer_id, producer_epoch, coordinator_epoch))
        await self._driver.call(
            lambda now: calls.abort_hanging_transaction(self._driver.core, place, which, force, now)
        )

    async def fence_producers(self, *transactional_ids: str) -> dict[str, ProducerIdAndEpoch]:
        """Fence the producers that have these ids now, and abort their open transactions.

        Each gets `ProducerFenced` with its next request. A producer that opens with the id afterwards is not affected.

        Returns:
            The current producer id and epoch of each id. An id that was never used is created, with epoch 0.

        Raises:
            TransactionalIdAuthorizationFailed: you need the right to write with the id.
            PartialFailure: some of several were not fenced; ``.found`` has the others.
        """
        ids = strings("transactional_ids", transactional_ids)
        return await self._driver.call(lambda now: calls.fence_producers(self._driver.core, ids, now))


def _check_what_to_read(topics: Sequence[object], options: ConsumerOptions) -> None:
    if sum(map(bool, (topics, options.pattern, options.pattern_re2, options.assign))) != 1:
        raise ConfigurationError("a consumer reads topics, a pattern, or an assignment: give one of them")
    for name in topics:
        if not isinstance(name, str):
            raise ConfigurationError(f"topics are named by strings, as in client.consumer('a', 'b'), not {name!r}")


def _check_without_member(listener: object, member: MemberOptions) -> None:
    """For a consumer without a group that assigns partitions: refuse useless options, and log ignored ones."""
    if listener is not None or member.instance_id is not None:
        raise ConfigurationError(
            "listener and instance_id need a group that assigns partitions, as in client.consumer('orders', "
            "group='billing'), without assign"
        )
    if idle := [each.name for each in fields(member) if getattr(member, each.name) != each.default]:
        log.warning("options ignored: they need a group that assigns partitions", extra={"options": idle})


def _start_at(where: Where | Literal["error"], group: str | None) -> Start:
    """Where a consumer begins in a partition for which its group has no committed offset."""
    if where != "error":
        return start_at(where)
    if group is None:
        raise ConfigurationError("start='error' is for a group without a committed offset: without a group, say where")
    advice = "seek, set one with `ottla groups reset`, or choose start='beginning' or 'end'"
    return NoStart(f"group {group!r} has committed no offset here, and start is 'error': {advice}")


def isolation_level(name: str) -> int:
    """Kafka's number for ``"read_uncommitted"`` or ``"read_committed"``."""
    levels = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
    if name not in levels:
        raise ConfigurationError(f"isolation must be 'read_uncommitted' or 'read_committed', not {name!r}")
    return levels[name]


def _reset_target(
    to: "Where | Literal['current'] | timedelta | Mapping[TopicPartition, int] | None", shift_by: int | None
) -> "calls.resets.Target":
    if (to is None) == (shift_by is None):
        raise ConfigurationError("give either the place to reset the offsets to, or the number of records to shift by")
    if shift_by is not None:
        return calls.resets.Shift(integer("shift_by", shift_by))
    match to:
        case "current":
            return calls.resets.Current()
        case Mapping():
            return calls.resets.Exactly(
                {place: integer("an offset", each) for place, each in by_topic_partition("to", to).items()}
            )
    return fixed_start_at(to, time.time())  # type: ignore[arg-type] # it refuses everything else


def _which_transaction(start_offset: int | None, producer: tuple[int | None, int | None, int | None]) -> "int | Writer":
    """Choose a transaction by its start offset, or by its producer's id, epoch and coordinator epoch."""
    given = [each for each in producer if each is not None]
    if (start_offset is None) != (len(given) == 3) or (start_offset is not None and given):
        either = "give start_offset, or all of producer_id, producer_epoch and coordinator_epoch"
        raise ConfigurationError(f"the arguments do not name one transaction: {either}")
    if start_offset is not None:
        return integer("start_offset", start_offset)
    from ottla.sdk.calls.transactions import Writer  # only here: most clients administer nothing

    writer = Writer(*(integer("each id and epoch", each) for each in given))
    for name, most in (("producer_id", 2**63 - 1), ("producer_epoch", 2**15 - 1)):
        if not 0 <= (each := getattr(writer, name)) <= most:
            raise ConfigurationError(f"{name} must be from 0 to {most}, not {each}")
    return writer

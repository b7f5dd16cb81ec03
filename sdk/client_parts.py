# Generated, do not edit: `make faces` writes this file from the declarations of the options.
"""The calls of a client that create its producers, consumers and transforms, with an argument for each option."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from ottla.sdk.blocks import AsyncBlock
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.options import ConsumerOptions
from ottla.sdk.consume.partitions.starts import Where
from ottla.sdk.consumer import Consumer, ConsumerHooks, ConsumerInterceptor, RebalanceListener
from ottla.sdk.group.assignors import Assignor
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.partitioners import Chooser, Hash, Keyed
from ottla.sdk.produce.records import K, ProducerInterceptor, V
from ottla.sdk.producer import Producer, ProducerHooks
from ottla.sdk.share.options import ShareConsumerOptions
from ottla.sdk.share_consumer import ShareConsumer
from ottla.sdk.signatures import advising
from ottla.sdk.transaction.options import TransformOptions
from ottla.sdk.transform import Transform


class ClientParts(AsyncBlock):
    """The calls of a client that take many options. `Client` carries them out."""

    @advising
    def producer(
        self,
        *,
        acks: Literal["all"] | int = "all",
        idempotent: bool | None = None,
        linger: float = 0.005,
        batch_size: int = 512 * 2**10,
        compression: str | Mapping[str, str | tuple[str, int]] = "none",
        compression_level: int | None = None,
        partitioner: str | Hash | Keyed | Chooser = "murmur2",
        buffer_memory: int = 32 * 2**20,
        delivery_timeout: float | None = None,
        transactional_id: str | None = None,
        transaction_timeout: float = 60.0,
        key_serializer: Callable[[K], bytes | None] | None = None,
        value_serializer: Callable[[V], bytes | None] | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
    ) -> Producer[K, V]:
        """A producer; use it as ``async with client.producer() as producer``.

        Args:
            acks: ``"all"`` (-1), 1 or 0: how many replicas must have a record before it counts as stored.
            idempotent: retries neither duplicate nor reorder records; needs ``acks="all"``, with which it is the
                default if the brokers support it (Kafka 0.11). Without it a retry may store records twice; their order
                stays, because only one batch per partition is in flight.
            linger: seconds that a batch waits for more records, at most. A record of `send`, whose caller waits, goes
                at once if no request to its leader is in flight, otherwise after the next response, with all that came
                meanwhile.
            batch_size: bytes of a batch before compression.
            compression: ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``; or one for each topic,
                ``{"events": "zstd", "logs": ("gzip", 9), "*": "lz4"}``, where ``"*"`` is every other topic.
            compression_level: on the scale of the codec's library; for a ``compression`` given as a name.
            partitioner: a name from the table in `ottla.sdk.produce.partitioners`, such as ``"murmur2"`` (as Java),
                ``"consistent_random"`` (as librdkafka) or ``"round_robin"``; a function of a key and the number of
                partitions; or an object with ``choose``, which sees the whole record.
            buffer_memory: bytes of unacknowledged records, uncompressed, plus 2 KiB for each batch; further sends wait.
            delivery_timeout: seconds from sending to the broker's acknowledgement; by default the client's.
            transactional_id: the producer's name for transactions; required for them. It has to stay the same after a
                restart, and no other producer may use it. Records are then sent within `Producer.transaction`.
            transaction_timeout: seconds after which the broker aborts an open transaction.
            key_serializer, value_serializer: turn keys and values into bytes; ``None`` stays ``None``.
            interceptors: see and may replace each record, and are notified of its result.

        Raises:
            ConfigurationError: an option is invalid, or options contradict each other.
        """
        return self._producer(
            ProducerOptions(
                acks=acks,
                idempotent=idempotent,
                linger=linger,
                batch_size=batch_size,
                compression=compression,
                compression_level=compression_level,
                partitioner=partitioner,
                buffer_memory=buffer_memory,
                delivery_timeout=delivery_timeout,
                transactional_id=transactional_id,
                transaction_timeout=transaction_timeout,
            ),
            ProducerHooks(key_serializer=key_serializer, value_serializer=value_serializer, interceptors=interceptors),
        )

    def _producer(self, options: ProducerOptions, hooks: ProducerHooks[K, V]) -> Producer[K, V]:
        raise NotImplementedError

    @advising
    def consumer(
        self,
        *topics: str,
        group: str | None = None,
        pattern: str | Sequence[str] = (),
        deny: str | Sequence[str] = (),
        pattern_re2: str | None = None,
        assign: Mapping[TopicPartition, Where | Literal["committed"]] | None = None,
        start: Where | Literal["error"] = "beginning",
        reset: Where | Literal["error"] = "error",
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        auto_commit: float | None = None,
        max_records: int | None = None,
        listener: RebalanceListener | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        group_protocol: Literal["classic", "consumer", "auto"] = "auto",
        remote_assignor: str | None = None,
        assignors: str | Sequence[str | Assignor] = ("range", "cooperative-sticky"),
        instance_id: str | None = None,
        session_timeout: float = 45.0,
        heartbeat_interval: float = 3.0,
        max_poll_interval: float = 300.0,
    ) -> Consumer:
        """A consumer; use it as ``async with client.consumer("t", group="g") as consumer``. Durations in seconds.

        Consumers of the same group in one process share the topic's partitions, and so read it in parallel.

        Args:
            topics: read these: all their partitions, or the partitions that the group assigns to this member.
            group: share the topics with all members of this group, in any language, and commit offsets to it.
            pattern: instead of topics, regular expressions that the whole name must match (one or several); new topics
                are found within half a minute.
            deny: with ``pattern``, regular expressions that exclude topics whose whole name matches.
            pattern_re2: instead of topics, a regular expression in RE2's syntax that the broker matches with whole
                names; with ``group_protocol="consumer"``.
            assign: instead of topics, ``{("t", 0): where}``, without sharing partitions with a group; with ``group``
                also ``"committed"``, and commits go to that group. Without shared partitions, as without a group,
                ``listener`` and ``instance_id`` are refused, and ``assignors`` and the durations below are ignored,
                with a warning in the log.
            start: where to begin in a partition for which the group has no committed offset, or without a group.
                ``"error"``, for groups: raise `NoCommittedOffset` until you seek.
            reset: where to continue if a position is outside the log, because retention deleted its records.
            isolation: ``"read_committed"`` hides records of open and aborted transactions.
            auto_commit: commit every so many seconds; a batch counts as processed when you ask for the next one. By
                default you have to commit yourself.
            max_records: the most records of a batch, for handlers that are slow per record, or process many
                concurrently; by default a batch has all records of the partition in one response, bounded by
                ``partition_max_bytes`` of `connect`.
            listener: is notified when partitions are assigned, revoked or lost.
            interceptors: see every batch and every commit.
            group_protocol: how the group divides partitions. ``"classic"``: its leader, by one of ``assignors``.
                ``"consumer"``: the broker (KIP-848, Kafka 4.0 or newer); rebalances stop no member. ``"auto"``: as
                ``"consumer"`` if the cluster supports it, the group has no classic members, ``instance_id`` and the
                client's ``rack`` are not set, and ``assignors``, ``session_timeout`` and ``heartbeat_interval``, which
                belong to the classic protocol, have their defaults; else as ``"classic"``.
            remote_assignor: with ``group_protocol="consumer"``, the broker's assignor, for example ``"uniform"`` or
                ``"range"``; by default the broker chooses.
            assignors: how the group divides partitions, best first: ``"range"``, ``"roundrobin"``, ``"sticky"``,
                ``"cooperative-sticky"``, or your own. All members must have one in common. Rebalances stop no member
                only if every assignor offered is cooperative.
            instance_id: makes this a static member, which keeps its partitions if it restarts before its session times
                out; unique in the group. By default it uses the classic protocol, in which a new process replaces a
                killed one at once.
            session_timeout: in the classic protocol, seconds without a heartbeat after which the group removes this
                member; else the broker's ``group.consumer.session.timeout.ms`` decides.
            heartbeat_interval: in the classic protocol, seconds between two heartbeats; else
                ``group.consumer.heartbeat.interval.ms`` of the broker.
            max_poll_interval: seconds between two requests for a batch after which this member leaves the group.

        Raises:
            ConfigurationError: an option is invalid, options contradict each other, or not exactly one of topics,
                pattern and assign is given.
        """
        return self._consumer(
            topics,
            ConsumerOptions(
                group=group,
                pattern=pattern,
                deny=deny,
                pattern_re2=pattern_re2,
                assign=assign,
                start=start,
                reset=reset,
                isolation=isolation,
                auto_commit=auto_commit,
                max_records=max_records,
            ),
            ConsumerHooks(listener=listener, interceptors=interceptors),
            MemberOptions(
                group_protocol=group_protocol,
                remote_assignor=remote_assignor,
                assignors=assignors,
                instance_id=instance_id,
                session_timeout=session_timeout,
                heartbeat_interval=heartbeat_interval,
                max_poll_interval=max_poll_interval,
            ),
        )

    def _consumer(
        self, topics: tuple[str, ...], options: ConsumerOptions, hooks: ConsumerHooks, member: MemberOptions
    ) -> Consumer:
        raise NotImplementedError

    @advising
    def share_consumer(
        self,
        *topics: str,
        group: str,
        acknowledge: Literal["explicit", "implicit"] = "explicit",
        max_records: int = 500,
        acquire_mode: Literal["record_limit", "batch_optimized"] = "record_limit",
        max_poll_interval: float = 300.0,
    ) -> ShareConsumer:
        """A member of a share group, which shares records instead of partitions (KIP-932, Kafka 4.2 or newer).

        Use it as ``async with client.share_consumer("jobs", group="workers") as jobs``. Each record is locked for one
        member of the group, which accepts, releases or rejects it.

        Args:
            topics: read these.
            group: the share group, whose members, in any language, share the records.
            acknowledge: ``"explicit"``: you acknowledge each record, and several callers may ask for records at the
                same time. ``"implicit"``: asking for the next record accepts the previous one; one caller asks at a
                time.
            max_records: the most records that this consumer holds, in your hands and fetched ahead. Each is locked from
                its fetch on, so choose few if a record takes long.
            acquire_mode: ``"record_limit"``: ``max_records`` is exact (Kafka 4.2 or newer). ``"batch_optimized"``:
                brokers hand out whole batches of the log, which costs less and may be more records.
            max_poll_interval: seconds without a request for a record, an acknowledgement or a renewal after which this
                member leaves the group, so that others get its partitions; the next request for a record joins again.

        Raises:
            ConfigurationError: an option is invalid, or no topic is given.
        """
        return self._share_consumer(
            topics,
            ShareConsumerOptions(
                group=group,
                acknowledge=acknowledge,
                max_records=max_records,
                acquire_mode=acquire_mode,
                max_poll_interval=max_poll_interval,
            ),
        )

    def _share_consumer(self, topics: tuple[str, ...], options: ShareConsumerOptions) -> ShareConsumer:
        raise NotImplementedError

    @advising
    def transform(
        self,
        *topics: str,
        group: str,
        transactional_id: str,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_committed",
        max_records: int | None = None,
        max_bytes: int = 8 * 2**20,
        max_wait: float = 0.0,
        attempts: int = 5,
        pattern: str | Sequence[str] = (),
        deny: str | Sequence[str] = (),
        pattern_re2: str | None = None,
        start: Where | Literal["error"] = "beginning",
        reset: Where | Literal["error"] = "error",
        listener: RebalanceListener | None = None,
        group_protocol: Literal["classic", "consumer", "auto"] = "auto",
        remote_assignor: str | None = None,
        assignors: str | Sequence[str | Assignor] = ("range", "cooperative-sticky"),
        instance_id: str | None = None,
        session_timeout: float = 45.0,
        heartbeat_interval: float = 3.0,
        max_poll_interval: float = 300.0,
        linger: float = 0.005,
        batch_size: int = 512 * 2**10,
        compression: str | Mapping[str, str | tuple[str, int]] = "none",
        compression_level: int | None = None,
        partitioner: str | Hash | Keyed | Chooser = "murmur2",
        buffer_memory: int = 32 * 2**20,
        delivery_timeout: float | None = None,
        transaction_timeout: float = 60.0,
        key_serializer: Callable[[K], bytes | None] | None = None,
        value_serializer: Callable[[V], bytes | None] | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
    ) -> Transform[K, V]:
        """Read topics as a member of a group, and write the results, exactly once.

        Use it as ``async with client.transform("in", group=..., transactional_id=...) as transform``: records and
        offsets are committed together.

        Args:
            topics: as in `consumer`.
            group: shares the topics among all its members, and stores their committed offsets.
            transactional_id: the transactional id of this member; the same after a restart, and used by no other.
            isolation: ``"read_committed"`` hides records of transactions that may still be aborted.
            max_records: the most records of a transaction; by default all that are available.
            max_bytes: the most bytes of a transaction, as fetched; available batches of all partitions are combined up
                to this size. A single batch may be larger.
            max_wait: seconds to wait for more records, up to one of these limits, before a transaction begins: fewer,
                larger transactions, at the cost of latency.
            attempts: the most attempts in a row, after errors that may pass and after lost partitions (a handler that
                is slower than ``max_poll_interval`` loses them); then the last error is raised.
            pattern, deny, pattern_re2, start, reset, listener, group_protocol, remote_assignor: as in `consumer`.
            assignors, instance_id, session_timeout, heartbeat_interval, max_poll_interval: as in `consumer`.
            linger, batch_size, compression, compression_level, partitioner, buffer_memory: as in `producer`.
            delivery_timeout, transaction_timeout, key_serializer, value_serializer, interceptors: as in `producer`.

        Raises:
            ConfigurationError: an option is invalid, options contradict each other, or not exactly one of topics and
                pattern is given.
        """
        return self._transform(
            topics,
            TransformOptions(
                group=group,
                transactional_id=transactional_id,
                isolation=isolation,
                max_records=max_records,
                max_bytes=max_bytes,
                max_wait=max_wait,
                attempts=attempts,
            ),
            ConsumerOptions(
                group=group,
                pattern=pattern,
                deny=deny,
                pattern_re2=pattern_re2,
                start=start,
                reset=reset,
                isolation=isolation,
                max_records=max_records,
            ),
            ConsumerHooks(listener=listener),
            MemberOptions(
                group_protocol=group_protocol,
                remote_assignor=remote_assignor,
                assignors=assignors,
                instance_id=instance_id,
                session_timeout=session_timeout,
                heartbeat_interval=heartbeat_interval,
                max_poll_interval=max_poll_interval,
            ),
            ProducerOptions(
                linger=linger,
                batch_size=batch_size,
                compression=compression,
                compression_level=compression_level,
                partitioner=partitioner,
                buffer_memory=buffer_memory,
                delivery_timeout=delivery_timeout,
                transactional_id=transactional_id,
                transaction_timeout=transaction_timeout,
            ),
            ProducerHooks(key_serializer=key_serializer, value_serializer=value_serializer, interceptors=interceptors),
        )

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
        raise NotImplementedError

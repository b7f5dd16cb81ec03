"""Unusual requests of administrators, producers and consumers, for Apache Kafka and for brokerlite.

A scene sends requests to a broker, and yields each with a summary of the response as JSON: error codes, and the fields
that clients act upon. Ids, times, texts and addresses are left out. `python -m tests.brokerlite.record_answers` records
the responses of Apache Kafka.
"""

import gzip
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import lz4.frame

from ottla.codec.apis import alter_configs, incremental_alter_configs
from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.codec.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.codec.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.codec.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.codec.apis.describe_configs import BROKER, TOPIC, DescribeConfigsRequest, DescribeConfigsResource
from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.codec.apis.find_coordinator import FindCoordinatorRequest
from ottla.codec.apis.incremental_alter_configs import APPEND, DELETE, SET, SUBTRACT
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.codec.compression import Compression, compress
from ottla.codec.records import HEADER_SIZE, read_batches
from ottla.codec.wire import NO_UUID
from tests.brokerlite.brokers import Broker, Remote
from tests.brokerlite.machine import a_batch
from tests.brokerlite.test_log import changed
from tests.brokerlite.test_validation import LZ4_THAT_IS_READ, LZ4_THAT_IS_REFUSED, PLAIN, compressed_as
from tests.patience import HUNG

Said = tuple[str, Any]


class Asking:
    """A broker, and the topics that a scene has there."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name = broker, name
        self.now = broker.timestamp

    def create(self, *names: str, configs: dict[str, str] | None = None, validate_only: bool = False) -> list[Any]:
        topics = tuple(
            CreatableTopic(
                name=name,
                num_partitions=2,
                replication_factor=1,
                assignments=(),
                configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()),
            )
            for name in names
        )
        request = CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=validate_only)
        return list(self.broker.ask(request, 7).topics)

    def topic(self, suffix: str = "", **configs: str) -> tuple[str, uuid.UUID]:
        """Create a topic, wait until its leaders serve it, and return its name and id."""
        name = f"{self.name}{suffix}".replace(" ", "-")
        (made,) = self.create(name, configs={key.replace("_", "."): value for key, value in configs.items()})
        assert made.error_code == 0, made
        deadline = time.monotonic() + HUNG
        while any(code for _, code, _ in self.offsets(name, (0, -1), (1, -1))):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return name, made.topic_id

    def produce(self, topic: str, *record_sets: bytes, partition: int = 0) -> list[Any]:
        """Send several record sets for one partition in one request."""
        data = tuple(PartitionProduceData(index=partition, records=each) for each in record_sets)
        request = ProduceRequest(
            acks=-1, timeout_ms=5000, topic_data=(TopicProduceData(name=topic, partition_data=data),)
        )
        return [each for topic in self.broker.ask(request, 9).responses for each in topic.partition_responses]

    def offsets(self, topic: str, *asked: tuple[int, int], epoch: int = -1) -> list[Any]:
        partitions = tuple(
            ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
            for index, timestamp in asked
        )
        request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=partitions),))
        (answer,) = self.broker.ask(request, 7).topics
        return sorted([each.partition_index, each.error_code, each.offset] for each in answer.partitions)

    def fetch(self, version: int, topic: FetchTopic, replica: int = -1) -> list[Any]:
        request = FetchRequest(
            replica_id=replica, max_wait_ms=0, min_bytes=0, max_bytes=2**20, session_epoch=-1, topics=(topic,)
        )
        return [each for topic in self.broker.ask(request, version).responses for each in topic.partitions]

    def stored(self, topic: str) -> list[Any]:
        """The attributes and the number of records of each batch."""
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
        (read,) = self.fetch(12, FetchTopic(topic=topic, partitions=(partition,)))
        return [[each.attributes, each.count] for each in read_batches(bytes(read.records))]


def stamped(asking: Asking, *values: bytes, **build: Any) -> bytes:
    return a_batch(*values, timestamp=asking.now, **build)


def record_sets(asking: Asking) -> Iterator[Said]:
    good = stamped(asking, b"a", b"b")
    old = b"\0" * 8 + b"\0\0\0\x10" + bytes(4) + b"\1\0" + bytes(8) + b"\xff" * 8
    cases = {
        "good": good,
        "nothing": b"",
        "a bad CRC": good[:17] + bytes(4) + good[21:],
        "two batches": good + good,
        "a few bytes behind": good + b"xxx",
        "rubbish behind": good + b"x" * 80,
        "cut off": good[:-3],
        "half a header": good[:40],
        "a length too long": changed(good, 8, b"\0\0\x10\0"),
        "a negative length": changed(good, 8, b"\xff\xff\xff\0"),
        "rubbish": b"\1" * 100,
        "magic 3": changed(good, 16, b"\3"),
        "magic 1": old,
        "magic 1, twice": old * 2,
        "zeros": bytes(20),
        "a count too high": changed(good, 57, b"\0\0\0\3"),
        "a count too low": changed(good, 57, b"\0\0\0\1"),
        "another last offset": changed(good, 23, b"\0\0\0\5"),
        "base offset 5": changed(good, 0, bytes(7) + b"\5"),
        "control records": changed(good, 22, b"\x20"),
        "an unknown attribute": changed(good, 22, b"\x80"),
        "LogAppendTime": changed(good, 22, b"\x08"),
        "a sequence below 0": stamped(asking, producer_id=4, producer_epoch=0, base_sequence=-1),
        "an unknown producer": stamped(asking, producer_id=4000, producer_epoch=0, base_sequence=5),
    }
    for number, (case, records) in enumerate(cases.items()):
        name, _ = asking.topic(f"-{number}")
        (answer,) = asking.produce(name, records)
        said = [answer.error_code, answer.base_offset, answer.log_start_offset, len(answer.record_errors)]
        yield case, [*said, asking.stored(name)]
    for kind in ("uncompressed", "gzip", "lz4", "snappy", "zstd"):
        name, _ = asking.topic(f"-of-{kind}", compression_type=kind)
        (answer,) = asking.produce(name, changed(stamped(asking), 22, b"\x80"))
        yield f"an unknown attribute, to {kind}", [answer.error_code, asking.stored(name)]
    name, _ = asking.topic("-stamped", message_timestamp_type="LogAppendTime")
    (answer,) = asking.produce(name, changed(good, 22, b"\x08"))
    yield "LogAppendTime, to such a topic", [answer.error_code, len(answer.record_errors)]
    name, _ = asking.topic("-safe", min_insync_replicas="2")
    (answer,) = asking.produce(name, good)
    yield "more replicas in sync than there are", answer.error_code


def compressed(asking: Asking) -> Iterator[Said]:
    """Which compressed data the broker accepts. An error counts only as an error: Kafka's code is -1 now and then."""
    body = PLAIN[HEADER_SIZE:]

    def member(data: bytes = body, flags: int = 0, extra: bytes = b"") -> bytes:
        return b"\x1f\x8b\x08" + bytes((flags,)) + bytes(5) + b"\xff" + extra + gzip.compress(data, mtime=0)[10:]

    block = compress(Compression.SNAPPY, body)[16:]

    def xerial(version: int) -> bytes:
        return b"\x82SNAPPY\0" + version.to_bytes(4, "big") * 2 + block

    zstd = compress(Compression.ZSTD, body)
    skippable = b"\x50\x2a\x4d\x18" + b"\4\0\0\0" + b"skip"
    damaged = bytearray(lz4.frame.compress(body, block_linked=False, block_checksum=True))
    damaged[-6] ^= 1
    kinds: dict[Compression, dict[str, bytes]] = {
        Compression.LZ4: {**LZ4_THAT_IS_READ, **LZ4_THAT_IS_REFUSED, "a wrong block checksum": bytes(damaged)},
        Compression.GZIP: {
            "gzip": member(),
            "a name": member(flags=8, extra=b"name\0"),
            "a wrong header checksum": member(flags=2, extra=b"xx"),
            "a wrong CRC": member()[:-8] + b"\0\0\0\0" + member()[-4:],
            "a wrong size": member()[:-4] + b"\1\0\0\0",
            "cut off": member()[:-1],
            "two members": member(body[:1000]) + member(body[1000:]),
            "a member too many": member() + member(),
            "zlib": zlib.compress(body),
            "something behind": member() + b"x" * 30,
            "half a member behind": member() + member()[:40],
        },
        Compression.SNAPPY: {
            **{f"xerial version {version}": xerial(version) for version in (0, 1, 2)},
            "an empty block size": xerial(1) + bytes(4),
            "a block that is not there": xerial(1) + b"\0\0\0\5",
            "rubbish": b"rubbish" * 9,
            "no block": xerial(1)[:16],
            "three bytes behind": xerial(1) + b"xyz",
            "four bytes behind": xerial(1) + b"xyzx",
        },
        Compression.ZSTD: {
            "zstd": zstd,
            "a skippable frame first": skippable + zstd,
            "a skippable frame behind": zstd + skippable,
            "two frames": compress(Compression.ZSTD, body[:1000]) + compress(Compression.ZSTD, body[1000:]),
            "something behind": zstd + b"x" * 40,
            "cut off": zstd[:-1],
        },
    }
    name, _ = asking.topic()
    for compression, ways in kinds.items():
        for way, data in ways.items():
            (answer,) = asking.produce(name, compressed_as(data, compression))
            yield f"{compression.name.lower()}: {way}", answer.error_code == 0


def named_twice(asking: Asking) -> Iterator[Said]:
    name, topic_id = asking.topic()
    good = stamped(asking, b"a")
    answers = asking.produce(name, good, good)
    yield "Produce", [[each.index, each.error_code, each.base_offset] for each in answers]
    yield "Produce of no partition", [each.index for each in asking.produce(name)]
    yield "ListOffsets", asking.offsets(name, (0, -1), (1, -1), (0, -2))
    partitions = tuple(FetchPartition(partition=0, fetch_offset=at, partition_max_bytes=2**20) for at in (0, 1))
    read = asking.fetch(12, FetchTopic(topic=name, partitions=partitions))
    yield "Fetch", [[each.partition_index, each.error_code, len(each.records)] for each in read]
    deletion = DeleteRecordsPartition(partition_index=0, offset=1)
    topics = (DeleteRecordsTopic(name=name, partitions=(deletion, deletion)),)
    deleted = asking.broker.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    yield "DeleteRecords", [[len(each.partitions), each.partitions[0].low_watermark] for each in deleted.topics]
    wrong = f"{name}-new"
    yield "CreateTopics", [each.error_code for each in asking.create(wrong, wrong)]
    by_name, by_id = DeleteTopicState(name=name, topic_id=NO_UUID), DeleteTopicState(name=None, topic_id=topic_id)
    for case, states in {
        "by name": (by_name, by_name),
        "by name and by id": (by_name, by_id),
        "by id": (by_id, by_id),
        "not at all": (DeleteTopicState(name=None, topic_id=NO_UUID),),
    }.items():
        gone = asking.broker.ask(DeleteTopicsRequest(topics=states, timeout_ms=5000), 6)
        yield f"DeleteTopics, {case}", [each.error_code for each in gone.responses]
    yield "the topic is still there", asking.offsets(name, (0, -2))


VALUES: dict[str, tuple[str, ...]] = {
    "cleanup.policy": ("compact, delete", "", " ", "delete,", "delete,,compact", "Delete", "delete,delete"),
    "compression.gzip.level": ("0", "10", "-1", "+1"),
    "compression.lz4.level": ("0", "17"),
    "compression.type": ("GZIP", " gzip "),
    "flush.ms": ("-1", "0"),
    "index.interval.bytes": ("-1",),
    "leader.replication.throttled.replicas": ("x", "*", "0:1, 1:2", "none", "*,0:1", "", "0:1:2", "a:b"),
    "local.retention.bytes": ("-2", "-1", "5"),
    "local.retention.ms": ("-3", "-2", "5"),
    "max.compaction.lag.ms": ("0", "1"),
    "message.timestamp.type": ("createtime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": ("0.5f", "0.5d", "1e-1", "1_0", "inf", "1.1"),
    "preallocate": ("TRUE ", "yes"),
    "remote.log.copy.disable": ("true",),
    "remote.log.delete.on.disable": ("true",),
    "remote.storage.enable": ("false", "true"),
    "retention.ms": ("1_000", "+5", " 5 ", "5L", "", "-1"),
    "segment.bytes": ("1048575", "1048576"),
    "segment.index.bytes": ("3", "4"),
    "unclean.leader.election.enable": ("TRUE", " true", "1"),
    "internal.segment.bytes": ("100",),
    "message.downconversion.enable": ("true",),
    "no.such": ("1",),
}


def configurations(asking: Asking) -> Iterator[Said]:
    for key, values in VALUES.items():
        for value in values:
            (made,) = asking.create(asking.name, configs={key: value}, validate_only=True)
            yield f"{key}={value!r}", made.error_code
    yield "__cluster_metadata", [each.error_code for each in asking.create("__cluster_metadata")]
    yield "__consumer_offsets", [each.error_code for each in asking.create("__consumer_offsets")]

    def described(kind: int, name: str, *keys: str) -> Any:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        (result,) = asking.broker.ask(DescribeConfigsRequest(resources=(resource,), include_synonyms=True), 4).results
        return result

    name, _ = asking.topic(cleanup_policy="compact, delete", retention_ms=" 5 ", internal_segment_bytes="100")
    for each in sorted(described(TOPIC, name).configs, key=lambda each: each.name):
        synonyms = [[other.name, other.value, other.source] for other in each.synonyms]
        if each.name != "min.insync.replicas":  # a Kafka with a single node sets it for the whole broker
            yield each.name, [each.value, each.config_source, each.config_type, synonyms]
    yield "an invalid name", described(TOPIC, "bad name!").error_code
    yield "no such topic", described(TOPIC, "no-such").error_code
    yield "another broker", described(BROKER, "99").error_code
    yield "no such key", len(described(TOPIC, name, "no-such").configs)


Operation = tuple[str, int, str | None]
"""The name of a configuration, the operation, and its value."""


def changed_configurations(asking: Asking) -> Iterator[Said]:
    """A topic's configurations, changed one by one and all together."""
    ask, name = asking.broker.ask, asking.topic(retention_ms="5", cleanup_policy="compact")[0]

    def own() -> dict[str, str | None]:
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
        (result,) = ask(DescribeConfigsRequest(resources=(resource,)), 4).results
        return {
            each.name: each.value
            for each in sorted(result.configs, key=lambda each: each.name)
            if each.config_source == 1
        }

    def settled(before: dict[str, str | None]) -> dict[str, str | None]:
        """The topic's own configurations; in Apache Kafka a change takes effect a little after the response."""
        deadline = time.monotonic() + (1.0 if isinstance(asking.broker, Remote) else 0.0)
        while (found := own()) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        return found

    def change(*operations: Operation, topic: str = name, kind: int = TOPIC, validate_only: bool = False) -> Any:
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=topic,
            configs=tuple(
                incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in operations
            ),
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=(resource,), validate_only=validate_only
        )
        (said,) = ask(request, 1).responses
        return said.error_code

    def replace_all(configs: dict[str, str | None], topic: str = name, validate_only: bool = False) -> Any:
        resource = alter_configs.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name=topic,
            configs=tuple(alter_configs.AlterableConfig(name=key, value=value) for key, value in configs.items()),
        )
        request = alter_configs.AlterConfigsRequest(resources=(resource,), validate_only=validate_only)
        (said,) = ask(request, 2).responses
        return said.error_code

    cases: dict[str, tuple[Operation, ...]] = {
        "set": (("retention.ms", SET, "7"),),
        "set with blanks": (("retention.ms", SET, " 8 "),),
        "set and delete": (("retention.bytes", SET, "100"), ("retention.ms", DELETE, None)),
        "delete what is not set": (("retention.ms", DELETE, None),),
        "delete what is unknown": (("no.such.key", DELETE, None),),
        "delete with a value": (("retention.bytes", DELETE, "1"),),
        "set what is unknown": (("no.such.key", SET, "1"),),
        "a value that does not fit": (("retention.ms", SET, "soon"),),
        "one value fits, one does not": (("retention.ms", SET, "9"), ("segment.bytes", SET, "-1")),
        "no value": (("retention.ms", SET, None),),
        "twice": (("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        "append": (("cleanup.policy", APPEND, "delete"),),
        "append what is there": (("cleanup.policy", APPEND, "delete"),),
        "append two": (("cleanup.policy", APPEND, "compact,delete"),),
        "append nonsense": (("cleanup.policy", APPEND, "keep"),),
        "append nothing": (("cleanup.policy", APPEND, None),),
        "subtract": (("cleanup.policy", SUBTRACT, "compact"),),
        "subtract what is not there": (("cleanup.policy", SUBTRACT, "compact"),),
        "subtract the last": (("cleanup.policy", SUBTRACT, "delete"),),
        "append to the default": (("cleanup.policy", DELETE, None), ("min.compaction.lag.ms", SET, "1")),
        "append to a default list": (("cleanup.policy", APPEND, "compact"),),
        "append to a number": (("retention.ms", APPEND, "1"),),
        "subtract from what is unknown": (("no.such.key", SUBTRACT, "1"),),
        "lags that contradict each other": (("max.compaction.lag.ms", SET, "5"), ("min.compaction.lag.ms", SET, "6")),
        "a small segment": (("segment.bytes", SET, "2000"),),
        "nothing": (),
    }
    for case, operations in cases.items():
        before = own()
        code = change(*operations)
        yield case, [code, settled(before)]
    yield "only validated", [change(("retention.ms", SET, "77"), validate_only=True), own()]
    yield "only validated, and wrong", change(("retention.ms", SET, "x"), validate_only=True)
    yield "no such topic", change(("retention.ms", SET, "1"), topic="no-such")
    yield "no such topic, and no value", change(("retention.ms", SET, None), topic="no-such")
    yield "an invalid name", change(("retention.ms", SET, "1"), topic="bad name!")
    yield "no name", change(("retention.ms", SET, "1"), topic="")
    yield "no such kind", change(("retention.ms", SET, "1"), kind=77)
    whole: dict[str, dict[str, str | None]] = {
        "replaced": {"retention.ms": "12", "cleanup.policy": "delete"},
        "replaced by an unknown key": {"no.such.key": "1"},
        "replaced by no value": {"retention.ms": None},
        "replaced by nothing": {},
    }
    for case, configs in whole.items():
        before = own()
        yield case, [replace_all(configs), settled(before)]
    yield "replaced, only validated", [replace_all({"retention.ms": "3"}, validate_only=True), own()]
    yield "replaced, no such topic", replace_all({"retention.ms": "3"}, topic="no-such")
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=name,
        configs=(incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=SET, value="1"),),
    )
    twice = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=(resource,) * 2, validate_only=False)
    yield "a topic twice", sorted({each.error_code for each in ask(twice, 1).responses})


def odd(asking: Asking) -> Iterator[Said]:
    """Requests that few clients send."""
    ask = asking.broker.ask
    name, topic_id = asking.topic()
    for key_type in (0, 1):
        yield (
            f"the coordinator of nobody, {key_type}",
            ask(FindCoordinatorRequest(key="", key_type=key_type), 3).error_code,
        )
    unknown = FetchPartition(partition=9, fetch_offset=0, partition_max_bytes=2**20)
    known = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
    for case, version, topic, replica in (
        ("an unknown partition by id", 13, FetchTopic(topic_id=topic_id, partitions=(unknown,)), -1),
        ("an unknown id", 13, FetchTopic(topic_id=uuid.UUID(int=5), partitions=(known,)), -1),
        ("an unknown partition by name", 12, FetchTopic(topic=name, partitions=(unknown,)), -1),
        ("a follower", 12, FetchTopic(topic=name, partitions=(known,)), 5),
    ):
        yield f"Fetch, {case}", [each.error_code for each in asking.fetch(version, topic, replica)]
    for epoch in (-2, 7):
        yield f"ListOffsets, leader epoch {epoch}", asking.offsets(name, (0, -1), epoch=epoch)
    stranger = uuid.UUID(int=6)
    for case, topics, version in (
        ("an unknown id beside a name", ((name, stranger),), 12),
        ("an id and a name", ((None, topic_id), (name, NO_UUID)), 12),
        ("an id before its time", ((None, topic_id),), 10),
    ):
        wanted = tuple(MetadataRequestTopic(name=each, topic_id=known_as) for each, known_as in topics)
        answer = ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), version)
        yield f"Metadata, {case}", [[each.error_code, each.name == name] for each in answer.topics]
    for case, producer_id, epoch in (("of -2", -2, 0), ("without an epoch", 5, -1), ("without an id", -1, 5)):
        again = InitProducerIdRequest(
            transactional_id=f"{asking.name}-odd",
            transaction_timeout_ms=1000,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        yield f"InitProducerId {case}", ask(again, 4).error_code
    begun = ask(InitProducerIdRequest(transactional_id=asking.name, transaction_timeout_ms=60_000), 4)
    joining = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=asking.name,
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.producer_epoch,
        v3_and_below_topics=(
            AddPartitionsToTxnTopic(name=name, partitions=(0,)),
            AddPartitionsToTxnTopic(name="__consumer_offsets", partitions=(0,)),
        ),
    )
    results = ask(joining, 3).results_by_topic_v3_and_below
    codes = {each.name: [part.partition_error_code for part in each.results_by_partition] for each in results}
    yield "AddPartitionsToTxn of an internal topic", [codes[name], codes["__consumer_offsets"]]
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    committing = TxnOffsetCommitRequest(
        transactional_id=asking.name,
        group_id="",
        producer_id=begun.producer_id,
        producer_epoch=begun.producer_epoch,
        topics=(TxnOffsetCommitRequestTopic(name=name, partitions=(offset,)),),
    )
    for version in (3, 5):
        answer = ask(committing, version)
        yield f"TxnOffsetCommit v{version} of no group", answer.topics[0].partitions[0].error_code
    nothing = OffsetCommitRequest(group_id=asking.name, topics=(OffsetCommitRequestTopic(name=name, partitions=()),))
    yield "OffsetCommit of no partition", len(ask(nothing, 8).topics)


SCENES: dict[str, Callable[[Asking], Iterator[Said]]] = {
    scene.__name__: scene
    for scene in (record_sets, compressed, named_twice, configurations, changed_configurations, odd)
}

"""Transactional requests as JSON, for any broker, and its responses as JSON, so that two brokers can be compared.

A step is a list: the name of a function below, then its arguments. Producer ids are numbered in the order in which a
broker first returns them; `STRANGER` stands for an id that no producer has. Topics, groups and transactional ids get a
prefix of their own for each sequence of steps, so that one broker can serve many sequences.
"""

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

from ottla.brokerlite.machines.partitions.producers import end_marker
from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.codec.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.codec.apis.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.codec.apis.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.codec.apis.describe_transactions import DescribeTransactionsRequest
from ottla.codec.apis.end_txn import EndTxnRequest
from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.codec.apis.leave_group import LeaveGroupRequest
from ottla.codec.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.codec.apis.list_transactions import ListTransactionsRequest
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.codec.apis.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.codec.records import RecordBatch, read_batches
from tests.brokerlite.brokers import Broker
from tests.brokerlite.machine import a_batch
from tests.patience import HUNG

Step = list[Any]
STRANGER = 999
"""Stands for a producer id that no producer has."""
_STRANGERS = 10**12
PARTITIONS = 2
"""The number of the topic's partitions."""
OFFSETS = "__consumer_offsets"
MEMBER = "member"
"""Stands for the id of the group's member."""


class Conversation:
    """A sequence of steps with one broker."""

    def __init__(self, broker: Broker, prefix: str | None = None) -> None:
        self.broker = broker
        self.prefix = f"{prefix or uuid.uuid4().hex[:12]}-"
        self.topic = self.prefix + "t"
        self._ids: list[int] = []
        self._named: dict[str, None] = {}
        """The transactional ids so far."""
        self._members: dict[str, str] = {}
        self.reached = 1 if broker.assignments else PARTITIONS
        """Partitions that the node at the other end leads."""
        assignments = tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=(node,))
            for index, node in enumerate(broker.assignments)
        )
        topic = CreatableTopic(
            name=self.topic,
            num_partitions=-1 if assignments else PARTITIONS,
            replication_factor=-1 if assignments else 1,
            assignments=assignments,
            configs=(),
        )
        (created,) = broker.ask(CreateTopicsRequest(topics=(topic,)), 4).topics
        assert created.error_code == 0, created
        deadline = time.monotonic() + HUNG
        while any(each[1] for each in self.ends(7, 0, -1)[: self.reached]):
            assert time.monotonic() < deadline, "the topic has no leader"
            time.sleep(0.01)

    def perform(self, step: Step) -> Any:
        """Perform a step, and return the response as JSON."""
        name, *arguments = step
        answer = STEPS[name](self, *arguments)
        self.broker.settle(self._named)
        return json.loads(json.dumps(answer))

    # -- names

    def seen(self, producer_id: int) -> int:
        """The number for a producer id that the broker has returned."""
        if producer_id < 0:
            return producer_id
        if producer_id not in self._ids:
            self._ids.append(producer_id)
        return self._ids.index(producer_id)

    def id(self, number: int) -> int:
        """The producer id for a number in a step."""
        return self._ids[number] if 0 <= number < len(self._ids) else number if number < 0 else _STRANGERS + number

    def name(self, transactional_id: str | None) -> str | None:
        if not transactional_id:
            return transactional_id
        self._named[self.prefix + transactional_id] = None
        return self.prefix + transactional_id

    def bare(self, name: str) -> str:
        return name.removeprefix(self.prefix)

    # -- requests of producers

    def init(self, version: int, name: str | None, timeout_ms: int, producer_id: int, epoch: int) -> Any:
        answer = self.broker.ask(
            InitProducerIdRequest(
                transactional_id=self.name(name),
                transaction_timeout_ms=timeout_ms,
                producer_id=self.id(producer_id),
                producer_epoch=epoch,
            ),
            version,
        )
        return [answer.error_code, self.seen(answer.producer_id), answer.producer_epoch]

    def add(
        self, version: int, name: str, producer_id: int, epoch: int, partitions: list[int], verify: bool = False
    ) -> Any:
        topics = (AddPartitionsToTxnTopic(name=self.topic, partitions=tuple(partitions)),)
        if version >= 4:
            each = AddPartitionsToTxnTransaction(
                transactional_id=self.name(name) or "",
                producer_id=self.id(producer_id),
                producer_epoch=epoch,
                verify_only=verify,
                topics=topics,
            )
            answer = self.broker.ask(AddPartitionsToTxnRequest(transactions=(each,)), version)
            results = answer.results_by_transaction[0].topic_results if answer.results_by_transaction else ()
        else:
            old = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name(name) or "",
                v3_and_below_producer_id=self.id(producer_id),
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
            answer = self.broker.ask(old, version)
            results = answer.results_by_topic_v3_and_below
        codes = [
            [each.partition_index, each.partition_error_code]
            for topic in results
            for each in topic.results_by_partition
        ]
        return [answer.error_code, sorted(codes)]

    def offsets(self, version: int, name: str, producer_id: int, epoch: int, group: str) -> Any:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name(name) or "",
            producer_id=self.id(producer_id),
            producer_epoch=epoch,
            group_id=self.prefix + group,
        )
        return self.broker.ask(request, version).error_code

    def commit(
        self,
        version: int,
        name: str,
        producer_id: int,
        epoch: int,
        group: str,
        member: list[Any],
        offsets: list[list[int]],
    ) -> Any:
        member_id, generation, instance_id = member
        partitions = tuple(
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index, offset in offsets
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name(name) or "",
            group_id=self.prefix + group,
            producer_id=self.id(producer_id),
            producer_epoch=epoch,
            generation_id_or_member_epoch=generation,
            member_id=self._members.get(group, member_id) if member_id == MEMBER else member_id,
            group_instance_id=instance_id,
            topics=(TxnOffsetCommitRequestTopic(name=self.topic, partitions=partitions),),
        )
        answer = self.broker.ask(request, version)
        return sorted([each.partition_index, each.error_code] for topic in answer.topics for each in topic.partitions)

    def store(self, group: str, offsets: list[list[int]]) -> Any:
        """OffsetCommit, which is no part of a transaction."""
        partitions = tuple(
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index, offset in offsets
        )
        request = OffsetCommitRequest(
            group_id=self.prefix + group,
            topics=(OffsetCommitRequestTopic(name=self.topic, partitions=partitions),),
        )
        answer = self.broker.ask(request, 8)
        return sorted([each.partition_index, each.error_code] for topic in answer.topics for each in topic.partitions)

    def produce(self, version: int, name: str | None, producer_id: int, epoch: int, batches: list[list[int]]) -> Any:
        """``batches``: partition, base sequence, count, and whether the batch is transactional."""
        data = tuple(
            PartitionProduceData(
                index=partition,
                records=a_batch(
                    *(b"%d" % i for i in range(count)),
                    timestamp=self.broker.timestamp,
                    producer_id=self.id(producer_id),
                    producer_epoch=epoch,
                    base_sequence=sequence,
                    transactional=bool(transactional),
                ),
            )
            for partition, sequence, count, transactional in batches
        )
        request = ProduceRequest(
            transactional_id=self.name(name),
            acks=-1,
            timeout_ms=5000,
            topic_data=(TopicProduceData(name=self.topic, partition_data=data),),
        )
        answer = self.broker.ask(request, version)
        return sorted(
            [each.index, each.error_code, each.base_offset]
            for topic in answer.responses
            for each in topic.partition_responses
        )

    def end(self, version: int, name: str, producer_id: int, epoch: int, commit: bool) -> Any:
        request = EndTxnRequest(
            transactional_id=self.name(name) or "",
            producer_id=self.id(producer_id),
            producer_epoch=epoch,
            committed=commit,
        )
        answer = self.broker.ask(request, version)
        return [answer.error_code, self.seen(answer.producer_id), answer.producer_epoch]

    def marker(
        self,
        version: int,
        producer_id: int,
        epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        partitions: list[int],
    ) -> Any:
        marker = WritableTxnMarker(
            producer_id=self.id(producer_id),
            producer_epoch=epoch,
            transaction_result=commit,
            topics=(WritableTxnMarkerTopic(name=self.topic, partition_indexes=tuple(partitions)),),
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        answer = self.broker.ask(WriteTxnMarkersRequest(markers=(marker,)), version)
        return sorted(
            [each.partition_index, each.error_code]
            for marked in answer.markers
            for topic in marked.topics
            for each in topic.partitions
        )

    def hold(self) -> Any:
        """From now on, partition 1 gets no markers."""
        self.broker.hold()

    def let_go(self) -> Any:
        """End `hold`."""
        self.broker.let_go()

    def join(self, group: str, instance_id: str | None = None) -> Any:
        """Join as the only member of a group, or start its next generation."""
        request = JoinGroupRequest(
            group_id=self.prefix + group,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            member_id=self._members.get(group, ""),
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
            group_instance_id=instance_id,
        )
        version = 2 if instance_id is None else 5
        joined = self.broker.ask(request, version)
        if joined.error_code:
            return [joined.error_code, joined.generation_id, 0]
        self._members[group] = joined.member_id
        assignment = (SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b""),)
        synced = self.broker.ask(
            SyncGroupRequest(
                group_id=self.prefix + group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=instance_id,
                assignments=assignment,
            ),
            1 if instance_id is None else 3,
        )
        return [joined.error_code, joined.generation_id, synced.error_code]

    def leave(self, group: str) -> Any:
        """The only member leaves its group."""
        request = LeaveGroupRequest(group_id=self.prefix + group, member_id=self._members.pop(group, ""))
        return self.broker.ask(request, 2).error_code

    def time(self, timeout_ms: int) -> Any:
        """Every open transaction exceeds its timeout."""
        self.broker.pass_timeout(self._named, timeout_ms)

    def exhaust(self, name: str, left: int) -> Any:
        """Use up an id's epochs, except for ``left``."""
        self.broker.use_up_epochs(self.prefix + name, left)

    # -- state

    def describe(self, names: list[str]) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=tuple(self.prefix + name for name in names))
        return [
            [
                self.bare(each.transactional_id),
                each.error_code,
                each.transaction_state,
                each.transaction_timeout_ms,
                each.transaction_start_time_ms > 0,
                -1 if each.error_code else self.seen(each.producer_id),
                each.producer_epoch,
                sorted(
                    {
                        (self.bare(topic.topic), index if topic.topic != OFFSETS else 0)
                        for topic in each.topics
                        for index in topic.partitions
                    }
                ),
            ]
            for each in sorted(self.broker.ask(request, 0).transaction_states, key=lambda each: each.transactional_id)
        ]

    def transactions(self, states: list[str], producer_ids: list[int]) -> Any:
        request = ListTransactionsRequest(
            state_filters=tuple(states), producer_id_filters=tuple(self.id(each) for each in producer_ids)
        )
        answer = self.broker.ask(request, 0)
        found = sorted(
            (each for each in answer.transaction_states if each.transactional_id.startswith(self.prefix)),
            key=lambda each: each.transactional_id,
        )
        return [
            answer.error_code,
            list(answer.unknown_state_filters),
            [[self.bare(each.transactional_id), self.seen(each.producer_id), each.transaction_state] for each in found],
        ]

    def producers(self, partitions: list[int]) -> Any:
        topic = TopicRequest(name=self.topic, partition_indexes=tuple(partitions))
        (described,) = self.broker.ask(DescribeProducersRequest(topics=(topic,)), 0).topics
        return [
            [
                each.partition_index,
                each.error_code,
                [
                    [
                        self.seen(one.producer_id) if one.producer_id < _STRANGERS else STRANGER,
                        one.producer_epoch,
                        one.last_sequence,
                        one.coordinator_epoch,
                        one.current_txn_start_offset,
                    ]
                    for one in sorted(each.active_producers, key=lambda one: one.producer_id)
                ],
            ]
            for each in sorted(described.partitions, key=lambda each: each.partition_index)
        ]

    def ends(self, version: int, isolation: int, timestamp: int) -> Any:
        partitions = tuple(ListOffsetsPartition(partition_index=i, timestamp=timestamp) for i in range(PARTITIONS))
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=(ListOffsetsTopic(name=self.topic, partitions=partitions),),
        )
        (topic,) = self.broker.ask(request, version).topics
        return sorted(
            [each.partition_index, each.error_code, each.offset, each.leader_epoch] for each in topic.partitions
        )

    def fetch(self, version: int, isolation: int, partition: int, offset: int) -> Any:
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=2**20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=2**20,
            isolation_level=isolation,
            topics=(FetchTopic(topic=self.topic, partitions=(asked,)),),
        )
        ((each,),) = [topic.partitions for topic in self.broker.ask(request, version).responses]
        batches = list(read_batches(each.records or b""))
        end = batches[-1].next_offset if batches else 0  # Kafka also names transactions that begin after it
        aborted = each.aborted_transactions
        return [
            each.error_code,
            each.high_watermark,
            each.last_stable_offset,
            None
            if aborted is None
            else sorted([self.seen(one.producer_id), one.first_offset] for one in aborted if one.first_offset < end),
            [
                [
                    batch.base_offset,
                    batch.count,
                    self.seen(batch.producer_id) if batch.producer_id < _STRANGERS else STRANGER,
                    batch.producer_epoch,
                    batch.base_sequence,
                    batch.transactional,
                    _marker(batch),
                ]
                for batch in batches
            ],
        ]

    def committed(self, version: int, group: str, stable: bool) -> Any:
        indexes = tuple(range(PARTITIONS))
        if version >= 8:
            topics = (OffsetFetchRequestTopics(name=self.topic, partition_indexes=indexes),)
            groups = (OffsetFetchRequestGroup(group_id=self.prefix + group, topics=topics),)
            answer = self.broker.ask(OffsetFetchRequest(groups=groups, require_stable=stable), version)
            (asked,) = answer.groups
        else:
            named = (OffsetFetchRequestTopic(name=self.topic, partition_indexes=indexes),)
            request = OffsetFetchRequest(group_id=self.prefix + group, topics=named, require_stable=stable)
            asked = self.broker.ask(request, version)
        partitions = [each for topic in asked.topics for each in topic.partitions]
        return [
            asked.error_code,
            sorted([each.partition_index, each.error_code, each.committed_offset] for each in partitions),
        ]


def _marker(batch: RecordBatch) -> int:
    """1: commit, 0: abort, -1: no marker."""
    marker = end_marker(batch) if batch.control else None
    return -1 if marker is None else marker.type


STEPS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        Conversation.init,
        Conversation.add,
        Conversation.offsets,
        Conversation.commit,
        Conversation.store,
        Conversation.produce,
        Conversation.end,
        Conversation.marker,
        Conversation.join,
        Conversation.leave,
        Conversation.hold,
        Conversation.let_go,
        Conversation.time,
        Conversation.exhaust,
        Conversation.describe,
        Conversation.transactions,
        Conversation.producers,
        Conversation.ends,
        Conversation.fetch,
        Conversation.committed,
    )
}

"""Clients that leave without waiting for a response: the broker carries out their requests, as Apache Kafka does."""

import socket
import struct
import time
from collections.abc import Callable

import pytest

from ottla.codec.apis.describe_groups import DescribeGroupsRequest
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.codec.apis.leave_group import LeaveGroupRequest
from ottla.codec.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.codec.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.codec.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.frames import build_request
from ottla.testing import Broker
from tests.brokerlite.peer import Peer
from tests.patience import HUNG
from tests.proxy.simulated import batch

COUNT = 100
"""Far more than a connection may have unanswered, and few enough to arrive before a reset overtakes them."""
JOIN, LEAVE, COMMIT, FETCHED, PRODUCE, LIST_OFFSETS, DESCRIBE = 3, 1, 2, 5, 9, 7, 0


def at(broker: Broker) -> Peer:
    return Peer(int(broker.bootstrap.rpartition(":")[2]))


def leave(peer: Peer, how: str) -> None:
    """Close the connection, without having read a byte of the responses."""
    if how == "resets":
        peer._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def seen(ask: Callable[[], object], wanted: object) -> object:
    """The last observation: the wanted one, or another after `HUNG`."""
    until = time.monotonic() + HUNG
    while (last := ask()) != wanted and time.monotonic() < until:
        time.sleep(0.02)
    return last


@pytest.mark.parametrize("how", ["closes", "resets"])
def test_records_and_commits_of_a_client_that_leaves_at_once_are_stored(ottla_broker: Broker, how: str) -> None:
    ottla_broker.create_topic("t", partitions=1)
    records = batch([(b"k", bytes(10))])
    with at(ottla_broker) as asking:
        leaving = at(ottla_broker)
        sent = []
        for number in range(COUNT):
            for acks in (0, 1):
                data = PartitionProduceData(index=0, records=records)
                topics = (TopicProduceData(name="t", partition_data=(data,)),)
                produce = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
                sent.append(build_request(produce, PRODUCE, number, "test"))
            position = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=number + 1, committed_metadata=None
            )
            commit = OffsetCommitRequest(
                group_id="g", topics=(OffsetCommitRequestTopic(name="t", partitions=(position,)),)
            )
            sent.append(build_request(commit, COMMIT, number, "test"))
        leaving.write(b"".join(sent))  # in one write: systems hold back small ones, which a reset would discard
        leave(leaving, how)

        def committed() -> int:
            topic = OffsetFetchRequestTopic(name="t", partition_indexes=(0,))
            [found] = asking.ask(OffsetFetchRequest(group_id="g", topics=(topic,)), FETCHED).topics
            return int(found.partitions[0].committed_offset)

        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        asks = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(partition,)),))
        assert seen(committed, COUNT) == COUNT
        assert asking.ask(asks, LIST_OFFSETS).topics[0].partitions[0].offset == 2 * COUNT


@pytest.mark.parametrize("how", ["closes", "resets"])
def test_a_member_that_leaves_its_group_and_closes_has_left(ottla_broker: Broker, how: str) -> None:
    joins = JoinGroupRequest(
        group_id="members",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    leaving = at(ottla_broker)
    joined = leaving.ask(joins, JOIN)
    assert joined.error_code == 0
    leaving.send(LeaveGroupRequest(group_id="members", member_id=joined.member_id), LEAVE)
    leave(leaving, how)
    with at(ottla_broker) as asking:

        def state() -> str:
            return str(asking.ask(DescribeGroupsRequest(groups=("members",)), DESCRIBE).groups[0].group_state)

        assert seen(state, "Empty") == "Empty"

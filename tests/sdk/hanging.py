"""Hanging transactions: open in a partition, while no coordinator will ever end them there."""

from ottla import Client
from ottla.brokerlite.serve import RunningBroker
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.records import BatchBuilder
from ottla.testing import Broker
from tests.brokerlite.peer import Peer
from tests.patience import HUNG

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""With this setting Apache Kafka accepts records of transactions that the coordinator does not know, as before 3.6."""


def lose(broker: Broker, transactional_id: str) -> None:
    """Make the coordinator forget a transactional id, as after a power cut; its partitions keep the transaction."""

    def forget(running: RunningBroker) -> None:
        core = running._core
        core.timers.cancel(("transaction", transactional_id))
        del core.transactions.by_id[transactional_id]

    broker._call(forget)


async def hang(client: Client, transactional_id: str, place: tuple[str, int], timestamp: int) -> int:
    """Write a transactional record to a partition that was not added to the transaction; the broker is `UNVERIFIED`.

    Returns:
        The producer id, which the coordinator knows.
    """
    (given,) = (await client.fence_producers(transactional_id)).values()
    leader = await client.leader(*place)
    builder = BatchBuilder()
    builder.append(timestamp, b"k", b"hangs")
    batch = builder.build(
        producer_id=given.producer_id, producer_epoch=given.producer_epoch, base_sequence=0, transactional=True
    )
    topic = TopicProduceData(name=place[0], partition_data=(PartitionProduceData(index=place[1], records=batch),))
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=(topic,))
    with Peer(leader.port, leader.host, timeout=HUNG) as peer:
        [written] = peer.ask(request, 9).responses
    [result] = written.partition_responses
    assert result.error_code == 0, result
    return given.producer_id

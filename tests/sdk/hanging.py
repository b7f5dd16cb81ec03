"""Transactions that hang: open in a partition, though no coordinator is going to end them there."""

from ottla import Client
from ottla.brokerlite.serve import RunningBroker
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.records import BatchBuilder
from ottla.testing import Broker
from tests.brokerlite.peer import Peer
from tests.patience import HUNG

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""With this setting Apache Kafka takes records of which the coordinator knows nothing, as it always did before 3.6."""


def lose(broker: Broker, transactional_id: str) -> None:
    """Have the coordinator know nothing of an id any more, as if a power cut had taken it; its partitions still do."""

    def forget(running: RunningBroker) -> None:
        core = running._core
        core.timers.cancel(("transaction", transactional_id))
        del core.transactions.by_id[transactional_id]

    broker._call(forget)


async def hang(client: Client, transactional_id: str, place: tuple[str, int], timestamp: int) -> int:
    """Write a record of a transaction that the partition has not joined, to a broker that is `UNVERIFIED`.

    Returns:
        The producer id, which its coordinator knows.
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

"""DescribeProducers v0: lists the producers that a partition remembers, and where their open transactions begin.

Source: KafkaApis.scala (handleDescribeProducersRequest), UnifiedLog.java (activeProducers).
"""

from ottla.acl.rights import READ_TOPIC
from ottla.brokerlite.handlers.once import by_name
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.topics.topics import check_name
from ottla.codec.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.errors import BrokerError, UnknownTopicOrPartition


def handle(broker: BrokerCore, call: Call) -> DescribeProducersResponse:
    request: DescribeProducersRequest = call.message
    asked = by_name((topic.name, topic.partition_indexes) for topic in request.topics)
    return DescribeProducersResponse(
        topics=tuple(
            TopicResponse(name=name, partitions=tuple(_described(broker, call, name, index) for index in indexes))
            for name, indexes in asked.items()
        )
    )


def _described(broker: BrokerCore, call: Call, name: str, index: int) -> PartitionResponse:
    try:
        check_name(name)
        broker.access.require(call.session, READ_TOPIC, name)
        if (partition := broker.topics.partition(name, index)) is None:
            raise UnknownTopicOrPartition(f"there is no partition {index} of {name}")
    except BrokerError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.detail, active_producers=()
        )
    producers = partition.producers
    return PartitionResponse(
        partition_index=index,
        error_code=0,
        active_producers=tuple(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producers.ongoing.get(producer_id, -1),
            )
            for producer_id, producer in producers.entries.items()
        ),
    )

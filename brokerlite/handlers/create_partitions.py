"""CreatePartitions v0-3: adds partitions to topics.

Source: ControllerApis.scala (createPartitions), ReplicationControlManager.java (createPartitions).
"""

from collections import Counter

from ottla.acl.rights import ALTER_TOPIC
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.errors import BrokerError, InvalidReplicaAssignment, InvalidRequest


def handle(broker: BrokerCore, call: Call) -> CreatePartitionsResponse:
    request: CreatePartitionsRequest = call.message
    named = Counter(topic.name for topic in request.topics)
    return CreatePartitionsResponse(
        results=tuple(
            _create(broker, call, topic, request.validate_only, named[topic.name] > 1)
            for topic in {each.name: each for each in request.topics}.values()
        )
    )


def _create(
    broker: BrokerCore, call: Call, asked: CreatePartitionsTopic, validate_only: bool, twice: bool
) -> CreatePartitionsTopicResult:
    try:
        if twice:
            raise InvalidRequest(f"{asked.name} is listed twice")
        broker.access.require(call.session, ALTER_TOPIC, asked.name)
        if (topic := broker.topics.by_name.get(asked.name)) is None:
            raise broker.topics.missing(asked.name)
        broker.topics.check_growth(topic, asked.count)
        _check_assignments(broker, asked, asked.count - len(topic.partitions))
        if not validate_only:
            broker.add_partitions(topic, asked.count)
    except BrokerError as error:
        return CreatePartitionsTopicResult(name=asked.name, error_code=error.code, error_message=error.detail or None)
    return CreatePartitionsTopicResult(name=asked.name, error_code=0)


def _check_assignments(broker: BrokerCore, asked: CreatePartitionsTopic, more: int) -> None:
    if asked.assignments is None:
        return
    if len(asked.assignments) != more:
        raise InvalidReplicaAssignment(f"{len(asked.assignments)} assignments for {more} new partitions")
    if any(each.broker_ids != (broker.settings.node_id,) for each in asked.assignments):
        raise InvalidReplicaAssignment(f"the only broker is {broker.settings.node_id}")

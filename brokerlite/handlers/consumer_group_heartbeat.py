"""ConsumerGroupHeartbeat v0-1: adds a member to a consumer group, keeps it there, or lets it leave (KIP-848).

v1+: the member makes its own id, and may subscribe to a regular expression.

Source: KafkaApis.scala (handleConsumerGroupHeartbeat).
"""

from ottla.acl.rights import DESCRIBE_TOPIC, READ_GROUP
from ottla.brokerlite.machines.consumer_groups.consumer_group import ConsumerGroup
from ottla.brokerlite.machines.consumer_groups.consumer_groups import Beaten, Heartbeat
from ottla.brokerlite.machines.consumer_groups.member import grouped
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.groups.group import Group
from ottla.codec.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.errors import BrokerError


def handle(broker: BrokerCore, call: Call) -> ConsumerGroupHeartbeatResponse:
    request: ConsumerGroupHeartbeatRequest = call.message
    try:
        broker.access.require(call.session, READ_GROUP, request.group_id)
        for name in dict.fromkeys(request.subscribed_topic_names or ()):
            broker.access.require(call.session, DESCRIBE_TOPIC, name)
        broker.groups.check_kind(request.group_id, ConsumerGroup.kind, Group.kind)
        beaten = broker.consumer_groups.heartbeat(_asked(broker, call), call.now)
    except BrokerError as error:
        return ConsumerGroupHeartbeatResponse(
            error_code=error.code, error_message=error.detail or None, member_epoch=0, heartbeat_interval_ms=0
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=0,
        member_id=beaten.member_id,
        member_epoch=beaten.epoch,
        heartbeat_interval_ms=beaten.heartbeat_interval_ms,
        assignment=_assignment(beaten),
    )


def _asked(broker: BrokerCore, call: Call) -> Heartbeat:
    request: ConsumerGroupHeartbeatRequest = call.message
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return Heartbeat(
        version=call.header.api_version,
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        client_id=call.header.client_id or "",
        client_host=f"/{call.session.peer_host}",
        describable=lambda name: broker.access.shows(call.session, DESCRIBE_TOPIC, name),
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else frozenset(names),
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        has=None if owned is None else grouped((each.topic_id, each.partitions) for each in owned),
        creator=broker.access.limited(call.session),
    )


def _assignment(beaten: Beaten) -> Assignment | None:
    if beaten.assigned is None:
        return None
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
            for topic_id, partitions in beaten.assigned.items()
        )
    )

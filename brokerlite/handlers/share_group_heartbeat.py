"""ShareGroupHeartbeat v1: adds a member to a share group, keeps it there, or lets it leave (KIP-932).

Source: KafkaApis.scala (handleShareGroupHeartbeat).
"""

from ottla.acl.rights import DESCRIBE_TOPIC, READ_GROUP
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.share_groups.share_group import ShareGroup
from ottla.brokerlite.machines.share_groups.share_groups import ShareHeartbeat
from ottla.codec.apis.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.errors import BrokerError


def handle(broker: BrokerCore, call: Call) -> ShareGroupHeartbeatResponse:
    request: ShareGroupHeartbeatRequest = call.message
    names = request.subscribed_topic_names
    try:
        broker.access.require(call.session, READ_GROUP, request.group_id)
        for name in dict.fromkeys(names or ()):
            broker.access.require(call.session, DESCRIBE_TOPIC, name)
        broker.groups.check_kind(request.group_id, ShareGroup.kind)
        beaten = broker.share_groups.heartbeat(
            ShareHeartbeat(
                group_id=request.group_id,
                member_id=request.member_id,
                epoch=request.member_epoch,
                client_id=call.header.client_id or "",
                client_host=f"/{call.session.peer_host}",
                rack_id=request.rack_id,
                topics=None if names is None else frozenset(names),
                creator=broker.access.limited(call.session),
            ),
            call.now,
        )
    except BrokerError as error:
        return ShareGroupHeartbeatResponse(
            error_code=error.code, error_message=error.detail or None, member_epoch=0, heartbeat_interval_ms=0
        )
    return ShareGroupHeartbeatResponse(
        error_code=0,
        member_id=beaten.member_id,
        member_epoch=beaten.epoch,
        heartbeat_interval_ms=beaten.heartbeat_interval_ms,
        assignment=None
        if beaten.assigned is None
        else Assignment(
            topic_partitions=tuple(
                TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
                for topic_id, partitions in beaten.assigned.items()
            )
        ),
    )

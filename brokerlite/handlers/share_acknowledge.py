"""ShareAcknowledge v1-2: takes the results of records that a member has acquired (KIP-932).

v2: renewed locks (KIP-1222).

Source: KafkaApis.scala (handleShareAcknowledgeRequest).
"""

from typing import TYPE_CHECKING

from ottla.acl.rights import READ_GROUP, READ_TOPIC
from ottla.brokerlite.handlers.share_results import acknowledge, by_place, session_name
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.share_acknowledge import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.errors import BrokerError

if TYPE_CHECKING:
    from uuid import UUID

_NO_LEADER = LeaderIdAndEpoch(leader_id=0, leader_epoch=0)


def handle(broker: BrokerCore, call: Call) -> ShareAcknowledgeResponse:
    request: ShareAcknowledgeRequest = call.message
    try:
        name = session_name(request.group_id, request.member_id)
        broker.access.require(call.session, READ_GROUP, name.group_id)
        closes = broker.share_sessions.acknowledge(name, request.share_session_epoch)
    except BrokerError as error:
        return ShareAcknowledgeResponse(
            error_code=error.code, error_message=error.detail or None, responses=(), node_endpoints=()
        )
    results = acknowledge(broker, call, name, by_place(request.topics), READ_TOPIC, renews=request.is_renew_ack)
    topics: dict[UUID, list[PartitionData]] = {}
    for (topic_id, index), failed in results.items():
        topics.setdefault(topic_id, []).append(
            PartitionData(
                partition_index=index,
                error_code=0 if failed is None else failed.code,
                error_message=None if failed is None else failed.detail or None,
                current_leader=_NO_LEADER,
            )
        )
    if closes:
        broker.close_share_session(name)
    return ShareAcknowledgeResponse(
        error_code=0,
        acquisition_lock_timeout_ms=round(broker.share_configs.limits(name.group_id).lock_duration * 1000),
        responses=tuple(
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        ),
        node_endpoints=(),
    )

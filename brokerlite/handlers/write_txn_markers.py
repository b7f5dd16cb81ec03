"""WriteTxnMarkers v1-2: ends a transaction in some partitions; administrators use it for hanging transactions.

v2+: the transaction version (KIP-1228): in version 2 the marker's epoch must be higher than the records' epoch.

Source: KafkaApis.scala (handleWriteTxnMarkersRequest).
"""

from ottla.acl.rights import ALTER_CLUSTER, CLUSTER_ACTION
from ottla.brokerlite.handlers.once import by_name
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.topics.topics import TopicPartition
from ottla.brokerlite.machines.transactions.transaction_metadata import EPOCH_RISES
from ottla.codec.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.errors import BrokerError, ClusterAuthorizationFailed, UnknownServerError


def handle(broker: BrokerCore, call: Call) -> WriteTxnMarkersResponse:
    request: WriteTxnMarkersRequest = call.message
    access = broker.access
    allowed = access.shows(call.session, ALTER_CLUSTER) or access.allows(call.session, CLUSTER_ACTION)
    return WriteTxnMarkersResponse(markers=tuple(_write(broker, marker, allowed) for marker in request.markers))


def _write(broker: BrokerCore, marker: WritableTxnMarker, allowed: bool) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=tuple(
            WritableTxnMarkerTopicResult(
                name=name,
                partitions=tuple(
                    WritableTxnMarkerPartitionResult(
                        partition_index=index,
                        error_code=(
                            _code(broker, marker, (name, index)) if allowed else ClusterAuthorizationFailed.code
                        ),
                    )
                    for index in indexes
                ),
            )
            for name, indexes in by_name((topic.name, topic.partition_indexes) for topic in marker.topics).items()
        ),
    )


def _code(broker: BrokerCore, marker: WritableTxnMarker, place: TopicPartition) -> int:
    if marker.producer_id < 0 or marker.producer_epoch < 0:  # no error code fits better
        return UnknownServerError.code
    try:
        broker.markers.write(
            place,
            marker.producer_id,
            marker.producer_epoch,
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            newer=marker.transaction_version >= EPOCH_RISES,
        )
    except BrokerError as error:
        return error.code
    return 0

"""DescribeCluster v0-2: describes this broker, the only node of its cluster.

v1+: the request names the kind of nodes; this broker has no controllers that others connect to. v2: fenced brokers,
which there are none of.

Source: AuthHelper.scala (computeDescribeClusterResponse).
"""

from ottla.acl.rights import DESCRIBE_CLUSTER
from ottla.brokerlite.handlers.metadata import NOT_ASKED
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.create_acls import ResourceType
from ottla.codec.apis.describe_cluster import (
    BROKERS,
    CONTROLLERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.errors import BrokerError, MismatchedEndpointType, UnsupportedEndpointType


def handle(broker: BrokerCore, call: Call) -> DescribeClusterResponse:
    request: DescribeClusterRequest = call.message
    if request.endpoint_type == CONTROLLERS:
        return _refused(MismatchedEndpointType("this node is a broker, not a controller"))
    if request.endpoint_type != BROKERS:
        return _refused(UnsupportedEndpointType(f"there is no type {request.endpoint_type}"))
    settings = broker.settings
    host, port = settings.address_for(call.session)
    return DescribeClusterResponse(
        error_code=0,
        cluster_id=settings.cluster_id,
        controller_id=settings.node_id,
        brokers=(DescribeClusterBroker(broker_id=settings.node_id, host=host, port=port),),
        cluster_authorized_operations=(
            broker.access.operations(call.session, ResourceType.CLUSTER, needs=DESCRIBE_CLUSTER)
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    )


def _refused(error: BrokerError) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=error.code, error_message=error.detail, cluster_id="", brokers=(), controller_id=-1
    )

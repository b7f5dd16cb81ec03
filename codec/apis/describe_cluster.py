"""DescribeCluster (key 60): which nodes make up a cluster.

Sent by administrators (Admin.describeCluster) to any broker; from 3.7 on to a controller too, which is how Admin
clients that only know controllers (`bootstrap.controllers`) find the others. Metadata has nearly the same information
about brokers, but DescribeCluster never returns topics.

Brokers answer anybody; controllers require the right to alter the cluster. Addresses belong to the listener that
received the request.

Errors:
    MISMATCHED_ENDPOINT_TYPE: a broker was asked for controllers, or a controller for brokers: connect to the other
        kind. INVALID_REQUEST in v0.
    UNSUPPORTED_ENDPOINT_TYPE: the broker does not know this `endpoint_type`.
    CLUSTER_AUTHORIZATION_FAILED: the principal may not alter the cluster, which controllers require.

Versions:
    0 (2.8): KIP-700.
    1 (3.7): `endpoint_type`, controllers (KIP-919).
    2 (4.0): fenced brokers (KIP-1073).

Source: KafkaApis.scala and ControllerApis.scala, handleDescribeCluster; AuthHelper.scala.
"""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, String, message, struct, wire

BROKERS = 1
CONTROLLERS = 2
"""Only a controller answers."""


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = wire(Boolean)
    endpoint_type: int = wire(Int8, "1+", default=BROKERS)
    """`BROKERS` or `CONTROLLERS`."""
    include_fenced_brokers: bool = wire(Boolean, "2+", default=False)
    """Also list brokers that are registered but inactive: starting, stopped, or cut off."""


@struct
class DescribeClusterBroker:
    """One node: a broker or a controller, as requested."""

    broker_id: int = wire(Int32)
    host: str = wire(String)
    """As advertised on this listener."""
    port: int = wire(Int32)
    rack: str | None = wire(String, null="0+", default=None)
    """`broker.rack`; ``None``: not set."""
    is_fenced: bool = wire(Boolean, "2+", default=False)


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    endpoint_type: int = wire(Int8, "1+", default=BROKERS)
    """The kind of nodes in `brokers`."""
    cluster_id: str = wire(String)
    controller_id: int = wire(Int32, default=-1)
    """Among controllers: the active one. Among brokers of a KRaft cluster: any live broker, which forwards requests
    for the controller. -1: unknown."""
    brokers: tuple[DescribeClusterBroker, ...] = wire(Array(DescribeClusterBroker))
    cluster_authorized_operations: int = wire(Int32, default=-(2**31))
    """0 if the principal may not describe the cluster."""

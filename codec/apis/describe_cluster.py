"""DescribeCluster (key 60): which nodes make up a cluster.

Sent by administrators (Admin.describeCluster) to any broker; from 3.7 on to a controller, too, which is how
Admin clients that only know controllers (`bootstrap.controllers`) find the others. Metadata says nearly the same of
brokers, but DescribeCluster never speaks of topics.

Brokers answer whoever asks; controllers want the right to alter the cluster. Addresses are those of the listener that
the request came in by.

Errors:
    MISMATCHED_ENDPOINT_TYPE: the request went to a broker and asks for controllers, or the other way round: connect to
        the other kind. INVALID_REQUEST in v0.
    UNSUPPORTED_ENDPOINT_TYPE: the broker does not know this `endpoint_type`.
    CLUSTER_AUTHORIZATION_FAILED: the principal may not alter the cluster, as controllers want it.

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
    """List also brokers that are registered but take no part: just starting, stopped, or cut off."""


@struct
class DescribeClusterBroker:
    """One node: a broker or a controller, as asked for."""

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
    """What is in `brokers`."""
    cluster_id: str = wire(String)
    controller_id: int = wire(Int32, default=-1)
    """Of controllers: the active one. Of brokers in a KRaft cluster: any broker alive, which forwards what is meant for
    the controller. -1: not known."""
    brokers: tuple[DescribeClusterBroker, ...] = wire(Array(DescribeClusterBroker))
    cluster_authorized_operations: int = wire(Int32, default=-(2**31))
    """0 if the principal may not describe the cluster."""

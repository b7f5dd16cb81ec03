"""DescribeCluster (key 60)."""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, String, message, struct, wire


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = wire(Boolean)
    endpoint_type: int = wire(Int8, "1+", default=1)
    include_fenced_brokers: bool = wire(Boolean, "2+", default=False)


@struct
class DescribeClusterBroker:
    broker_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, null="0+", default=None)
    is_fenced: bool = wire(Boolean, "2+", default=False)


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    endpoint_type: int = wire(Int8, "1+", default=1)
    cluster_id: str = wire(String)
    controller_id: int = wire(Int32, default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = wire(Array(DescribeClusterBroker))
    cluster_authorized_operations: int = wire(Int32, default=-(2**31))

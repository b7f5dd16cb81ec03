"""GetTelemetrySubscriptions (key 71)."""

import uuid

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, String, Uuid, message, wire


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: uuid.UUID = wire(Uuid)


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    client_instance_id: uuid.UUID = wire(Uuid)
    subscription_id: int = wire(Int32)
    accepted_compression_types: tuple[int, ...] = wire(Array(Int8))
    push_interval_ms: int = wire(Int32)
    telemetry_max_bytes: int = wire(Int32)
    delta_temporality: bool = wire(Boolean)
    requested_metrics: tuple[str, ...] = wire(Array(String))

"""PushTelemetry (key 72)."""

import uuid

from ottla.codec.wire import Boolean, Bytes, Int8, Int16, Int32, Uuid, message, wire


@message(key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: uuid.UUID = wire(Uuid)
    subscription_id: int = wire(Int32)
    terminating: bool = wire(Boolean)
    compression_type: int = wire(Int8)
    metrics: bytes = wire(Bytes)


@message(key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)

"""PushTelemetry (key 72): send the client's own metrics to the broker that asked for them (KIP-714).

Sent every `push_interval_ms` of GetTelemetrySubscriptions to the broker that gave the subscription, and a last time, at
any moment, when the client closes (`terminating`). The broker stores nothing: it passes the metrics to its plugin, a
metrics reporter that also implements `ClientTelemetry`.

Errors:
    UNKNOWN_SUBSCRIPTION_ID: the subscriptions changed, or this broker does not know the client: ask
        GetTelemetrySubscriptions now.
    UNSUPPORTED_COMPRESSION_TYPE: ask GetTelemetrySubscriptions now.
    TELEMETRY_TOO_LARGE: longer than `telemetry_max_bytes`: send fewer metrics next time.
    THROTTLING_QUOTA_EXCEEDED: sent before the interval was over: wait.
    INVALID_RECORD: the plugin could not read the metrics: stop pushing.
    INVALID_REQUEST: a push after a terminating one, or no client instance id: stop pushing.

Versions:
    0 (3.7): flexible.

Source: ClientMetricsManager.java, processPushTelemetryRequest; ClientTelemetryUtils.java; KIP-714.
"""

import uuid

from ottla.codec.wire import Boolean, Bytes, Int8, Int16, Int32, Uuid, message, wire


@message(key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: uuid.UUID = wire(Uuid)
    """From GetTelemetrySubscriptions."""
    subscription_id: int = wire(Int32)
    """From GetTelemetrySubscriptions."""
    terminating: bool = wire(Boolean)
    """The client is closing: this is its last push, and the interval does not apply."""
    compression_type: int = wire(Int8)
    """0: none. Else one of `accepted_compression_types`."""
    metrics: bytes = wire(Bytes)
    """OpenTelemetry's protobuf message `MetricsData` v1, compressed."""


@message(key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)

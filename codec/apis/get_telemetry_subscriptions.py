"""GetTelemetrySubscriptions (key 71): ask a broker which client metrics it wants, and how often (KIP-714).

Sent by a client that allows metrics collection (`enable.metrics.push`) to one broker of its choice: at first, and again
if the broker no longer knows the subscription. Operators subscribe to client metrics with `kafka-client-metrics.sh`; a
broker whose metrics reporters do not receive any leaves both telemetry APIs out of ApiVersions.

Then the client sends PushTelemetry every `push_interval_ms`, the first time after a random 0.5 to 1.5 intervals, so
that clients do not push all at once. If the broker wants no metrics, the client asks again after the interval. The
client instance id, by which an operator finds a client's metrics, is assigned once, and kept for life with any broker.

Errors:
    THROTTLING_QUOTA_EXCEEDED: the client asked again before the interval was over: wait.
    INVALID_REQUEST, UNSUPPORTED_VERSION: do not push metrics at all.

Versions:
    0 (3.7): flexible.

Source: ClientMetricsManager.java, processGetTelemetrySubscriptionRequest; ClientTelemetryReporter.java; KIP-714.
"""

import uuid

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, String, Uuid, message, wire


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: uuid.UUID = wire(Uuid)
    """`NO_UUID` the first time, then the id from the first response."""


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    client_instance_id: uuid.UUID = wire(Uuid)
    """A new id if the request had none. Otherwise brokers repeat it, or send `NO_UUID`."""
    subscription_id: int = wire(Int32)
    """Send it with every push; it changes with the subscriptions."""
    accepted_compression_types: tuple[int, ...] = wire(Array(Int8))
    """In the broker's order of preference, numbered as in record batches: 1 gzip, 2 snappy, 3 lz4, 4 zstd. 0 (none) is
    always accepted."""
    push_interval_ms: int = wire(Int32)
    """The shortest interval of the subscriptions that match the client; 5 min if none matches."""
    telemetry_max_bytes: int = wire(Int32)
    """A limit for the compressed `metrics` of PushTelemetry."""
    delta_temporality: bool = wire(Boolean)
    """``True``: counters since the last push. ``False``: counters since the client started."""
    requested_metrics: tuple[str, ...] = wire(Array(String))
    """Prefixes of metric names. ``()``: none are wanted. ``("",)``: all."""

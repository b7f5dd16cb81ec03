"""GetTelemetrySubscriptions (key 71): ask a broker which of the client's own metrics it wants, and how often (KIP-714).

Sent by a client that lets itself be observed (`enable.metrics.push`) to one broker of its choice: at first, and again
when the broker no longer knows the subscription. Operators subscribe to metrics of clients with
`kafka-client-metrics.sh`; a broker whose metrics reporters receive none leaves both telemetry APIs out of ApiVersions.

Next the client sends PushTelemetry every `push_interval_ms`, the first one after a random part between half and one and
a half of it, so that clients do not push in step. If nothing is requested, it asks again after the interval. The client
instance id, by which an operator finds a client's metrics, is assigned once, and kept for life with whatever broker.

Errors:
    THROTTLING_QUOTA_EXCEEDED: asked again before the interval was over: wait.
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
    """`NO_UUID` the first time, then as the first answer gave it."""


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    client_instance_id: uuid.UUID = wire(Uuid)
    """A new one if the request had none. Else brokers repeat it, and may say `NO_UUID`."""
    subscription_id: int = wire(Int32)
    """To be sent with every push; it changes when the subscriptions do."""
    accepted_compression_types: tuple[int, ...] = wire(Array(Int8))
    """By the broker's preference, numbered as in record batches: 1 gzip, 2 snappy, 3 lz4, 4 zstd. 0 (none) is always
    accepted."""
    push_interval_ms: int = wire(Int32)
    """The least of the intervals of the subscriptions that match the client; 5 min where none does."""
    telemetry_max_bytes: int = wire(Int32)
    """A limit for `metrics` of PushTelemetry, as it is sent (compressed)."""
    delta_temporality: bool = wire(Boolean)
    """True: counters tell what they grew by since the last push. False: since the client started."""
    requested_metrics: tuple[str, ...] = wire(Array(String))
    """Prefixes of names of metrics. ``()``: none are wanted. ``("",)``: all."""

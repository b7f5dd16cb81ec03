"""ListConfigResources (key 74): the names of all resources with a configuration, such as topics, brokers and groups.

Sent by an administrator (Admin.listConfigResources, `kafka-configs.sh`, `kafka-client-metrics.sh --list`) to any
broker; then ask DescribeConfigs about the interesting ones. Up to 4.0 it was called ListClientMetricsResources, and
listed only the subscriptions to client metrics, which have their own names and which no other API lists.

Requires the right to describe the configuration of the cluster. Groups are listed if a setting of theirs was changed,
brokers if they are alive, topics always.

Errors:
    UNSUPPORTED_VERSION: also for a resource type that cannot be listed.

Versions:
    0 (3.7): flexible. Client metrics only (KIP-714, KIP-1000).
    1 (4.1): `resource_types` (KIP-1142).

Source: KafkaApis.scala, handleListConfigResources.
"""

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire

TOPIC = 2
"""The names of topics."""
BROKER = 4
"""The node ids of brokers, as text."""
BROKER_LOGGER = 8
"""The log levels of brokers: again by node ids."""
CLIENT_METRICS = 16
"""Subscriptions to client metrics."""
GROUP = 32
"""Groups that have their own settings."""


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: tuple[int, ...] = wire(Array(Int8), "1+", default=())
    """`TOPIC`, `BROKER`, `BROKER_LOGGER`, `CLIENT_METRICS`, `GROUP`; ``()``: all of them."""


@struct
class ConfigResource:
    resource_name: str = wire(String)
    resource_type: int = wire(Int8, "1+", default=CLIENT_METRICS, ignorable=True)


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    config_resources: tuple[ConfigResource, ...] = wire(Array(ConfigResource))

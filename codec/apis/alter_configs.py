"""AlterConfigs (key 33): replace the whole configuration of a resource.

Sent by administrators (Admin.alterConfigs, until Kafka 4.0 dropped it) to any broker, which forwards it to the
controller. The configuration of one broker must be sent to that broker, because it checks the values first.

Caution: keys that the request does not name return to their defaults. So two administrators who read, change and write
undo each other's changes. IncrementalAlterConfigs (2.3+) changes single keys: use that if the broker supports it.

Each resource succeeds or fails as a whole, and independently of the others.

Errors:
    INVALID_CONFIG: a key that does not exist, or a value that does not fit.
    INVALID_REQUEST: a repeated resource or key, a value ``None``, the id of another broker; or a broker's key that does
        not fit, or cannot be changed at run time.
    POLICY_VIOLATION: the cluster's `alter.config.policy.class.name` refused it; the message says why.
    UNKNOWN_TOPIC_OR_PARTITION: no such topic.

Versions:
    0 (0.11.0)
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.8): flexible.

Source: ConfigAdminManager.scala; ConfigurationControlManager.java, legacyAlterConfigs; KIP-133.
"""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, String, message, struct, wire


@struct
class AlterableConfig:
    name: str = wire(String)
    value: str | None = wire(String, null="0+")
    """Brokers refuse ``None``. To return to the default, leave the key out."""


@struct
class AlterConfigsResource:
    resource_type: int = wire(Int8)
    """As in DescribeConfigs, except `BROKER_LOGGER`."""
    resource_name: str = wire(String)
    """As in DescribeConfigs."""
    configs: tuple[AlterableConfig, ...] = wire(Array(AlterableConfig))
    """The complete configuration of the resource; ``()`` removes everything."""


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: tuple[AlterConfigsResource, ...] = wire(Array(AlterConfigsResource))
    validate_only: bool = wire(Boolean)
    """Check the request without changing anything."""


@struct
class AlterConfigsResourceResponse:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    responses: tuple[AlterConfigsResourceResponse, ...] = wire(Array(AlterConfigsResourceResponse))

"""IncrementalAlterConfigs (key 44): change single keys of a resource's configuration.

Sent by administrators (Admin.incrementalAlterConfigs, kafka-configs.sh --alter) to any broker, which forwards it to
the controller. The configuration of one broker, or its loggers, must be sent to that broker: it checks its values
first, and log levels change only there, until its next start. Unlike AlterConfigs it does not touch keys that the
request does not name.

Each resource succeeds or fails as a whole, and independently of the others. Read values with DescribeConfigs, which has
the numbers of the resource types. Brokers apply changes a little after the response.

Errors:
    INVALID_CONFIG: a key that does not exist, a value that does not fit, `APPEND` or `SUBTRACT` for a non-list.
    INVALID_REQUEST: a repeated resource or key, a value ``None`` without `DELETE`, the id of another broker; or a
        broker's key that does not fit, or cannot be changed at run time.
    POLICY_VIOLATION: the cluster's `alter.config.policy.class.name` refused it; the message says why.
    UNKNOWN_TOPIC_OR_PARTITION: no such topic.

Versions:
    0 (2.3)
    1 (2.4): flexible.

Source: ConfigAdminManager.scala; ConfigurationControlManager.java, incrementalAlterConfigResource; KIP-339, KIP-412.
"""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, String, message, struct, wire

SET = 0
"""Give the key this value."""
DELETE = 1
"""Unset the key, so that the next more general place applies."""
APPEND = 2
"""Add elements (separated by commas) that the list lacks; an unset list starts as its default."""
SUBTRACT = 3
"""Remove elements (separated by commas) from a list."""


@struct
class AlterableConfig:
    name: str = wire(String)
    config_operation: int = wire(Int8)
    """`SET`, `DELETE`, `APPEND` or `SUBTRACT`."""
    value: str | None = wire(String, null="0+")
    """``None`` with `DELETE`, and only then."""


@struct
class AlterConfigsResource:
    resource_type: int = wire(Int8)
    """As in DescribeConfigs."""
    resource_name: str = wire(String)
    """As in DescribeConfigs."""
    configs: tuple[AlterableConfig, ...] = wire(Array(AlterableConfig))


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: tuple[AlterConfigsResource, ...] = wire(Array(AlterConfigsResource))
    validate_only: bool = wire(Boolean)
    """Check the request without changing anything."""


@struct
class AlterConfigsResourceResponse:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    responses: tuple[AlterConfigsResourceResponse, ...] = wire(Array(AlterConfigsResourceResponse))

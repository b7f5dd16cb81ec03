"""IncrementalAlterConfigs (key 44): change single keys of a resource's configuration.

Sent by administrators (Admin.incrementalAlterConfigs, kafka-configs.sh --alter) to any broker, which forwards it to
the controller. What concerns one broker or its loggers must be sent to that very broker: it checks its values first,
and log levels change only there, until its next start. Unlike AlterConfigs it leaves alone what the request does not
name.

Each resource succeeds or fails as a whole, and by itself. Values are read with DescribeConfigs, which has the numbers
of the resource types; brokers apply changes a little after the answer.

Errors:
    INVALID_CONFIG: a key that does not exist, a value that does not fit, `APPEND` or `SUBTRACT` to what is no list.
    INVALID_REQUEST: a resource or key that comes twice, a value ``None`` though not `DELETE`, another broker's id; or
        a broker's key that does not fit, or cannot be changed at run time.
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
"""Unset the key, so that the next more general place decides."""
APPEND = 2
"""Add to a list the elements (with commas between) that it lacks; a list that is unset begins as its default."""
SUBTRACT = 3
"""Take the elements (with commas between) out of a list."""


@struct
class AlterableConfig:
    name: str = wire(String)
    config_operation: int = wire(Int8)
    """`SET`, `DELETE`, `APPEND` or `SUBTRACT`."""
    value: str | None = wire(String, null="0+")
    """``None`` for `DELETE`, and only there."""


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
    """Check everything, change nothing."""


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

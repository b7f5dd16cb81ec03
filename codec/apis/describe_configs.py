"""DescribeConfigs (key 32): the configuration of topics, brokers and other resources.

Sent by administrators (Admin.describeConfigs, kafka-configs.sh --describe). Any broker answers for topics, groups and
client metrics. For one broker, and its loggers, ask that broker, because only it knows its properties file; others
refuse.

A value comes from the most specific place that sets it, and `synonyms` lists all places. For a topic's `retention.ms`
these are its own setting, then `log.retention.ms` of the broker, then of all brokers, then of the broker's properties
file, then the built-in default. Passwords, and settings that the broker cannot classify, come without their value.

Errors:
    UNKNOWN_TOPIC_OR_PARTITION: no such topic.
    INVALID_REQUEST: another broker's id, or an empty name where one is needed.
    INVALID_TOPIC_EXCEPTION: no topic can have this name.
    TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED: the principal may not
        describe configurations of that topic, of that group, or of the cluster (all the rest).

Versions:
    0 (0.11.0): `is_default`.
    1 (1.1): where values come from, synonyms (KIP-226).
    2 (2.0): throttled after the answer (KIP-219).
    3 (2.6): types and documentation (KIP-569).
    4 (2.8): flexible.

Source: ConfigHelper.scala; ConfigResource.java, DescribeConfigsResponse.java; KIP-133.
"""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, String, message, struct, wire

TOPIC = 2
"""The resource is a topic, by its name."""
BROKER = 4
"""The resource is a broker, or from 3.7 on a controller, by its id in decimal; ``""``: the run-time settings of all
brokers."""
BROKER_LOGGER = 8
"""The resource is a broker's log levels, by the broker's id in decimal (2.4+, KIP-412)."""
CLIENT_METRICS = 16
"""The resource is a subscription to client metrics, by its name (3.7+, KIP-714)."""
GROUP = 32
"""The resource is a group, by its id (4.0+, KIP-848)."""


@struct
class DescribeConfigsResource:
    resource_type: int = wire(Int8)
    """`TOPIC`, `BROKER`, `BROKER_LOGGER`, `CLIENT_METRICS` or `GROUP`."""
    resource_name: str = wire(String)
    configuration_keys: tuple[str, ...] | None = wire(Array(String), null="0+")
    """``None``: all of them; from 2.8 on ``()`` is the same. Unknown keys are left out of the response."""


@message(key=32, versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    resources: tuple[DescribeConfigsResource, ...] = wire(Array(DescribeConfigsResource))
    include_synonyms: bool = wire(Boolean, "1+", default=False)
    include_documentation: bool = wire(Boolean, "3+", default=False)


@struct
class DescribeConfigsSynonym:
    """One place that sets a value."""

    name: str = wire(String)
    """The key in that place: brokers call a topic's `retention.ms` `log.retention.ms`."""
    value: str | None = wire(String, null="0+")
    """``None`` if it is sensitive."""
    source: int = wire(Int8)
    """As `config_source`."""


@struct
class DescribeConfigsResourceResult:
    """One key and its value."""

    name: str = wire(String)
    value: str | None = wire(String, null="0+")
    """``None`` where it is sensitive or unset."""
    read_only: bool = wire(Boolean)
    """It can only be changed in the broker's properties file, with a restart."""
    is_default: bool = wire(Boolean, "0", default=False)
    """Not set for this resource itself."""
    config_source: int = wire(Int8, "1+", default=-1, ignorable=True)
    """1: topic. 2: this broker, at run time. 3: all brokers, at run time. 4: the broker's properties file. 5: built-in
    default. 6: the broker's log level, at run time. 7: client metrics. 8: group. 0: unknown."""
    is_sensitive: bool = wire(Boolean)
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire(Array(DescribeConfigsSynonym), "1+", default=(), ignorable=True)
    """The most specific first, which wins; ``()`` if they were not asked for."""
    config_type: int = wire(Int8, "3+", default=0, ignorable=True)
    """How to read `value`. 1: boolean. 2: string. 3: int32. 4: int16. 5: int64. 6: double. 7: list, with commas.
    8: name of a Java class. 9: password. 0: unknown."""
    documentation: str | None = wire(String, "3+", null="0+", default="", ignorable=True)
    """May hold HTML; ``None`` if it was not asked for."""


@struct
class DescribeConfigsResult:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    resource_type: int = wire(Int8)
    """As in the request."""
    resource_name: str = wire(String)
    configs: tuple[DescribeConfigsResourceResult, ...] = wire(Array(DescribeConfigsResourceResult))


@message(key=32, versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    results: tuple[DescribeConfigsResult, ...] = wire(Array(DescribeConfigsResult))
    """One for each of `resources`, in no particular order."""

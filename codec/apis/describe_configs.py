"""DescribeConfigs (key 32): the configuration of topics, brokers and other resources.

Versions: 0: `is_default` (brokers before 4.0). 1: synonyms, and the source of each value. 3: types and documentation.
4: flexible.
"""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, String, message, struct, wire


@struct
class DescribeConfigsResource:
    resource_type: int = wire(Int8)
    """2: topic. 4: broker. 8: broker loggers. 16: client metrics. 32: group."""
    resource_name: str = wire(String)
    configuration_keys: tuple[str, ...] | None = wire(Array(String), null="0+")
    """``None``: all of them."""


@message(key=32, versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    resources: tuple[DescribeConfigsResource, ...] = wire(Array(DescribeConfigsResource))
    include_synonyms: bool = wire(Boolean, "1+", default=False)
    include_documentation: bool = wire(Boolean, "3+", default=False)


@struct
class DescribeConfigsSynonym:
    name: str = wire(String)
    value: str | None = wire(String, null="0+")
    source: int = wire(Int8)


@struct
class DescribeConfigsResourceResult:
    name: str = wire(String)
    value: str | None = wire(String, null="0+")
    """``None`` where it is sensitive or unset."""
    read_only: bool = wire(Boolean)
    is_default: bool = wire(Boolean, "0", default=False)
    config_source: int = wire(Int8, "1+", default=-1, ignorable=True)
    """1: topic. 2: dynamic broker. 3: dynamic default broker. 4: static broker. 5: default."""
    is_sensitive: bool = wire(Boolean)
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire(Array(DescribeConfigsSynonym), "1+", default=(), ignorable=True)
    config_type: int = wire(Int8, "3+", default=0, ignorable=True)
    documentation: str | None = wire(String, "3+", null="0+", default="", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: int = wire(Int16)
    """0, or a code of `ottla.errors`."""
    error_message: str | None = wire(String, null="0+")
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)
    configs: tuple[DescribeConfigsResourceResult, ...] = wire(Array(DescribeConfigsResourceResult))


@message(key=32, versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    """How long the broker held the answer back because of a quota, in milliseconds."""
    results: tuple[DescribeConfigsResult, ...] = wire(Array(DescribeConfigsResult))

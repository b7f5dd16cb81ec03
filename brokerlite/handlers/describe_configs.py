"""DescribeConfigs v1-4: the configuration of topics, and of this broker.

v1+: synonyms and sources. v3+: types; documentation is null. Other resources are INVALID_REQUEST.
"""

from ottla.brokerlite.handlers.create_topics import config_source
from ottla.brokerlite.machines.configs import CONFIGS, STRING
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.errors import BrokerError, InvalidRequest

_STATIC_BROKER_CONFIG = 4


def handle(broker: BrokerCore, call: Call) -> DescribeConfigsResponse:
    request: DescribeConfigsRequest = call.message
    return DescribeConfigsResponse(
        results=tuple(_describe(broker, each, request.include_synonyms) for each in request.resources)
    )


def _describe(broker: BrokerCore, asked: DescribeConfigsResource, synonyms: bool) -> DescribeConfigsResult:
    error_code, message = 0, None
    configs: tuple[DescribeConfigsResourceResult, ...] = ()
    try:
        match asked.resource_type:
            case 2:  # a topic
                configs = _of_topic(broker, asked.resource_name, synonyms)
            case 4:  # a broker
                configs = _of_broker(broker, asked.resource_name)
            case other:
                raise InvalidRequest(f"resources of type {other} are not known here")
    except BrokerError as error:
        error_code, message = error.code, error.detail or None
    wanted = asked.configuration_keys
    return DescribeConfigsResult(
        error_code=error_code,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=tuple(each for each in configs if wanted is None or each.name in wanted),
    )


def _of_topic(broker: BrokerCore, name: str, synonyms: bool) -> tuple[DescribeConfigsResourceResult, ...]:
    if (topic := broker.topics.by_name.get(name)) is None:
        raise broker.topics.missing(name)
    results = []
    for key, known in CONFIGS.items():
        value = topic.configs.get(key, broker.topics.default(key))
        source = config_source(broker, topic.configs, key)
        own = (DescribeConfigsSynonym(name=key, value=value, source=source),)
        results.append(
            DescribeConfigsResourceResult(
                name=key,
                value=value,
                read_only=False,
                config_source=source,
                is_sensitive=False,
                synonyms=own if synonyms else (),
                config_type=known.type,
                documentation=None,
            )
        )
    return tuple(results)


def _of_broker(broker: BrokerCore, name: str) -> tuple[DescribeConfigsResourceResult, ...]:
    if name not in ("", str(broker.settings.node_id)):
        raise InvalidRequest(f"this is broker {broker.settings.node_id}, not {name}")
    return tuple(
        DescribeConfigsResourceResult(
            name=key,
            value=value,
            read_only=True,
            config_source=_STATIC_BROKER_CONFIG,
            is_sensitive=False,
            config_type=STRING,
            documentation=None,
        )
        for key, value in broker.settings.described.items()
    )

"""DescribeConfigs v1-4: describes the configuration of topics, of groups, and of this broker.

v1+: synonyms and sources. v3+: types; documentation is null. Other resources are INVALID_REQUEST. A resource that is
listed twice is described once, with the keys of its last entry.

Source: ConfigHelper.scala.
"""

from collections.abc import Mapping

from ottla.acl.rights import DESCRIBE_CLUSTER_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_TOPIC_CONFIGS
from ottla.brokerlite.handlers.create_topics import config_source
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.groups.group_configs import GROUP_CONFIGS, check_group_name
from ottla.brokerlite.machines.share_partitions.share_settings import ShareGroupSettings
from ottla.brokerlite.machines.topics.configs import BOOLEAN, CONFIGS, INT, LIST, LONG, OF_BROKER, STRING
from ottla.brokerlite.machines.topics.topics import check_name
from ottla.codec.apis.describe_configs import (
    BROKER,
    GROUP,
    TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.errors import BrokerError, InvalidRequest

_OWN, _STATIC_BROKER_CONFIG, _DEFAULT_CONFIG, _OWN_OF_GROUP = 1, 4, 5, 8
"""Sources of values."""
_TYPES = {
    "log.cleaner.backoff.ms": LONG,
    "log.dirs": LIST,
    "log.retention.check.interval.ms": LONG,
}
"""Types of those broker configurations whose values do not show their type."""


def handle(broker: BrokerCore, call: Call) -> DescribeConfigsResponse:
    request: DescribeConfigsRequest = call.message
    once = {(each.resource_type, each.resource_name): each for each in request.resources}
    defaults = {
        key: _of_topic(broker, key, None, request.include_synonyms)
        for key, known in CONFIGS.items()
        if not known.internal
    }
    return DescribeConfigsResponse(results=tuple(_describe(broker, call, each, defaults) for each in once.values()))


def _describe(
    broker: BrokerCore,
    call: Call,
    asked: DescribeConfigsResource,
    defaults: Mapping[str, DescribeConfigsResourceResult],
) -> DescribeConfigsResult:
    error_code, message = 0, None
    configs: Mapping[str, DescribeConfigsResourceResult] = {}
    name, synonyms = asked.resource_name, call.message.include_synonyms
    try:
        if asked.resource_type == TOPIC:
            broker.access.require(call.session, DESCRIBE_TOPIC_CONFIGS, name)
            check_name(name)
            if (topic := broker.topics.by_name.get(name)) is None:
                raise broker.topics.missing(name)
            own = {key: _of_topic(broker, key, value, synonyms) for key, value in topic.configs.items()}
            configs = {**defaults, **own}
        elif asked.resource_type == BROKER:
            broker.access.require(call.session, DESCRIBE_CLUSTER_CONFIGS)
            configs = _of_broker(broker, name)
        elif asked.resource_type == GROUP:
            broker.access.require(call.session, DESCRIBE_GROUP_CONFIGS, name)
            check_group_name(name)
            configs = {key: _of_group(broker, name, key, synonyms) for key in GROUP_CONFIGS}
        else:
            raise InvalidRequest(f"resource type {asked.resource_type} is not supported")
    except BrokerError as error:
        error_code, message = error.code, error.detail or None
    wanted = set(asked.configuration_keys or configs)
    return DescribeConfigsResult(
        error_code=error_code,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=tuple(each for each in configs.values() if each.name in wanted),
    )


def _of_topic(broker: BrokerCore, key: str, own: str | None, synonyms: bool) -> DescribeConfigsResourceResult:
    """Describe a configuration of a topic.

    Args:
        own: the topic's own value; ``None`` if it has the default.
    """
    places: list[tuple[str, str, int]] = [] if own is None else [(key, own, _OWN)]
    if key in OF_BROKER:
        if key in broker.topics.defaults:
            places.append((OF_BROKER[key], broker.topics.default(key), _STATIC_BROKER_CONFIG))
        places.append((OF_BROKER[key], CONFIGS[key].default, _DEFAULT_CONFIG))
    return DescribeConfigsResourceResult(
        name=key,
        value=broker.topics.default(key) if own is None else own,
        read_only=False,
        config_source=_OWN if own is not None else config_source(broker, {}, key),
        is_sensitive=False,
        synonyms=tuple(DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in places)
        if synonyms
        else (),
        config_type=CONFIGS[key].type,
        documentation=None,
    )


def _of_group(broker: BrokerCore, group_id: str, key: str, synonyms: bool) -> DescribeConfigsResourceResult:
    """Describe a configuration of a group; the group need not exist."""
    known, own = GROUP_CONFIGS[key], broker.group_configs.of(group_id).get(key)
    places = [] if own is None else [(key, own, _OWN_OF_GROUP)]
    if known.of_broker:
        of_broker = broker.settings.share_groups.described()[known.of_broker]
        is_default = of_broker == ShareGroupSettings().described()[known.of_broker]
        places.append((known.of_broker, of_broker, _DEFAULT_CONFIG if is_default else _STATIC_BROKER_CONFIG))
    else:
        places.append((key, known.default or "", _DEFAULT_CONFIG))
    _, value, source = places[0]
    return DescribeConfigsResourceResult(
        name=key,
        value=value,
        read_only=False,
        config_source=source,
        is_sensitive=False,
        synonyms=tuple(DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in places)
        if synonyms
        else (),
        config_type=known.type,
        documentation=None,
    )


def _of_broker(broker: BrokerCore, name: str) -> dict[str, DescribeConfigsResourceResult]:
    if name not in ("", str(broker.settings.node_id)):
        raise InvalidRequest(f"this is broker {broker.settings.node_id}, not {name}")
    configs = {"log.retention.ms": _of_this(broker, "log.retention.ms", None, LONG)}
    for key, of_broker in OF_BROKER.items():
        configs[of_broker] = _of_this(broker, of_broker, broker.topics.default(key), CONFIGS[key].type)
    for key, value in broker.settings.described.items():
        of_value = BOOLEAN if value in ("true", "false") else INT if value.lstrip("-").isdecimal() else STRING
        configs[key] = _of_this(broker, key, value, _TYPES.get(key, of_value))
    return configs


def _of_this(broker: BrokerCore, key: str, value: str | None, type_: int) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=key,
        value=value,
        read_only=True,
        config_source=_STATIC_BROKER_CONFIG if key in broker.settings.described else _DEFAULT_CONFIG,
        is_sensitive=False,
        config_type=type_,
        documentation=None,
    )

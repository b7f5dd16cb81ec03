"""Configurations of topics, groups and the cluster.

Rule: a type of resource that is not known here is refused: upstream may know it.

Source: KafkaApis.scala, ConfigHelper.scala (handleDescribeConfigsRequest, handleAlterConfigsRequest);
ConfigResource.java.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.acl.acls import CLUSTER_NAME
from ottla.acl.rights import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    Right,
)
from ottla.codec.apis import alter_configs as of_alter
from ottla.codec.apis import incremental_alter_configs as of_incremental
from ottla.codec.apis.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from ottla.errors import InvalidRequest
from ottla.proxy.clients.access.screening import Asked, Verdict, without_denied

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_OF_CLUSTER = (_BROKER, _BROKER_LOGGER, _CLIENT_METRICS)


def _rights(topic: Right, group: Right, cluster: Right) -> Mapping[int, Right]:
    return {_TOPIC: topic, _GROUP: group, **dict.fromkeys(_OF_CLUSTER, cluster)}


_TO_DESCRIBE = _rights(DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_CLUSTER_CONFIGS)
_TO_ALTER = _rights(ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS)


def _refusal(asked: Asked, rights: Mapping[int, Right], resource: Any) -> int:
    right = rights.get(resource.resource_type)
    return InvalidRequest.code if right is None else asked.refusal(right, _name(resource))


def _denial(asked: Asked, rights: Mapping[int, Right], resource: Any, code: int) -> str | None:
    right = rights.get(resource.resource_type)
    return None if right is None else asked.denial(right, _name(resource), code=code)


def _name(resource: Any) -> str:
    name: str = resource.resource_name
    return CLUSTER_NAME if resource.resource_type in _OF_CLUSTER else name


def describe_configs(asked: Asked) -> Verdict:
    def refused(resource: Any, code: int) -> Any:
        return DescribeConfigsResult(
            error_code=code,
            error_message=_denial(asked, _TO_DESCRIBE, resource, code),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=(),
        )

    return without_denied(
        asked,
        "resources",
        DescribeConfigsResponse,
        "results",
        lambda each: _refusal(asked, _TO_DESCRIBE, each),
        refused,
    )


def _altering(response: type[Any], result: type[Any]) -> Callable[[Asked], Verdict]:
    """The screen for a request that alters configurations."""

    def screen(asked: Asked) -> Verdict:
        def refused(resource: Any, code: int) -> Any:
            return result(
                error_code=code,
                error_message=_denial(asked, _TO_ALTER, resource, code),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )

        return without_denied(
            asked, "resources", response, "responses", lambda each: _refusal(asked, _TO_ALTER, each), refused
        )

    return screen


alter_configs = _altering(of_alter.AlterConfigsResponse, of_alter.AlterConfigsResourceResponse)
incremental_alter_configs = _altering(
    of_incremental.IncrementalAlterConfigsResponse, of_incremental.AlterConfigsResourceResponse
)

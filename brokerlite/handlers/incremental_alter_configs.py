"""IncrementalAlterConfigs v0-1: changes the configurations of groups.

The configurations of topics and of this broker cannot be changed: INVALID_REQUEST. Each resource succeeds or fails as a
whole.

Source: ConfigAdminManager.scala, ConfigurationControlManager.java (incrementalAlterConfigResource).
"""

from collections import Counter

from ottla.acl.rights import ALTER_GROUP_CONFIGS
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.groups.group_configs import check_group_name
from ottla.codec.apis.describe_configs import GROUP, TOPIC
from ottla.codec.apis.incremental_alter_configs import (
    DELETE,
    SET,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.errors import BrokerError, InvalidConfig, InvalidRequest


def handle(broker: BrokerCore, call: Call) -> IncrementalAlterConfigsResponse:
    request: IncrementalAlterConfigsRequest = call.message
    named = Counter((each.resource_type, each.resource_name) for each in request.resources)
    answered: dict[tuple[int, str], AlterConfigsResourceResponse] = {}
    for each in request.resources:
        resource = each.resource_type, each.resource_name
        if resource in answered:
            continue
        error: BrokerError | None = None
        try:
            if named[resource] > 1:
                raise InvalidRequest("the resource is listed twice")
            _alter(broker, call, each)
        except BrokerError as caught:
            error = caught
        answered[resource] = AlterConfigsResourceResponse(
            error_code=0 if error is None else error.code,
            error_message=None if error is None else error.detail or None,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
    return IncrementalAlterConfigsResponse(responses=tuple(answered.values()))


def _alter(broker: BrokerCore, call: Call, asked: AlterConfigsResource) -> None:
    if asked.resource_type != GROUP:
        what = "topics keep" if asked.resource_type == TOPIC else "other resources keep"
        raise InvalidRequest(f"only the configurations of groups can be changed on this broker; {what} theirs")
    broker.access.require(call.session, ALTER_GROUP_CONFIGS, asked.resource_name)
    check_group_name(asked.resource_name)
    changes: dict[str, str | None] = {}
    for each in asked.configs:
        if each.name in changes:
            raise InvalidRequest(f"{each.name} is listed twice")
        if each.config_operation not in (SET, DELETE):
            raise InvalidConfig(f"{each.name} is no list: it can be set and deleted only")
        if each.config_operation == SET and each.value is None:
            raise InvalidRequest(f"{each.name} has no value")
        changes[each.name] = each.value if each.config_operation == SET else None
    configs = broker.group_configs.check(asked.resource_name, changes)
    if not call.message.validate_only and configs != broker.group_configs.of(asked.resource_name):
        broker.group_configs.set(asked.resource_name, configs)

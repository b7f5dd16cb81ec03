"""Changes the configurations of topics and groups, for AlterConfigs and IncrementalAlterConfigs.

Rules:
- Each resource succeeds or fails as a whole.
- The configurations of the broker itself and of internal topics cannot be changed while the broker runs:
  INVALID_REQUEST.

Source: ConfigAdminManager.scala (preprocess), ConfigurationControlManager.java (incrementalAlterConfigResource,
legacyAlterConfigResource).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Protocol, TypeVar

from ottla.acl.rights import ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.groups.group_configs import check_group_configs, check_group_name
from ottla.brokerlite.machines.topics.configs import CONFIGS, LIST, check_asked, check_configs, shown
from ottla.brokerlite.machines.topics.topics import TopicLogs, check_name, check_own
from ottla.codec.apis import alter_configs, incremental_alter_configs
from ottla.codec.apis.describe_configs import GROUP, TOPIC
from ottla.codec.apis.incremental_alter_configs import APPEND, DELETE, SET, SUBTRACT
from ottla.errors import BrokerError, InvalidConfig, InvalidRequest

LONGEST = 2**15 - 1
"""The most bytes of a string in the protocol: DescribeConfigs could not return a longer value."""

_Outcome = TypeVar("_Outcome")
_Outcome_co = TypeVar("_Outcome_co", covariant=True)
_Asked = alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource


class _OutcomeType(Protocol[_Outcome_co]):
    """The class of an entry of the response. Both APIs have the same fields."""

    def __call__(
        self, *, error_code: int, error_message: str | None, resource_type: int, resource_name: str
    ) -> _Outcome_co: ...


class _Resource(Protocol):
    """A resource whose configurations can be changed."""

    @property
    def own(self) -> Mapping[str, str]:
        """Its own configurations; all others have their defaults."""

    def list_default(self, key: str) -> str:
        """The default of a configuration.

        Raises:
            InvalidConfig: it is not a list.
        """

    def check(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Check configurations, and return them as they are stored."""

    def store(self, configs: dict[str, str]) -> None: ...


def change_each(
    broker: BrokerCore, call: Call, outcome: _OutcomeType[_Outcome], *, replace: bool
) -> Iterator[_Outcome]:
    """Change the resources of a request; yield the outcome of each of them once.

    Args:
        outcome: the class of the entries of the response.
        replace: configurations that the request does not name return to their defaults.
    """
    named = Counter((each.resource_type, each.resource_name) for each in call.message.resources)
    once = {(each.resource_type, each.resource_name): each for each in call.message.resources}
    for resource, asked in once.items():
        error: BrokerError | None = None
        try:
            if named[resource] > 1:
                raise InvalidRequest("the resource is listed twice")
            _change(broker, call, asked, replace=replace)
        except BrokerError as caught:
            error = caught
        yield outcome(
            error_code=0 if error is None else error.code,
            error_message=None if error is None else error.detail or None,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )


def _change(broker: BrokerCore, call: Call, asked: _Asked, *, replace: bool) -> None:
    operations = _operations(asked)
    resource = _find(broker, call, asked)
    configs = {} if replace else dict(resource.own)
    for key, (operation, value) in operations.items():
        if operation == SET:
            configs[key] = value
        elif operation == DELETE:
            configs.pop(key, None)
        elif operation in (APPEND, SUBTRACT):
            default = resource.list_default(key)
            configs[key] = _edited(configs.get(key, default), operation, value)
        else:
            raise InvalidRequest(f"operation {operation} is unknown")
    for key, value in configs.items():
        if len(value.encode()) > LONGEST:
            raise InvalidConfig(f"{shown(key)} would have {len(value)} characters; the most is {LONGEST}")
    checked = resource.check(configs)
    if not call.message.validate_only and checked != resource.own:
        resource.store(checked)


def _operations(asked: _Asked) -> dict[str, tuple[int, str]]:
    """Name of a configuration -> the operation and its value; AlterConfigs has only `SET`."""
    operations: dict[str, tuple[int, str]] = {}
    for each in asked.configs:
        operation = SET if isinstance(each, alter_configs.AlterableConfig) else each.config_operation
        if each.value is None and operation != DELETE:
            raise InvalidRequest(f"{shown(each.name)} has no value")
        if each.name in operations:
            raise InvalidRequest(f"{shown(each.name)} is listed twice")
        operations[each.name] = operation, each.value or ""
    return operations


def _edited(value: str, operation: int, entries: str) -> str:
    """A list with further entries, or without some."""
    have = [each for each in value.split(",") if each]
    asked = dict.fromkeys(each.strip() for each in entries.split(","))
    if operation == APPEND:
        return ",".join(dict.fromkeys([*have, *asked]))
    return ",".join(each for each in have if each not in asked)


def _find(broker: BrokerCore, call: Call, asked: _Asked) -> _Resource:
    name = asked.resource_name
    if asked.resource_type == TOPIC:
        if not name:
            raise InvalidRequest("the name of the topic is missing")
        broker.access.require(call.session, ALTER_TOPIC_CONFIGS, name)
        check_name(name)
        if (topic := broker.topics.by_name.get(name)) is None:
            raise broker.topics.missing(name)
        return _Topic(broker, topic)
    if asked.resource_type == GROUP:
        broker.access.require(call.session, ALTER_GROUP_CONFIGS, name)
        check_group_name(name)
        return _Group(broker, name)
    raise InvalidRequest("only topics and groups have configurations that can be changed while this broker runs")


class _Topic:
    def __init__(self, broker: BrokerCore, topic: TopicLogs) -> None:
        self._broker, self._topic = broker, topic
        self.own = topic.configs

    def list_default(self, key: str) -> str:
        if key not in CONFIGS or CONFIGS[key].type != LIST:
            raise InvalidConfig(f"{shown(key)} is no list: it can be set and deleted only")
        return self._broker.topics.default(key)

    def check(self, configs: Mapping[str, str]) -> dict[str, str]:
        checked = check_configs(configs)
        check_asked(checked)
        check_own(self._topic.name, "sets its configuration")
        return checked

    def store(self, configs: dict[str, str]) -> None:
        self._broker.configure_topic(self._topic, configs)


class _Group:
    def __init__(self, broker: BrokerCore, group_id: str) -> None:
        self._configs, self._group_id = broker.group_configs, group_id
        self.own = broker.group_configs.of(group_id)

    def list_default(self, key: str) -> str:
        raise InvalidConfig(f"{shown(key)} is no list: it can be set and deleted only")

    def check(self, configs: Mapping[str, str]) -> dict[str, str]:
        return check_group_configs(configs)

    def store(self, configs: dict[str, str]) -> None:
        self._configs.set(self._group_id, configs)

"""The rights that requests need: an operation on a type of resource.

Rules:
- Read, Write, Delete and Alter include Describe; AlterConfigs includes DescribeConfigs. In an ACL that denies, an
  operation includes no other.
- Each type of resource has its own error for a denied request.

Source: StandardAuthorizerData.java (IMPLIES_DESCRIBE), AclEntry.java (supportedOperations).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.acl.acls import kafkas_name
from ottla.codec.apis.create_acls import AclOperation, ResourceType
from ottla.errors import (
    BrokerError,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)

INCLUDED_IN: Mapping[AclOperation, tuple[AclOperation, ...]] = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""Operation -> other operations that include it."""
SUPPORTED: Mapping[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
"""The operations in the bit fields ``authorized_operations`` of responses."""
_ERRORS: Mapping[ResourceType, type[BrokerError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.CLUSTER: ClusterAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
}


@dataclass(frozen=True, slots=True, eq=False)
class Right:
    """An operation on a type of resource. Rights are compared by identity: each has one object.

    Attributes:
        granted_by: the operations that an ACL may allow to give this right.
        denied: the error of a request without this right.
    """

    operation: AclOperation
    resource_type: ResourceType
    granted_by: frozenset[AclOperation] = field(init=False)
    denied: type[BrokerError] = field(init=False)

    def __post_init__(self) -> None:
        included = INCLUDED_IN.get(self.operation, ())
        object.__setattr__(self, "granted_by", frozenset((self.operation, AclOperation.ALL, *included)))
        object.__setattr__(self, "denied", _ERRORS[self.resource_type])

    def __str__(self) -> str:
        """As in Kafka's docs: ``Read on Topic``."""
        return f"{kafkas_name(self.operation)} on {kafkas_name(self.resource_type)}"


OPERATIONS: Mapping[ResourceType, tuple[Right, ...]] = {
    resource_type: tuple(Right(operation, resource_type) for operation in operations)
    for resource_type, operations in SUPPORTED.items()
}
"""The rights in the bit fields ``authorized_operations`` of responses."""
_BY_CODES = {(right.operation, right.resource_type): right for rights in OPERATIONS.values() for right in rights}

ALTER_TOPIC = _BY_CODES[AclOperation.ALTER, ResourceType.TOPIC]
ALTER_TOPIC_CONFIGS = _BY_CODES[AclOperation.ALTER_CONFIGS, ResourceType.TOPIC]
CREATE_TOPIC = _BY_CODES[AclOperation.CREATE, ResourceType.TOPIC]
DELETE_TOPIC = _BY_CODES[AclOperation.DELETE, ResourceType.TOPIC]
DESCRIBE_TOPIC = _BY_CODES[AclOperation.DESCRIBE, ResourceType.TOPIC]
DESCRIBE_TOPIC_CONFIGS = _BY_CODES[AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC]
READ_TOPIC = _BY_CODES[AclOperation.READ, ResourceType.TOPIC]
WRITE_TOPIC = _BY_CODES[AclOperation.WRITE, ResourceType.TOPIC]

ALTER_GROUP_CONFIGS = _BY_CODES[AclOperation.ALTER_CONFIGS, ResourceType.GROUP]
DELETE_GROUP = _BY_CODES[AclOperation.DELETE, ResourceType.GROUP]
DESCRIBE_GROUP = _BY_CODES[AclOperation.DESCRIBE, ResourceType.GROUP]
DESCRIBE_GROUP_CONFIGS = _BY_CODES[AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP]
READ_GROUP = _BY_CODES[AclOperation.READ, ResourceType.GROUP]

ALTER_CLUSTER = _BY_CODES[AclOperation.ALTER, ResourceType.CLUSTER]
ALTER_CLUSTER_CONFIGS = _BY_CODES[AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER]
CLUSTER_ACTION = _BY_CODES[AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER]
CREATE_ON_CLUSTER = _BY_CODES[AclOperation.CREATE, ResourceType.CLUSTER]
DELETE_ON_CLUSTER = Right(AclOperation.DELETE, ResourceType.CLUSTER)
DESCRIBE_CLUSTER = _BY_CODES[AclOperation.DESCRIBE, ResourceType.CLUSTER]
DESCRIBE_CLUSTER_CONFIGS = _BY_CODES[AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER]
IDEMPOTENT_WRITE = _BY_CODES[AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER]

DESCRIBE_TRANSACTIONAL_ID = Right(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
WRITE_TRANSACTIONAL_ID = Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
EVERY_RIGHT: tuple[Right, ...] = (
    *_BY_CODES.values(),
    DELETE_ON_CLUSTER,
    DESCRIBE_TRANSACTIONAL_ID,
    WRITE_TRANSACTIONAL_ID,
)

"""CreateAcls (key 30): allow or deny principals to do something.

Sent by administrators (Admin.createAcls, kafka-acls.sh --add) to any broker, which forwards it to the controller; from
4.0 on Java's Admin may ask a controller directly. Requires the right to alter the cluster. The response comes when the
rules are stored, possibly before every broker applies them.

A rule says: this principal, from this host, is allowed or denied this operation on the resources that match a pattern.
Deny wins over allow. If a resource has rules and none of them allows, the operation is refused. If it has none,
`allow.everyone.if.no.acl.found` decides. Some rights include others: the right to read, write, delete or alter includes
the right to describe. Rules are a set: creating a rule that exists succeeds and changes nothing.

Results are in the order of the request. Each rule succeeds or fails independently.

Errors:
    SECURITY_DISABLED: the brokers have no authorizer (`authorizer.class.name`).
    INVALID_REQUEST: an empty resource name, a cluster with another name than ``kafka-cluster``, or a code that is only
        for filters (`ANY`, `MATCH`).

Versions:
    0 (0.11.0): patterns are literal.
    1 (2.0): `resource_pattern_type`, prefixes (KIP-290); throttled after the answer (KIP-219).
    2 (2.5): flexible.
    3 (3.3): the same bytes; `ResourceType.USER` (KIP-373).

Source: AclApis.scala, handleCreateAcls; AclControlManager.java, validateNewAcl; StandardAuthorizerData.java; KIP-140.
"""

import enum

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire


class ResourceType(enum.IntEnum):
    """The type of a rule's resource, as CreateAcls, DescribeAcls and DeleteAcls number it."""

    ANY = 1
    """In a filter: every type."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    """Its only name is ``kafka-cluster``."""
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    """Its name is the token id."""
    USER = 7
    """Its name is a principal, ``User:alice``: the user for whom tokens may be created and seen."""


class PatternType(enum.IntEnum):
    """How to compare a resource's name."""

    ANY = 1
    """In a filter: rules of every pattern type with exactly the given name."""
    MATCH = 2
    """In a filter: all rules that apply to a resource of the given name: literal ones, ``*``, and matching prefixes."""
    LITERAL = 3
    """The whole name; ``*`` is every name."""
    PREFIXED = 4
    """The beginning of the name."""


class AclOperation(enum.IntEnum):
    """The operation that a rule allows or denies. The bits of ``…_authorized_operations`` have the same numbers."""

    ANY = 1
    """In a filter: every operation."""
    ALL = 2
    """In a rule: every operation."""
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    """Requests that brokers send to each other."""
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    """On the cluster; from 2.8 on the right to write to any topic includes it (KIP-679)."""
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15
    """On a transactional id (KIP-939)."""


class AclPermissionType(enum.IntEnum):
    ANY = 1
    """In a filter: both."""
    DENY = 2
    ALLOW = 3


@struct
class AclCreation:
    """One rule."""

    resource_type: int = wire(Int8)
    """A `ResourceType`."""
    resource_name: str = wire(String)
    resource_pattern_type: int = wire(Int8, "1+", default=3)
    """`PatternType.LITERAL` or `PREFIXED`."""
    principal: str = wire(String)
    """Type and name: ``User:alice``, or ``User:*`` for everyone."""
    host: str = wire(String)
    """The client's IP address, not a host name; ``*``: all."""
    operation: int = wire(Int8)
    """An `AclOperation`."""
    permission_type: int = wire(Int8)
    """An `AclPermissionType`."""


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsRequest:
    creations: tuple[AclCreation, ...] = wire(Array(AclCreation))


@struct
class AclCreationResult:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    results: tuple[AclCreationResult, ...] = wire(Array(AclCreationResult))
    """One for each of `creations`, in their order."""

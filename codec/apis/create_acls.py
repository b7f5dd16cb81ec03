"""CreateAcls (key 30): allow or deny principals to do something.

Sent by administrators (Admin.createAcls, kafka-acls.sh --add) to any broker, which forwards it to the controller; from
4.0 on Java's Admin may ask a controller directly. It takes the right to alter the cluster. The answer comes when the
rules are stored, and before every broker applies them.

A rule says: this principal, from this host, is allowed or denied this operation on the resources that match a pattern.
Deny beats allow; where a resource has rules and none of them allows, the answer is no. Where it has none,
`allow.everyone.if.no.acl.found` decides. Some rights bring others: who may read, write, delete or alter may also
describe. Rules are a set: to create one that exists succeeds and changes nothing.

Results stand in the order of the request. A rule that is refused does not hinder the others.

Errors:
    SECURITY_DISABLED: the brokers have no authorizer (`authorizer.class.name`).
    INVALID_REQUEST: an empty resource name, a cluster of another name than ``kafka-cluster``, or a code that only
        filters know (`ANY`, `MATCH`).

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
    """What a rule is about, as CreateAcls, DescribeAcls and DeleteAcls number it."""

    ANY = 1
    """Of a filter: every type."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    """Its only name is ``kafka-cluster``."""
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    """Its name is the token id."""
    USER = 7
    """Its name is a principal, ``User:alice``: for whom tokens may be created and seen."""


class PatternType(enum.IntEnum):
    """How a resource's name is meant."""

    ANY = 1
    """Of a filter: rules of every pattern type, of the very name given."""
    MATCH = 2
    """Of a filter: the rules that apply to a resource of the name given: literal ones, ``*``, and fitting prefixes."""
    LITERAL = 3
    """The name, the whole name; ``*`` is every name."""
    PREFIXED = 4
    """The beginning of the name."""


class AclOperation(enum.IntEnum):
    """What a rule allows or denies. The bits of ``…_authorized_operations`` have the same numbers."""

    ANY = 1
    """Of a filter: every operation."""
    ALL = 2
    """Of a rule: every operation."""
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    """What brokers ask of each other."""
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    """Of the cluster; from 2.8 on the right to write to any topic includes it (KIP-679)."""
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15
    """Of a transactional id (KIP-939)."""


class AclPermissionType(enum.IntEnum):
    ANY = 1
    """Of a filter: both."""
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
    """Client's IP address, not a name; ``*``: all."""
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

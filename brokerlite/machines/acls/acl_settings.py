"""The settings of ACLs."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AclSettings:
    """The settings of a broker with ACLs.

    Attributes:
        super_users: principals that may do everything (`super.users`).
        allow_if_none: whether everyone may use a resource without ACLs (`allow.everyone.if.no.acl.found`).
    """

    super_users: frozenset[str] = frozenset()
    allow_if_none: bool = False

"""Decides by ACLs whether a principal has a right.

Rules:
- Super users have every right.
- An ACL that denies wins over all that allow. If no ACL decides, the right is denied if the resource has an ACL of
  whatever principal; if it has none, `allow.everyone.if.no.acl.found` decides.
- An ACL applies to a resource if its pattern is the resource's name, a prefix of it, or ``*``.

Theory of operation: the ACLs are indexed by type and name. The prefixes of a name are found by bisection: the greatest
known prefix that is not behind the name is a prefix of it, or else shares with it a shorter beginning that every
prefix of the name has. Clients repeat their requests, so decisions are remembered until an ACL changes. A decision over
all names may look at each ACL, and with IPv6 a client chooses its host. So hosts that no ACL names share one decision.

Source: StandardAuthorizerData.java (authorize, findAclRule), Authorizer.java (authorizeByResourceType).
"""

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from ottla.acl.acls import ANY_HOST, ANY_NAME, EVERYONE, Acl, AclFilter, normal_host
from ottla.acl.rights import Right
from ottla.codec.apis.create_acls import AclOperation, AclPermissionType, PatternType, ResourceType

REMEMBERED = 20_000
"""Decisions that are remembered; then all are forgotten."""
LONGEST_REMEMBERED = 249
"""Characters of the longest name that is remembered, because clients choose names. A topic's name is not longer."""
_UNNAMED = "hardcode"
"""A name that stands for no resource: only ACLs for all names apply to it. It is Kafka's own."""
_NO_NAME = "\0"
"""Neither a name nor the beginning or the end of one."""

_ByPrincipal = dict[str, list[Acl]]


class _AclsOfType:
    """The ACLs for one type of resource, by pattern and principal."""

    def __init__(self) -> None:
        self._literal: dict[str, _ByPrincipal] = {}
        self._prefixed: dict[str, _ByPrincipal] = {}
        self._prefixes: list[str] = []
        """In order."""
        self._denials: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Principal -> the examples of the patterns with an ACL that denies it something."""
        self.hosts: Counter[str] = Counter()
        """The hosts that ACLs name."""

    def add(self, acl: Acl) -> None:
        named = self._named(acl)
        if acl.pattern_type is PatternType.PREFIXED and acl.resource_name not in named:
            insort(self._prefixes, acl.resource_name)
        named.setdefault(acl.resource_name, {}).setdefault(acl.principal, []).append(acl)
        self.hosts[normal_host(acl.host)] += 1
        if acl.permission is AclPermissionType.DENY:
            self._denials[acl.principal][_example(acl)] += 1

    def remove(self, acl: Acl) -> None:
        named = self._named(acl)
        by_principal = named[acl.resource_name]
        by_principal[acl.principal].remove(acl)
        if not by_principal[acl.principal]:
            del by_principal[acl.principal]
        if not by_principal:
            del named[acl.resource_name]
            if acl.pattern_type is PatternType.PREFIXED:
                self._prefixes.remove(acl.resource_name)
        _uncount(self.hosts, normal_host(acl.host))
        if acl.permission is AclPermissionType.DENY:
            _uncount(self._denials[acl.principal], _example(acl))

    def _named(self, acl: Acl) -> dict[str, _ByPrincipal]:
        return self._prefixed if acl.pattern_type is PatternType.PREFIXED else self._literal

    def applicable(self, name: str) -> Iterator[_ByPrincipal]:
        """Iterate over the ACLs whose pattern matches a name."""
        for literal in (name, ANY_NAME):
            if (found := self._literal.get(literal)) is not None:
                yield found
        while name and (at := bisect_right(self._prefixes, name)):
            prefix = self._prefixes[at - 1]
            if name.startswith(prefix):
                yield self._prefixed[prefix]
                name = prefix[:-1]
            else:
                name = _common(name, prefix)

    def examples(self, principal: str) -> Iterator[str]:
        """Iterate over names that stand for all names: a principal has a right on each name if it has it on these."""
        yield _NO_NAME
        if ANY_NAME in self._literal:  # who may do it with the name before may do it with all, unless an ACL denies it
            for each in (principal, EVERYONE):
                yield from self._denials.get(each, ())
        else:  # the principal has a right on the name before only if everyone has all rights on names without ACLs
            yield from self._literal
            yield from (prefix + _NO_NAME for prefix in self._prefixes)

    def of(self, principal: str) -> Iterator[Acl]:
        """Iterate over the ACLs for a principal and for everyone."""
        for named in (self._literal, self._prefixed):
            for by_principal in named.values():
                for each in (principal, EVERYONE):
                    yield from by_principal.get(each, ())


class Authorizer:
    """Decides by a set of ACLs.

    Args:
        super_users: principals with every right.
        allow_if_none: whether everyone has every right on a resource without ACLs.

    Attributes:
        only_super_users: whether all others have no right, whatever the ACLs are.
    """

    def __init__(self, acls: Iterable[Acl] = (), *, super_users: Iterable[str] = (), allow_if_none: bool = False):
        self._super_users = frozenset(super_users)
        self._allow_if_none = allow_if_none
        self.only_super_users = False
        self._acls: dict[Acl, None] = {}
        self._by_type: dict[ResourceType, _AclsOfType] = {}
        self._decided: dict[tuple[str, str, Right, str | None], bool] = {}
        self._decided_all: dict[tuple[str, str, Right], bool] = {}
        for acl in acls:
            self.add(acl)

    @property
    def denies_everything(self) -> bool:
        """Whether no principal has a right."""
        return not (self._super_users or self._acls or self._allow_if_none)

    def is_super(self, principal: str) -> bool:
        """Whether the principal has every right, whatever the ACLs are."""
        return principal in self._super_users

    def add(self, acl: Acl) -> None:
        """Add an ACL, unless it exists."""
        if acl not in self._acls:
            self._acls[acl] = None
            self._by_type.setdefault(acl.resource_type, _AclsOfType()).add(acl)
            self._forget()

    def remove(self, acl: Acl) -> None:
        """Remove an ACL, if it exists."""
        if acl in self._acls:
            del self._acls[acl]
            self._by_type[acl.resource_type].remove(acl)
            self._forget()

    def distrust(self) -> None:
        """Let only super users do anything, because an ACL that denies may be missing."""
        self.only_super_users = True
        self._forget()

    def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the ACLs that a filter matches."""
        return [acl for acl in self._acls if wanted.matches(acl)]

    def authorize(self, principal: str, host: str, right: Right, name: str) -> bool:
        """Return whether the principal has the right on the resource.

        Args:
            host: the client's IP address.
        """
        key = (principal, host, right, name)
        if (known := self._decided.get(key)) is None:
            known = self._remember(key, self._decide(principal, host, right, name))
        return known

    def authorize_any(self, principal: str, host: str, right: Right) -> bool:
        """Return whether the principal has the right on at least one resource, whether such a resource exists or not.

        As in Apache Kafka, only ACLs for the operation itself or for all operations count.
        """
        key = (principal, host, right, None)
        if (known := self._decided.get(key)) is None:
            known = self._decide(principal, host, right, _UNNAMED) or self._decide_any(principal, host, right)
            self._remember(key, known)
        return known

    def authorize_all(self, principal: str, host: str, right: Right) -> bool:
        """Return whether the principal has the right on every resource of the type, also on future ones."""
        if principal in self._super_users or self.only_super_users:
            return principal in self._super_users
        of_type = self._by_type.get(right.resource_type, _AclsOfType())
        if normal_host(host) not in of_type.hosts:
            host = ANY_HOST
        key = (principal, host, right)
        if (known := self._decided_all.get(key)) is None:
            known = all(self._decide(principal, host, right, name) for name in of_type.examples(principal))
            if len(self._decided_all) >= REMEMBERED:
                self._decided_all.clear()
            self._decided_all[key] = known
        return known

    def _forget(self) -> None:
        self._decided.clear()
        self._decided_all.clear()

    def _remember(self, key: tuple[str, str, Right, str | None], decision: bool) -> bool:
        if len(key[3] or "") <= LONGEST_REMEMBERED:
            if len(self._decided) >= REMEMBERED:
                self._decided.clear()
            self._decided[key] = decision
        return decision

    def _decide(self, principal: str, host: str, right: Right, name: str) -> bool:
        if principal in self._super_users:
            return True
        if self.only_super_users:
            return False
        found = allowed = False
        hosts = (ANY_HOST, normal_host(host))
        if (of_type := self._by_type.get(right.resource_type)) is not None:
            for by_principal in of_type.applicable(name):
                found = True
                for each in (principal, EVERYONE):
                    for acl in by_principal.get(each, ()):
                        if normal_host(acl.host) not in hosts:
                            continue
                        if acl.permission is AclPermissionType.ALLOW:
                            allowed = allowed or acl.operation in right.granted_by
                        elif acl.operation in (right.operation, AclOperation.ALL):
                            return False
        return allowed or (self._allow_if_none and not found)

    def _decide_any(self, principal: str, host: str, right: Right) -> bool:
        if self.only_super_users or (of_type := self._by_type.get(right.resource_type)) is None:
            return False
        allowed: list[Acl] = []
        hosts = (ANY_HOST, normal_host(host))
        denied: set[tuple[PatternType, str]] = set()
        for acl in of_type.of(principal):
            if normal_host(acl.host) in hosts and acl.operation in (right.operation, AclOperation.ALL):
                if acl.permission is AclPermissionType.ALLOW:
                    allowed.append(acl)
                else:
                    denied.add((acl.pattern_type, acl.resource_name))
        if (PatternType.LITERAL, ANY_NAME) in denied:
            return False
        return any(_is_left(acl, denied) for acl in allowed)


def _example(acl: Acl) -> str:
    """Return a name that stands for the names to which an ACL applies."""
    if acl.pattern_type is PatternType.PREFIXED:
        return acl.resource_name + _NO_NAME
    return _NO_NAME if acl.resource_name == ANY_NAME else acl.resource_name


def _uncount(counter: Counter[str], text: str) -> None:
    """Count one less; `Counter` itself would go through all that it has."""
    counter[text] -= 1
    if not counter[text]:
        del counter[text]


def _is_left(acl: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether an ACL allows something that the denied patterns do not cover."""
    name = acl.resource_name
    if acl.pattern_type is PatternType.LITERAL:
        if name == ANY_NAME:
            return True
        if (PatternType.LITERAL, name) in denied:
            return False
    return not any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))


def _common(one: str, other: str) -> str:
    """Return the common beginning of two texts."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return one[:at]
    return min(one, other, key=len)

"""Answers the questions of a server's handlers: may this client do that?

    access.require(call.session, READ_GROUP, group_id)     # raises the error of the response
    if access.allows(call.session, READ_TOPIC, name): ...  # the client asked for it: a denial is logged
    if access.shows(call.session, DESCRIBE_TOPIC, name): … # the server filters a list: no audit line

Rule: handlers ask always, and never whether ACLs are on: `Access` itself lets everyone do everything.
"""

from ottla.acl.acls import ANY_NAME, CLUSTER_NAME, kafkas_name
from ottla.acl.audit import Audit
from ottla.acl.authorizer import Authorizer
from ottla.acl.rights import OPERATIONS, Right
from ottla.client_info import ClientInfo
from ottla.codec.apis.create_acls import ResourceType
from ottla.errors import BrokerError

_ALL_OPERATIONS = {
    resource_type: sum(1 << right.operation for right in rights) for resource_type, rights in OPERATIONS.items()
}


def denial(client: ClientInfo, right: Right, name: str) -> str:
    """The text of a response to a client that lacks a right; the client itself named the resource."""
    return f"{client.principal} may not {kafkas_name(right.operation)} {kafkas_name(right.resource_type)} {name}"


class Access:
    """Lets everyone do everything: the access without ACLs."""

    def allows(self, client: ClientInfo, right: Right, name: str = CLUSTER_NAME) -> bool:
        """Return whether the client has a right that its request needs on the resource ``name``."""
        return True

    def shows(self, client: ClientInfo, right: Right, name: str = CLUSTER_NAME) -> bool:
        """Return whether the client has a right, without an audit line: the client did not ask for this resource."""
        return True

    def allows_any(self, client: ClientInfo, right: Right) -> bool:
        """Return whether the client has a right on at least one resource; a denial has no audit line."""
        return True

    def has_every_right(self, client: ClientInfo) -> bool:
        """Return whether nothing need be asked about the client, because it may do everything."""
        return True

    def limited(self, client: ClientInfo) -> str | None:
        """Return the principal whose share of the server's room is limited; ``None``: the client has every right."""
        return None if self.has_every_right(client) else client.principal

    def refusal(self, client: ClientInfo, right: Right, name: str = CLUSTER_NAME) -> BrokerError | None:
        """Return the error if the client does not have a right that its request needs."""
        return None

    def refusal_of_all(self, client: ClientInfo, right: Right) -> BrokerError | None:
        """Return the error if the request needs a right on all resources, and the client lacks it on one."""
        return None

    def require(self, client: ClientInfo, right: Right, name: str = CLUSTER_NAME) -> None:
        """Check a right that the request needs.

        Raises:
            BrokerError: `Right.denied`: the client does not have the right.
        """

    def operations(
        self, client: ClientInfo, resource_type: ResourceType, name: str = CLUSTER_NAME, *, needs: Right | None = None
    ) -> int:
        """Return the operations that the client may do on the resource: the bit ``1 << AclOperation`` for each.

        Args:
            needs: a right without which the client gets none.
        """
        return _ALL_OPERATIONS[resource_type]


class AclAccess(Access):
    """Decides by ACLs, and has denials logged."""

    def __init__(self, authorizer: Authorizer, audit: Audit) -> None:
        self._authorizer = authorizer
        self._audit = audit

    def allows(self, client: ClientInfo, right: Right, name: str = CLUSTER_NAME) -> bool:
        if self._authorizer.authorize(client.principal, client.peer_host, right, name):
            return True
        self._audit.denied(client, right, name)
        return False

    def shows(self, client: ClientInfo, right: Right, name: str = CLUSTER_NAME) -> bool:
        return self._authorizer.authorize(client.principal, client.peer_host, right, name)

    def allows_any(self, client: ClientInfo, right: Right) -> bool:
        return self._authorizer.authorize_any(client.principal, client.peer_host, right)

    def has_every_right(self, client: ClientInfo) -> bool:
        return self._authorizer.is_super(client.principal)

    def refusal(self, client: ClientInfo, right: Right, name: str = CLUSTER_NAME) -> BrokerError | None:
        return None if self.allows(client, right, name) else right.denied(denial(client, right, name))

    def refusal_of_all(self, client: ClientInfo, right: Right) -> BrokerError | None:
        if self._authorizer.authorize_all(client.principal, client.peer_host, right):
            return None
        self._audit.denied(client, right, ANY_NAME)
        return right.denied(denial(client, right, ANY_NAME))

    def require(self, client: ClientInfo, right: Right, name: str = CLUSTER_NAME) -> None:
        if (error := self.refusal(client, right, name)) is not None:
            raise error

    def operations(
        self, client: ClientInfo, resource_type: ResourceType, name: str = CLUSTER_NAME, *, needs: Right | None = None
    ) -> int:
        if needs is not None and not self.allows(client, needs, name):
            return 0
        return sum(1 << right.operation for right in OPERATIONS[resource_type] if self.shows(client, right, name))

"""The ACLs that are in effect, and their changes.

Rules:
- A change is stored before it is in effect, and before the client gets the response.
- A request changes all of its ACLs or none; it deletes `MOST` at most.
- If stored ACLs are damaged or lost, only super users may do anything: an ACL that denies may be among them.

Source: AclControlManager.java (createAcls, deleteAcls).
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.acl.acls import Acl, AclFilter
from ottla.acl.authorizer import Authorizer
from ottla.brokerlite.machines.acls.acl_log import AclLog
from ottla.errors import PolicyViolation

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite")

MOST = 10_000
"""The most ACLs that a request creates or deletes, as in Apache Kafka."""


class StoredAcls:
    """Keeps the ACLs of a broker.

    Args:
        authorizer: gets all ACLs.
        new_id: makes ids of ACLs.
    """

    def __init__(self, authorizer: Authorizer, acl_log: AclLog, new_id: "Callable[[], UUID]") -> None:
        self._authorizer = authorizer
        self._log = acl_log
        self._new_id = new_id
        self._ids, complete = acl_log.load()
        for acl in self._ids:
            authorizer.add(acl)
        if not complete:
            log.error("stored ACLs are damaged, so only super users may do anything")
            authorizer.distrust()
        if not self._ids and authorizer.denies_everything:
            log.warning("ACLs are on, but no super user may create one")

    def create(self, acls: Iterable[Acl]) -> None:
        """Create ACLs, except existing ones.

        Raises:
            PolicyViolation: there are more than `MOST`.
            BrokerError: the disk refused.
        """
        created = {acl: self._new_id() for acl in dict.fromkeys(acls) if acl not in self._ids}
        _check_number(len(created))
        if not created:
            return
        self._log.store(created)
        for acl, acl_id in created.items():
            self._ids[acl] = acl_id
            self._authorizer.add(acl)
        log.info("ACLs created", extra={"number": len(created), "all": len(self._ids)})

    def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the ACLs that a filter matches."""
        return self._authorizer.find(wanted)

    def delete(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Delete ACLs; return the ACLs that each filter matches.

        Raises:
            PolicyViolation: there are more than `MOST`.
            BrokerError: the disk refused.
        """
        found = [self.find(each) for each in filters]
        deleted = list(dict.fromkeys(acl for acls in found for acl in acls))
        _check_number(len(deleted))
        if deleted:
            self._log.delete(self._ids[acl] for acl in deleted)
            for acl in deleted:
                del self._ids[acl]
                self._authorizer.remove(acl)
            log.info("ACLs deleted", extra={"number": len(deleted), "all": len(self._ids)})
        return found


def _check_number(number: int) -> None:
    if number > MOST:
        raise PolicyViolation(f"{number} ACLs in one request; the most is {MOST}")

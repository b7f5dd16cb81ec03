"""Stores ACLs as records of an internal topic, and loads them.

A record's key is the id of an ACL. Its value is Kafka's AccessControlEntryRecord, or null if the ACL was deleted.

Rule: after damage the remaining ACLs prove nothing, because an ACL that denies may be lost.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.acl.acls import Acl
from ottla.brokerlite.machines.topics.keyed_log import KeyedLog
from ottla.codec.prefixed import build_prefixed, parse_prefixed
from ottla.codec.stored.access_control import AccessControlEntryRecord
from ottla.errors import BrokerError, DecodeError

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite")

CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 * 2**20), "max.message.bytes": str(64 * 2**20)}
"""The topic's configuration, the same as that of `__consumer_offsets`."""
_VERSION = 0


class LoadedAcls(NamedTuple):
    """The content of the log.

    Attributes:
        ids: each ACL and its id.
        complete: whether no record is damaged or lost.
    """

    ids: dict[Acl, "UUID"]
    complete: bool


class AclLog:
    """Writes and loads the log of all ACLs."""

    def __init__(self, log: KeyedLog) -> None:
        self._log = log

    def store(self, created: Mapping[Acl, "UUID"]) -> None:
        """Write new ACLs, all of them or none.

        Raises:
            BrokerError: the disk refused.
        """
        self._log.write(
            (acl_id.bytes, build_prefixed(_record(acl, acl_id), _VERSION)) for acl, acl_id in created.items()
        )

    def delete(self, ids: Iterable["UUID"]) -> None:
        """Write that ACLs are deleted, all of them or none.

        Raises:
            BrokerError: the disk refused.
        """
        self._log.write((acl_id.bytes, None) for acl_id in ids)

    def load(self) -> LoadedAcls:
        """Return the stored ACLs.

        Raises:
            KafkaStorageError: the disk refused.
        """
        acls: dict[Acl, UUID] = {}
        loaded = self._log.load()
        complete = loaded.complete
        for entry in loaded.entries:
            try:
                _, record, _ = parse_prefixed(AccessControlEntryRecord, entry.value or b"")
                acls[_acl(record)] = record.id
            except (DecodeError, BrokerError) as error:
                log.error("damaged record of %s skipped: %s", self._log.name, error)
                complete = False
        return LoadedAcls(acls, complete)


def _record(acl: Acl, acl_id: "UUID") -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _acl(record: AccessControlEntryRecord) -> Acl:
    return Acl.checked(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )

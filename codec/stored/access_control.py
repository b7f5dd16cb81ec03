"""Kafka's record of an ACL, which KRaft's controllers store in ``__cluster_metadata``.

Source: AccessControlEntryRecord.json, StandardAcl.java.
"""

import uuid

from ottla.codec.wire import Int8, String, Uuid, message, wire


@message(key=18, versions="0", flexible="0+")
class AccessControlEntryRecord:
    """An ACL exists. Another record, RemoveAccessControlEntryRecord, removes it by its id."""

    id: uuid.UUID = wire(Uuid)
    resource_type: int = wire(Int8)
    """A `ResourceType` of create_acls.py, where the other enumerations are, too."""
    resource_name: str = wire(String)
    pattern_type: int = wire(Int8)
    """`PatternType.LITERAL` or `PREFIXED`."""
    principal: str = wire(String)
    host: str = wire(String)
    operation: int = wire(Int8)
    """An `AclOperation`."""
    permission_type: int = wire(Int8)
    """An `AclPermissionType`."""

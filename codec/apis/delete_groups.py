"""DeleteGroups (key 42): remove groups that have no members, with everything that is stored for them.

Sent by administrators (Admin.deleteConsumerGroups, kafka-consumer-groups.sh --delete) to the coordinators of the
groups; find each with FindCoordinator. Requires the right to delete each group. Works for groups of every type. Their
committed offsets are deleted too, so that consumers with this group id start where `auto.offset.reset` says. A group
may reappear at once: the next member that joins creates it.

Each group succeeds or fails independently.

Errors:
    NON_EMPTY_GROUP: the group still has members: stop them first.
    GROUP_ID_NOT_FOUND: no such group; after a retry, perhaps because the first attempt succeeded.
    GROUP_DELETION_FAILED: something that must be removed first could not be, for example the description of a streams
        group's topology in a broker's plugin; the group is unchanged, retry later. UNKNOWN_SERVER_ERROR before v3.
    INVALID_GROUP_ID: the empty id.
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS: retry after a pause.

Versions:
    0 (1.1)
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.4): flexible.
    3 (4.4): `error_message`, GROUP_DELETION_FAILED (KIP-1331).

Source: KafkaApis.scala, handleDeleteGroupsRequest; GroupMetadataManager.java, validateDeleteGroup; KIP-229.
"""

from ottla.codec.wire import Array, Int16, Int32, String, message, struct, wire


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: tuple[str, ...] = wire(Array(String))
    """Group ids."""


@struct
class DeletableGroupResult:
    group_id: str = wire(String)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, "3+", null="3+", default=None, ignorable=True)


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    results: tuple[DeletableGroupResult, ...] = wire(Array(DeletableGroupResult))

"""What the broker serves: one file per API, `SERVED` finds them by key.

A handler is a plain function of the broker and the call; its file's docstring says what each version changes. The
versions are those of Apache Kafka 4.3. Adding an API is one file here and one line below; `../LIMITS.md` lists what
is left out.
"""

from ottla.brokerlite.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.brokerlite.machines.core import Served

SERVED: dict[int, Served] = {
    0: Served(3, 13, produce.handle, advertised_from=0),
    1: Served(4, 18, fetch.handle),
    2: Served(1, 11, list_offsets.handle),
    3: Served(0, 13, metadata.handle),
    8: Served(2, 10, offset_commit.handle),
    9: Served(1, 10, offset_fetch.handle),
    10: Served(0, 6, find_coordinator.handle),
    11: Served(0, 9, join_group.handle),
    12: Served(0, 4, heartbeat.handle),
    13: Served(0, 5, leave_group.handle),
    14: Served(0, 5, sync_group.handle),
    15: Served(0, 6, describe_groups.handle),
    16: Served(0, 5, list_groups.handle),
    18: Served(0, 4, api_versions.handle),
    19: Served(2, 7, create_topics.handle),
    20: Served(1, 6, delete_topics.handle),
    22: Served(0, 5, init_producer_id.handle),
    23: Served(2, 4, offset_for_leader_epoch.handle),
    24: Served(0, 5, add_partitions_to_txn.handle),
    25: Served(0, 4, add_offsets_to_txn.handle),
    26: Served(0, 5, end_txn.handle),
    27: Served(1, 2, write_txn_markers.handle),
    28: Served(0, 5, txn_offset_commit.handle),
    32: Served(1, 4, describe_configs.handle),
    37: Served(0, 3, create_partitions.handle),
    42: Served(0, 2, delete_groups.handle),
    47: Served(0, 0, offset_delete.handle),
    61: Served(0, 0, describe_producers.handle),
    65: Served(0, 0, describe_transactions.handle),
    66: Served(0, 1, list_transactions.handle),
}
"""API key -> its versions and handler."""

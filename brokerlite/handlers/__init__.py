"""Handles requests: one file per API; `SERVED` finds it by the API key.

A handler is a plain function ``handle`` of the broker and the call; the docstring of its file says what each version
changes. The files are imported one by one once the broker is ready (`import_all`), or at the first earlier request.
The versions match Apache Kafka 4.3. Adding an API takes one file here and one line below, which also declares the
rights that the file asks for: a test compares both. `../LIMITS.md` lists the omissions.
"""

import functools
import importlib
import pkgutil
from collections.abc import Iterator

from ottla.acl.rights import (
    ALTER_CLUSTER,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CLUSTER_ACTION,
    CREATE_ON_CLUSTER,
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_ON_CLUSTER,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    DESCRIBE_TRANSACTIONAL_ID,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from ottla.brokerlite.machines.core import Handler, ServedApi


@functools.cache
def _imported(module: str) -> Handler:
    found: Handler = importlib.import_module(f"{__name__}.{module}").handle
    return found


def _in(module: str) -> Handler:
    """Return a handler that imports a module of this package when it is first called."""
    return lambda broker, call: _imported(module)(broker, call)


def import_all() -> Iterator[None]:
    """Import one more module with each step: a running broker must not depend on files that may be replaced."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
        yield


SERVED: dict[int, ServedApi] = {
    0: ServedApi(3, 13, _in("produce"), (WRITE_TOPIC, WRITE_TRANSACTIONAL_ID), advertised_from=0),
    1: ServedApi(4, 18, _in("fetch"), (CLUSTER_ACTION, READ_TOPIC)),
    2: ServedApi(1, 11, _in("list_offsets"), (DESCRIBE_TOPIC,)),
    3: ServedApi(0, 13, _in("metadata"), (CREATE_ON_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER, DESCRIBE_TOPIC)),
    8: ServedApi(2, 10, _in("offset_commit"), (READ_GROUP, READ_TOPIC)),
    9: ServedApi(1, 10, _in("offset_fetch"), (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
    10: ServedApi(0, 6, _in("find_coordinator"), (DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID)),
    11: ServedApi(0, 9, _in("join_group"), (READ_GROUP,)),
    12: ServedApi(0, 4, _in("heartbeat"), (READ_GROUP,)),
    13: ServedApi(0, 5, _in("leave_group"), (READ_GROUP,)),
    14: ServedApi(0, 5, _in("sync_group"), (READ_GROUP,)),
    15: ServedApi(0, 6, _in("describe_groups"), (DESCRIBE_GROUP,)),
    16: ServedApi(0, 5, _in("list_groups"), (DESCRIBE_CLUSTER, DESCRIBE_GROUP)),
    17: ServedApi(0, 1, _in("sasl_handshake"), ()),
    18: ServedApi(0, 4, _in("api_versions"), ()),
    19: ServedApi(2, 7, _in("create_topics"), (CREATE_ON_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS)),
    20: ServedApi(1, 6, _in("delete_topics"), (DELETE_ON_CLUSTER, DELETE_TOPIC, DESCRIBE_TOPIC)),
    21: ServedApi(0, 2, _in("delete_records"), (DELETE_TOPIC,)),
    22: ServedApi(0, 5, _in("init_producer_id"), (IDEMPOTENT_WRITE, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID)),
    23: ServedApi(2, 4, _in("offset_for_leader_epoch"), (CLUSTER_ACTION, DESCRIBE_TOPIC)),
    24: ServedApi(0, 5, _in("add_partitions_to_txn"), (CLUSTER_ACTION, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID)),
    25: ServedApi(0, 4, _in("add_offsets_to_txn"), (READ_GROUP, WRITE_TRANSACTIONAL_ID)),
    26: ServedApi(0, 5, _in("end_txn"), (WRITE_TRANSACTIONAL_ID,)),
    27: ServedApi(1, 2, _in("write_txn_markers"), (ALTER_CLUSTER, CLUSTER_ACTION)),
    28: ServedApi(0, 5, _in("txn_offset_commit"), (READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID)),
    29: ServedApi(1, 3, _in("describe_acls"), (DESCRIBE_CLUSTER,)),
    30: ServedApi(1, 3, _in("create_acls"), (ALTER_CLUSTER,)),
    31: ServedApi(1, 3, _in("delete_acls"), (ALTER_CLUSTER,)),
    32: ServedApi(
        1, 4, _in("describe_configs"), (DESCRIBE_CLUSTER_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_TOPIC_CONFIGS)
    ),
    33: ServedApi(0, 2, _in("alter_configs"), (ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS)),
    36: ServedApi(0, 2, _in("sasl_authenticate"), ()),
    37: ServedApi(0, 3, _in("create_partitions"), (ALTER_TOPIC,)),
    42: ServedApi(0, 2, _in("delete_groups"), (DELETE_GROUP,)),
    44: ServedApi(0, 1, _in("incremental_alter_configs"), (ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS)),
    47: ServedApi(0, 0, _in("offset_delete"), (DELETE_GROUP, READ_TOPIC)),
    50: ServedApi(0, 0, _in("describe_user_scram_credentials"), (DESCRIBE_CLUSTER,)),
    51: ServedApi(0, 0, _in("alter_user_scram_credentials"), (ALTER_CLUSTER,)),
    60: ServedApi(0, 2, _in("describe_cluster"), (DESCRIBE_CLUSTER,)),
    61: ServedApi(0, 0, _in("describe_producers"), (READ_TOPIC,)),
    65: ServedApi(0, 0, _in("describe_transactions"), (DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID)),
    66: ServedApi(0, 1, _in("list_transactions"), (DESCRIBE_TRANSACTIONAL_ID,)),
    68: ServedApi(0, 1, _in("consumer_group_heartbeat"), (DESCRIBE_TOPIC, READ_GROUP)),
    69: ServedApi(0, 1, _in("consumer_group_describe"), (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
    76: ServedApi(1, 1, _in("share_group_heartbeat"), (DESCRIBE_TOPIC, READ_GROUP)),
    77: ServedApi(1, 1, _in("share_group_describe"), (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
    78: ServedApi(1, 2, _in("share_fetch"), (READ_GROUP, READ_TOPIC)),
    79: ServedApi(1, 2, _in("share_acknowledge"), (READ_GROUP, READ_TOPIC)),
    90: ServedApi(0, 1, _in("describe_share_group_offsets"), (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
    91: ServedApi(0, 0, _in("alter_share_group_offsets"), (READ_GROUP, READ_TOPIC)),
    92: ServedApi(0, 0, _in("delete_share_group_offsets"), (DELETE_GROUP, READ_TOPIC)),
}
"""API key -> its versions, its handler, and the rights that it asks for."""

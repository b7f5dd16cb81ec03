"""Handles requests: one file per API; `SERVED` finds it by the API key.

A handler is a plain function ``handle`` of the broker and the call; the docstring of its file says what each version
changes. The files are imported one by one once the broker is ready (`import_all`), or at the first earlier request.
The versions match Apache Kafka 4.3. Adding an API takes one file here and one line below; `../LIMITS.md` lists the
omissions.
"""

import functools
import importlib
import pkgutil
from collections.abc import Iterator

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
    0: ServedApi(3, 13, _in("produce"), advertised_from=0),
    1: ServedApi(4, 18, _in("fetch")),
    2: ServedApi(1, 11, _in("list_offsets")),
    3: ServedApi(0, 13, _in("metadata")),
    8: ServedApi(2, 10, _in("offset_commit")),
    9: ServedApi(1, 10, _in("offset_fetch")),
    10: ServedApi(0, 6, _in("find_coordinator")),
    11: ServedApi(0, 9, _in("join_group")),
    12: ServedApi(0, 4, _in("heartbeat")),
    13: ServedApi(0, 5, _in("leave_group")),
    14: ServedApi(0, 5, _in("sync_group")),
    15: ServedApi(0, 6, _in("describe_groups")),
    16: ServedApi(0, 5, _in("list_groups")),
    17: ServedApi(0, 1, _in("sasl_handshake")),
    18: ServedApi(0, 4, _in("api_versions")),
    19: ServedApi(2, 7, _in("create_topics")),
    20: ServedApi(1, 6, _in("delete_topics")),
    21: ServedApi(0, 2, _in("delete_records")),
    22: ServedApi(0, 5, _in("init_producer_id")),
    23: ServedApi(2, 4, _in("offset_for_leader_epoch")),
    24: ServedApi(0, 5, _in("add_partitions_to_txn")),
    25: ServedApi(0, 4, _in("add_offsets_to_txn")),
    26: ServedApi(0, 5, _in("end_txn")),
    27: ServedApi(1, 2, _in("write_txn_markers")),
    28: ServedApi(0, 5, _in("txn_offset_commit")),
    32: ServedApi(1, 4, _in("describe_configs")),
    36: ServedApi(0, 2, _in("sasl_authenticate")),
    37: ServedApi(0, 3, _in("create_partitions")),
    42: ServedApi(0, 2, _in("delete_groups")),
    47: ServedApi(0, 0, _in("offset_delete")),
    50: ServedApi(0, 0, _in("describe_user_scram_credentials")),
    51: ServedApi(0, 0, _in("alter_user_scram_credentials")),
    61: ServedApi(0, 0, _in("describe_producers")),
    65: ServedApi(0, 0, _in("describe_transactions")),
    66: ServedApi(0, 1, _in("list_transactions")),
}
"""API key -> its versions and handler."""

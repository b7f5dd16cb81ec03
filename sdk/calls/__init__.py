"""Calls that end: administration and offset look-ups, retried until `api_timeout`.

Each is a function of the core, its arguments, and ``now``, and returns an `Outcome`. The modules are imported when they
are first used, because most clients read or write, and administer nothing.

task            `Task`: one call, with its deadline and its retries
fan_out         one call to many nodes
acls            create, describe and delete ACLs
topics          create, grow, configure, list, describe and delete topics
groups          list, describe and delete groups, their members and lag
offset_lookups  where logs begin and end, and offsets at a time
reads           the leader of a partition, and a single Fetch
transactions    list and describe transactions, abort hanging ones
resets          plans a reset of a group's offsets, and commits it

`Client` calls these functions, and so do the consumer's machines and Spark's readers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.sdk.calls import resets
    from ottla.sdk.calls.acls import create_acls, delete_acls, describe_acls
    from ottla.sdk.calls.groups import (
        commit_offsets,
        committed,
        delete_groups,
        delete_offsets,
        describe_groups,
        group_lags,
        list_groups,
    )
    from ottla.sdk.calls.offset_lookups import list_offsets, offsets, offsets_before
    from ottla.sdk.calls.reads import How, fetch_many, leader
    from ottla.sdk.calls.share_groups import (
        delete_share_offsets,
        describe_share_groups,
        reset_share_offsets,
        share_offsets,
    )
    from ottla.sdk.calls.topics import (
        brokers,
        configure_topic,
        create_partitions,
        create_topic,
        delete_topic,
        describe_topic,
        list_topics,
        listed_topics,
        topic_ids,
    )
    from ottla.sdk.calls.transactions import (
        abort_hanging_transaction,
        describe_producers,
        describe_transactions,
        fence_producers,
        find_hanging_transactions,
        list_transactions,
    )
    from ottla.sdk.calls.users import delete_credential, describe_users, set_credential

_HOMES = {
    "How": "reads",
    "abort_hanging_transaction": "transactions",
    "brokers": "topics",
    "commit_offsets": "groups",
    "committed": "groups",
    "configure_topic": "topics",
    "create_acls": "acls",
    "create_partitions": "topics",
    "create_topic": "topics",
    "delete_acls": "acls",
    "delete_credential": "users",
    "delete_groups": "groups",
    "delete_offsets": "groups",
    "delete_share_offsets": "share_groups",
    "delete_topic": "topics",
    "describe_acls": "acls",
    "describe_groups": "groups",
    "describe_producers": "transactions",
    "describe_share_groups": "share_groups",
    "describe_topic": "topics",
    "describe_transactions": "transactions",
    "describe_users": "users",
    "fence_producers": "transactions",
    "fetch_many": "reads",
    "find_hanging_transactions": "transactions",
    "group_lags": "groups",
    "leader": "reads",
    "list_groups": "groups",
    "list_offsets": "offset_lookups",
    "list_topics": "topics",
    "list_transactions": "transactions",
    "listed_topics": "topics",
    "offsets": "offset_lookups",
    "offsets_before": "offset_lookups",
    "reset_share_offsets": "share_groups",
    "set_credential": "users",
    "share_offsets": "share_groups",
    "topic_ids": "topics",
}

__all__ = [
    "How",
    "abort_hanging_transaction",
    "brokers",
    "commit_offsets",
    "committed",
    "configure_topic",
    "create_acls",
    "create_partitions",
    "create_topic",
    "delete_acls",
    "delete_credential",
    "delete_groups",
    "delete_offsets",
    "delete_share_offsets",
    "delete_topic",
    "describe_acls",
    "describe_groups",
    "describe_producers",
    "describe_share_groups",
    "describe_topic",
    "describe_transactions",
    "describe_users",
    "fence_producers",
    "fetch_many",
    "find_hanging_transactions",
    "group_lags",
    "leader",
    "list_groups",
    "list_offsets",
    "list_topics",
    "list_transactions",
    "listed_topics",
    "offsets",
    "offsets_before",
    "reset_share_offsets",
    "resets",
    "set_credential",
    "share_offsets",
    "topic_ids",
]


def __getattr__(name: str) -> object:
    if name == "resets":
        return import_module(f"{__name__}.resets")
    if home := _HOMES.get(name):
        found: object = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

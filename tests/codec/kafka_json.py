"""Our messages in the shape of Kafka's JSON: what the `*JsonConverter` classes, generated from its definitions, write.

Names are camel-case, bytes base64, a UUID base64 for URLs; a record set is only its size; a field is left out where
the version lacks it, and where it is tagged and has its default. Unknown tagged fields do not show.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any

from construct import Construct

from ottla.codec import wire

OTHER_NAMES = {
    "enable2pc": "enable2Pc",
    "kraft_version": "kRaftVersion",
    "kraft_version_feature": "kRaftVersionFeature",
}
"""Ours -> Kafka's, where the rule does not lead from the one to the other."""
Names = Mapping[tuple[str, str], str]
"""Names that differ for a while: (struct, our name) -> Kafka's."""
OLD_NAMES: Names = {
    ("TxnOffsetCommitRequest", "generation_id_or_member_epoch"): "generationId",
    ("StreamsGroupHeartbeatResponse", "acceptable_recovery_lag_legacy"): "acceptableRecoveryLag",
}
"""Names from before Kafka 4.4."""


def kafkas_name(name: str) -> str:
    """``leader_epoch`` -> ``leaderEpoch``."""
    return OTHER_NAMES.get(name) or re.sub("_(.)", lambda found: found[1].upper(), name)


def to_json(value: Any, node: Construct, names: Names = {}) -> Any:  # noqa: B006 it is only read
    """``value`` as Kafka would write it; ``node`` is the tree that it was parsed with."""
    if value is None:
        return None
    match node:
        case wire.Structure(cls=cls):
            present = list(node.members)
            present += [(name, each) for _, name, each, default in node.tagged or () if getattr(value, name) != default]
            fields = {}
            for name, each in present:
                key = names.get((cls.__name__, name)) or kafkas_name(name)
                inner = getattr(value, name)
                only_size = isinstance(each, wire.Window) and inner is not None
                fields[key + "SizeInBytes" * only_size] = to_json(inner, each, names)
            return fields
        case wire.Sequence(item=item):
            return [to_json(each, item, names) for each in value]
        case wire.Window():
            return len(value)
        case wire.Blob():
            return base64.b64encode(value).decode()
        case wire.Id():
            return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return value

"""ottla's messages in the shape of Kafka's JSON, as the `*JsonConverter` classes generated from its definitions write.

Names are camel-case, bytes base64, a UUID base64 for URLs. A record set is only its size. A field is left out where the
version lacks it, and where it is tagged and has its default. Unknown tagged fields are left out.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any

from construct import Construct

from ottla.codec import trees

Names = Mapping[tuple[str, str], str]
"""Names that do not follow the rule: (struct, ottla's name) -> Kafka's."""
NAMES: Names = {
    ("InitProducerIdRequest", "enable2pc"): "enable2Pc",
    ("KRaftVersionRecord", "kraft_version"): "kRaftVersion",
    ("Voter", "kraft_version_feature"): "kRaftVersionFeature",
    ("RequestHeader", "api_key"): "requestApiKey",  # in the header, Kafka says that it is the request's
    ("RequestHeader", "api_version"): "requestApiVersion",
}
OLD_NAMES: Names = {
    **NAMES,
    ("TxnOffsetCommitRequest", "generation_id_or_member_epoch"): "generationId",
    ("StreamsGroupHeartbeatResponse", "acceptable_recovery_lag_legacy"): "acceptableRecoveryLag",
}
"""Names before Kafka 4.4."""


def names_of(release: str) -> Names:
    return OLD_NAMES if release < "4.4" else NAMES


def kafkas_name(cls: type[Any], name: str, names: Names) -> str:
    """``leader_epoch`` -> ``leaderEpoch``."""
    return names.get((cls.__name__, name)) or re.sub("_(.)", lambda found: found[1].upper(), name)


def to_json(value: Any, node: Construct, names: Names = NAMES, *, records: bool = False) -> Any:
    """``value`` as Kafka would write it.

    Args:
        node: the tree that it was parsed with.
        names: the names of the release (`names_of`).
        records: write record sets as bytes, as Kafka reads them, though it does not write them.
    """
    if value is None:
        return None
    match node:
        case trees.Structure(cls=cls):
            present = list(node.members)
            present += [(name, each) for _, name, each, default in node.tagged or () if getattr(value, name) != default]
            fields = {}
            for name, each in present:
                key = kafkas_name(cls, name, names)
                inner = getattr(value, name)
                only_size = isinstance(each, trees.BlobView) and inner is not None and not records
                fields[key + "SizeInBytes" * only_size] = to_json(inner, each, names, records=records)
            return fields
        case trees.Sequence(item=item):
            return [to_json(each, item, names, records=records) for each in value]
        case trees.BlobView() if not records:
            return len(value)
        case trees.Blob():
            return base64.b64encode(value).decode()
        case trees.Id():
            return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return value

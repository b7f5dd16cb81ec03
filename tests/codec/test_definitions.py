"""Every declaration against Kafka's own definitions: 3.9, 4.3 and 4.4, in each version of a message that one knows.

The comparison covers names, their order, types, null, tags, flexible versions, and, where it matters, defaults and
ignorable fields. Intended deviations are in the list, with their reasons; a deviation that no longer exists must leave
the list.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from construct import Construct

from ottla.codec import trees, wire
from ottla.codec.apis import NAMES
from ottla.codec.wire import Array, Boolean, Int8, Int32, Int64, String, message, struct
from tests.codec import strategies
from tests.codec.definitions import Default, Definition, Field, definitions, read_definition
from tests.codec.kafka_json import kafkas_name, names_of

DEVIATIONS = {
    "RequestHeader.ClientId: default None; and Kafka: ''": "who has no name says none; only our constructor knows it",
    "ReadShareGroupStateSummaryResponse.Results.Partitions: Partition, ErrorCode, ErrorMessage, StateEpoch, "
    "LeaderEpoch, StartOffset; and Kafka: Partition, ErrorCode, ErrorMessage, StateEpoch, StartOffset": "so it was in "
    "3.9's early access",
}
"""Deviation -> reason; for deviating names see `kafka_json.NAMES`."""

OTHER_VERSIONS = {
    "RequestHeader": "version 0, without a client id, was ControlledShutdown's alone",
    "ShareAcknowledge": "version 0, defined in 3.9, was an early access of 4.0 and is gone",
    "ShareFetch": "version 0, defined in 3.9, was an early access of 4.0 and is gone",
    "ShareGroupDescribe": "version 0, defined in 3.9, was an early access of 4.0 and is gone",
    "ShareGroupHeartbeat": "version 0, defined in 3.9, was an early access of 4.0 and is gone",
}
"""Messages that Kafka has in more versions than ottla -> reason."""

NOT_DECLARED = {
    "ControlRecordTypeSchema": "ControlRecordKey is the same behind its version",
    "DefaultPrincipalData": "brokers and controllers send it to each other, in an Envelope",
    "ListClientMetricsResources": "3.9's name of ListConfigResources",
    "QuorumStateData": "a controller keeps it in a file of its own",
    "RemoteLogSegmentMetadataRecord": "tiered storage, within the brokers",
    "RemoteLogSegmentMetadataSnapshotRecord": "tiered storage, within the brokers",
    "RemoteLogSegmentMetadataUpdateRecord": "tiered storage, within the brokers",
    "RemotePartitionDeleteMetadataRecord": "tiered storage, within the brokers",
}
"""Messages that Kafka defines and ottla lacks -> reason; requests for controllers, or before KRaft, are left out."""

NOT_DEFINED = {
    "ControlRecordKey": "ControlRecordType.java",
    "OffsetIndexEntry": "OffsetIndex.java",
    "TimeIndexEntry": "TimeIndex.java",
    "StickyAssignorUserData": "StickyAssignor.java",
    "CooperativeStickyAssignorUserData": "CooperativeStickyAssignor.java",
    "AccessControlEntryRecord": "AccessControlEntryRecord.json, which is in no jar",
    "UserScramCredentialValue": "UserScramCredentialRecord.json, which is in no jar",
    "UserScramCredentialKey": "ours: Kafka's record has no key",
}
"""Messages without a definition in Kafka's jars -> where they come from."""


INTEGERS = {"b": "int8", "h": "int16", "H": "uint16", "l": "int32", "L": "uint32", "q": "int64"}
SIZED = ("string", "bytes", "records")
PLAIN = {trees.Float: "float64", trees.Bool: "bool", trees.Id: "uuid", trees.Text: "string", trees.BlobView: "records"}


def differences(definition: Definition, cls: type[Any]) -> Iterator[str]:
    """The differences between a declaration and a release's definition, in the versions that both have."""
    declared = wire.api(cls)
    for version in range(definition.versions.low, definition.versions.high + 1):
        if version in declared.versions:
            flexible = version in definition.flexible
            if flexible != (version in declared.flexible):
                yield f"{cls.__name__}: version {version} is{' not' * flexible} flexible"
                continue
            node = strategies.tree(cls, version)
            yield from Comparison(definition.release, version, flexible).struct(node, definition.fields, cls.__name__)


class Comparison:
    """Compares a tree with a definition, in one version."""

    def __init__(self, release: str, version: int, flexible: bool) -> None:
        self.release, self.version, self.flexible = release, version, flexible

    def struct(self, node: trees.Structure, fields: tuple[Field, ...], path: str) -> Iterator[str]:
        declared: dict[str, wire.Field] = {each.name: each for each in node.cls.__wire__}
        present = [each for each in fields if self.version in each.versions]
        tagged = {each.tag: each for each in present if self.version in each.tagged}
        plain = [each for each in present if self.version not in each.tagged]
        if len(node.members) != len(plain):
            ours = ", ".join(self.name(node, name) for name, _ in node.members)
            yield f"{path}: {ours}; and Kafka: {', '.join(each.name for each in plain)}"
            return
        for (name, child), field in zip(node.members, plain, strict=True):
            yield from self.field(node, declared[name], child, field, path)
        if node.known.keys() != tagged.keys():
            yield f"{path}: tags {sorted(node.known)}; and Kafka: {sorted(tag for tag in tagged if tag is not None)}"
            return
        for tag, (_, name, child, _) in node.known.items():
            yield from self.field(node, declared[name], child, tagged[tag], path)
        by_name = {self.name(node, name): each for name, each in declared.items()}
        for field in fields:
            if field not in present and (absent := by_name.get(field.name)):
                yield from self.default(absent, field, f"{path}.{field.name}")
                if absent.ignorable != field.ignorable:
                    yield f"{path}.{field.name}: {'' if absent.ignorable else 'not '}ignorable"

    def field(
        self, parent: trees.Structure, declared: wire.Field, node: Construct, field: Field, path: str
    ) -> Iterator[str]:
        path = f"{path}.{field.name}"
        if (name := self.name(parent, declared.name)) != field.name:
            yield f"{path}: called {name}"
        if declared.tag is not None or declared.default is not wire._REQUIRED:
            yield from self.default(declared, field, path)
        flexible = self.flexible if field.flexible is None else self.version in field.flexible
        theirs = f"[]{field.type}" if field.array else field.type
        if flexible and (field.array or field.type in SIZED):
            theirs = f"compact {theirs}"
        if self.version in field.null:
            theirs = f"nullable {theirs}"
        if (ours := described(node)) != theirs:
            yield f"{path}: {ours}; and Kafka: {theirs}"
            return
        inner = node.item if isinstance(node, trees.Sequence) else node
        if isinstance(inner, trees.Structure):
            yield from self.struct(inner, field.fields, path)
        elif field.array and isinstance(inner, trees.Sized) and (inner.compact != flexible or inner.null):
            yield f"{path}: elements {described(inner)}"

    def default(self, declared: wire.Field, field: Field, path: str) -> Iterator[str]:
        if (ours := self.plain(declared.absent_value)) != field.default:
            yield f"{path}: default {ours!r}; and Kafka: {field.default!r}"

    def plain(self, value: Any) -> Default:
        """A default of ottla's, in the form of Kafka's."""
        if not hasattr(value, "__wire__"):
            return value
        cls: Any = type(value)
        node = trees.tree(cls, self.version, self.flexible)
        return {self.name(node, each.name): self.plain(getattr(value, each.name)) for each in value.__wire__}

    def name(self, node: trees.Structure, name: str) -> str:
        """The name of a field of ottla's in this release."""
        name = kafkas_name(node.cls, name, names_of(self.release))
        return name[0].upper() + name[1:]


def described(node: Construct) -> str:
    """A node in the words of Kafka's definitions."""
    nullable = "nullable " if isinstance(node, trees.Sized | trees.Structure) and node.null else ""
    compact = "compact " if isinstance(node, trees.Sized) and node.compact else ""
    if isinstance(node, trees.Sequence):
        kind = f"[]{described(node.item).split()[-1]}"
    elif isinstance(node, trees.Structure):
        kind = "struct"
    elif isinstance(node, trees.Integer):
        kind = INTEGERS[node.fmtstr[1:]]
    else:
        kind = next((name for cls, name in PLAIN.items() if isinstance(node, cls)), "bytes")
    return nullable + compact + kind


def theirs(name: str) -> set[int]:
    """The versions of a message that any release knows."""
    return {v for each in definitions()[name] for v in range(each.versions.low, each.versions.high + 1)}


def api_of(name: str) -> str:
    return name.removesuffix("Request").removesuffix("Response")


@pytest.mark.slow
def test_every_declaration_is_as_kafka_defines_it() -> None:
    found = {
        difference
        for cls in strategies.MESSAGES
        for definition in definitions().get(cls.__name__, ())
        for difference in differences(definition, cls)
    }
    assert found == DEVIATIONS.keys()


@pytest.mark.slow
def test_every_version_is_declared() -> None:
    found = set()
    for cls in strategies.MESSAGES:
        if cls.__name__ not in NOT_DEFINED and theirs(cls.__name__) != set(strategies.VERSIONS[cls]):
            assert theirs(cls.__name__) - {0} == set(strategies.VERSIONS[cls]), cls
            found.add(api_of(cls.__name__))
    assert found == OTHER_VERSIONS.keys()


@pytest.mark.slow
def test_every_message_is_declared() -> None:
    ours = {cls.__name__ for cls in strategies.MESSAGES}
    internal = {api_of(name) for name, each in definitions().items() if is_request(each) and not is_for_clients(each)}
    missing = {api_of(name) for name in definitions().keys() - ours}
    assert missing - internal == NOT_DECLARED.keys()
    assert ours - definitions().keys() == NOT_DEFINED.keys()
    assert not internal & {api_of(name) for name in ours}


def is_request(each: tuple[Definition, ...]) -> bool:
    return each[0].kind == "request"


def is_for_clients(each: tuple[Definition, ...]) -> bool:
    return any("broker" in definition.listeners for definition in each)


@pytest.mark.slow
def test_keys_are_those_of_kafka() -> None:
    for key, name in NAMES.items():
        for suffix in ("Request", "Response"):
            assert {each.key for each in definitions()[name + suffix]} == {key}
    for cls in strategies.MESSAGES:
        if cls.__name__ not in NOT_DEFINED and wire.api(cls).key >= 0:
            assert {each.key for each in definitions()[cls.__name__]} == {wire.api(cls).key}, cls


# --- the comparison itself

DEFINITION = """
// How Kafka writes it.
{ "name": "Planted", "type": "data", "validVersions": "0-2", "flexibleVersions": "2+", "fields": [
  { "name": "Id", "type": "int32", "versions": "0+" },
  { "name": "Name", "type": "string", "versions": "1+", "nullableVersions": "2+", "default": "null",
    "ignorable": true },
  { "name": "Inner", "type": "[]Inner", "versions": "0+", "fields": [
    { "name": "Flag", "type": "bool", "versions": "0+" }
  ] },
  { "name": "Late", "type": "int64", "versions": "2+", "tag": 0, "taggedVersions": "2+", "default": "-1" }
] }
"""


@struct
class Inner:
    flag: bool = wire.wire(Boolean)


@struct
class OtherInner:
    flag: int = wire.wire(Int8)


def planted(flexible: str = "2+", **changes: Any) -> type[Any]:
    fields = {
        "id": wire.wire(Int32),
        "name": wire.wire(String, "1+", null="2+", default=None, ignorable=True),
        "inner": wire.wire(Array(Inner)),
        "late": wire.wire(Int64, "2+", default=-1, tag=0),
    } | changes
    return message(versions="0-2", flexible=flexible)(
        type("Planted", (), {"__annotations__": dict.fromkeys(fields, Any), **fields})
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"id": wire.wire(Int64)}, {"Planted.Id: int64; and Kafka: int32"}),
        ({"id": wire.wire(Int32, default=5)}, {"Planted.Id: default 5; and Kafka: 0"}),
        (
            {"name": wire.wire(String, "1+", null="1+", default=None, ignorable=True)},
            {"Planted.Name: nullable string; and Kafka: string"},
        ),
        (
            {"name": wire.wire(String, "1+", null="2+", default="", ignorable=True)},
            {"Planted.Name: default ''; and Kafka: None"},
        ),
        ({"name": wire.wire(String, "1+", null="2+", default=None)}, {"Planted.Name: not ignorable"}),
        (
            {"name": wire.wire(String, "2+", null="2+", default=None, ignorable=True)},
            {"Planted: Id, Inner; and Kafka: Id, Name, Inner"},
        ),
        ({"late": wire.wire(Int64, "2+", default=-1, tag=1)}, {"Planted: tags [1]; and Kafka: [0]"}),
        ({"late": wire.wire(Int64, "2+", default=0, tag=0)}, {"Planted.Late: default 0; and Kafka: -1"}),
        ({"late": wire.wire(Int64, "2+", default=-1)}, {"Planted: Id, Name, Inner, Late; and Kafka: Id, Name, Inner"}),
        ({"inner": wire.wire(Array(OtherInner))}, {"Planted.Inner.Flag: int8; and Kafka: bool"}),
        (
            {"inner": wire.wire(Array(Inner), null="2+")},
            {"Planted.Inner: nullable compact []struct; and Kafka: compact []struct"},
        ),
        ({"flexible": "1+"}, {"Planted: version 1 is flexible"}),
        ({"flexible": ""}, {"Planted: version 2 is not flexible"}),
    ],
)
def test_the_comparison_finds_what_is_planted(changes: dict[str, Any], expected: set[str]) -> None:
    assert set(differences(read_definition("4.4.0", DEFINITION), planted(**changes))) == expected

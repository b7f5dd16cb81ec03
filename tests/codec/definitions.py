"""Kafka's own definitions of its messages, read out of the jars that tests download.

Each is the JSON from which Kafka generates its classes. Kafka's clients/src/main/resources/common/message/README.md
explains the fields.
"""

import functools
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.codec.wire import NO_UUID, Versions
from tests.kafka import VERSION, classpath, jar

CLIENTS = {version: f"org.apache.kafka:kafka-clients:{version}" for version in ("3.9.2", "4.4.0")}
"""Releases that tests read in addition to the release of the broker that they start."""
ZEROS: dict[str, Any] = {"bool": False, "string": "", "bytes": b"", "records": None, "uuid": NO_UUID, "float64": 0.0}
"""The default of a field by its type; integers have 0."""
Default = Any
"""A default in plain Python; for a struct, a dict of its fields' defaults, by Kafka's names."""


@dataclass(frozen=True)
class Definition:
    """A message as one release of Kafka defines it."""

    name: str
    kind: str
    """``request``, ``response``, ``header``, ``data``, ``coordinator-key``, …"""
    release: str
    listeners: frozenset[str]
    """Which servers answer it: ``broker``, ``controller``."""
    key: int | None
    versions: Versions
    flexible: Versions
    fields: tuple["Field", ...]


@dataclass(frozen=True)
class Field:
    """One field of a message or of a struct in it."""

    name: str
    """With a capital first letter; Kafka writes it both ways."""
    type: str
    """``int32``, ``string``, …, ``struct``; for an array, the type of its elements."""
    array: bool
    versions: Versions
    null: Versions
    flexible: Versions | None
    """The flexible versions of the field, if they differ from the message's."""
    tag: int | None
    tagged: Versions
    ignorable: bool
    default: Default
    fields: tuple["Field", ...]
    """The fields of a struct."""


@functools.cache
def definitions() -> dict[str, tuple[Definition, ...]]:
    """Every message of Kafka by its name, as each release defines it."""
    found = defaultdict(list)
    for release, path in _jars():
        with zipfile.ZipFile(path) as opened:
            for name in opened.namelist():
                if re.search(r"(^|/)message/\w+\.json$", name):
                    definition = read_definition(release, opened.read(name).decode())
                    found[definition.name].append(definition)
    return {name: tuple(each) for name, each in found.items()}


def _jars() -> Iterator[tuple[str, Path]]:
    for release, artifact in CLIENTS.items():
        yield release, jar(artifact)
    for path in sorted(Path(classpath()).parent.glob(f"kafka-*-{VERSION}.jar")):
        yield VERSION, path


def read_definition(release: str, text: str) -> Definition:
    """Parse one of Kafka's files: JSON with comments."""
    spec = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    structs = {each["name"]: each["fields"] for each in spec.get("commonStructs", ())}
    return Definition(
        name=spec["name"],
        kind=spec["type"],
        release=release,
        listeners=frozenset(spec.get("listeners", ())),
        key=spec.get("apiKey"),
        versions=_versions(spec["validVersions"]),
        flexible=_versions(spec.get("flexibleVersions", "none")),
        fields=tuple(_field(each, structs) for each in spec.get("fields", ())),
    )


def _versions(text: str) -> Versions:
    return Versions("" if text == "none" else text)


def _field(spec: dict[str, Any], structs: dict[str, Any]) -> Field:
    kind = spec["type"].removeprefix("[]")
    array = spec["type"].startswith("[]")
    inner = tuple(_field(each, structs) for each in spec.get("fields") or structs.get(kind, ()))
    return Field(
        name=spec["name"][0].upper() + spec["name"][1:],
        type="struct" if kind[0].isupper() else kind,
        array=array,
        versions=_versions(spec.get("versions") or spec["taggedVersions"]),
        null=_versions(spec.get("nullableVersions", "none")),
        flexible=_versions(spec["flexibleVersions"]) if "flexibleVersions" in spec else None,
        tag=spec.get("tag"),
        tagged=_versions(spec.get("taggedVersions", "none")),
        ignorable=spec.get("ignorable", False) in (True, "true"),
        default=_default(spec.get("default"), kind, array, inner),
        fields=inner,
    )


def _default(text: Any, kind: str, array: bool, inner: tuple[Field, ...]) -> Default:
    if text == "null":
        return None
    if array:
        return ()
    if kind[0].isupper():
        return {each.name: each.default for each in inner}
    if text is None or text == "":
        return ZEROS.get(kind, 0)
    if kind == "bool":
        return str(text).lower() == "true"
    if kind == "float64":
        return float(text)
    return text if kind == "string" else int(str(text), 0)

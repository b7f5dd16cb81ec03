"""The rules for the files in `codec/apis/`: APIs are found by key, have Kafka's names, and explain every version."""

import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from inspect import getmodule
from types import ModuleType
from typing import Any

import pytest
from construct import Construct

from ottla.codec import apis, trees, wire
from ottla.codec.apis import APIS, NAMES, ApiMessages
from tests.codec import strategies

API = pytest.mark.parametrize("key", APIS, ids=NAMES.get)
VERSION = re.compile(r"^    ([\d, -]+) \(.+\)(?:$|: )", re.MULTILINE)


def module_of(messages: ApiMessages) -> ModuleType:
    module = getmodule(messages.request)
    assert module is not None
    return module


def test_every_file_is_in_the_table_and_every_entry_has_a_file() -> None:
    files = {each.name for each in pkgutil.iter_modules(apis.__path__)}
    assert files == {module_of(each).__name__.rpartition(".")[2] for each in APIS.values()}
    assert list(NAMES) == sorted(NAMES)


@API
def test_a_request_and_its_response_agree(key: int) -> None:
    name, request, response = APIS[key]
    assert (request.__name__, response.__name__) == (f"{name}Request", f"{name}Response")
    asked, answered = wire.api(request), wire.api(response)
    assert asked.key == answered.key == key
    assert (asked.versions.text, asked.flexible.text) == (answered.versions.text, answered.flexible.text)


@API
def test_a_file_begins_with_its_name_and_explains_every_version_once(key: int) -> None:
    name, request, _ = APIS[key]
    text = module_of(APIS[key]).__doc__ or ""
    assert re.match(rf"{name} \(key {key}\): .+\.\n", text), "the first line describes the API"
    _, _, versions = text.partition("\nVersions:\n")
    explained: list[int] = []
    for entry in VERSION.findall(versions):
        for part in entry.split(", "):
            low, _, high = part.partition("-")
            explained += range(int(low), int(high or low) + 1)
    known = wire.api(request).versions
    assert explained == list(range(known.low, known.high + 1))


def test_a_key_that_no_client_uses_is_absent_like_in_any_mapping() -> None:
    assert 4 not in APIS
    assert APIS.get(4) is None
    with pytest.raises(KeyError):
        APIS[4]
    assert len(APIS) == len(list(APIS)) == len(NAMES)


def test_an_api_is_imported_when_it_is_first_asked_for() -> None:
    script = """
import sys
from ottla.codec import apis
def loaded(): return [name for name in sys.modules if name.startswith("ottla.codec.apis.")]
assert 12 in apis.APIS and not loaded()
assert apis.APIS[12].name == "Heartbeat" and loaded() == ["ottla.codec.apis.heartbeat"]
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@API
def test_every_struct_of_a_file_is_used_by_its_messages(key: int) -> None:
    messages = APIS[key]
    declared = {each for each in vars(module_of(messages)).values() if hasattr(each, "__wire__")}
    used: set[Any] = set()
    for cls in (messages.request, messages.response):
        for version in strategies.VERSIONS[cls]:
            used |= set(structs_in(strategies.tree(cls, version)))
    assert declared == used


def structs_in(node: Construct) -> Iterator[type[Any]]:
    if isinstance(node, trees.Sequence):
        yield from structs_in(node.item)
    elif isinstance(node, trees.Structure):
        yield node.cls
        for inner in [each for _, each in node.members] + [each.node for each in node.tagged or ()]:
            yield from structs_in(inner)

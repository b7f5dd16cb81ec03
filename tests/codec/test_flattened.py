"""The programs that are flattened in advance are those of the construct trees, and using them imports no construct."""

import subprocess
import sys
from typing import Any

import pytest

from ottla.codec import flatten, wire
from ottla.codec.ops import Op, Program
from ottla.codec.program import program
from tests.codec import strategies
from tests.patience import HUNG
from tools import faces, flattened


def plain(program: Program | None) -> Any:
    """A program as plain values, because two programs are never equal."""
    return program and (
        program.cls,
        [(name, plain_op(op)) for name, op in program.fields],
        program.tagged and [(each.tag, each.name, plain_op(each.op), each.default) for each in program.tagged],
        program.absent,
    )


def plain_op(op: Op | None) -> Any:
    return op and (op.code, op.null, op.least, op.length, op.longest, plain_op(op.item), plain(op.program))


def test_every_program_that_is_read_from_its_text_is_that_of_its_tree() -> None:
    for cls, version in (*strategies.EVERY_VERSION, *strategies.OLD):
        hashable: Any = cls
        tree = flatten.struct(hashable, version, wire.is_flexible(cls, version))
        assert plain(program(hashable, version)) == plain(tree)


@pytest.mark.skipif(not faces.RUFF.exists(), reason="ruff lays out what is made")
def test_the_texts_are_those_of_all_declarations() -> None:
    assert flattened.PATH.read_text() == flattened.written(), "a message has changed: make flattened"


ALL = """
import sys
from ottla.codec import frames, wire
from ottla.codec.apis import APIS
from ottla.codec.program import program

for api in APIS.values():
    for cls in api.request, api.response:
        versions = wire.api(cls).versions
        for version in range(versions.low, versions.high + 1):
            program(cls, version)
print(len(APIS), "construct" in sys.modules)
"""


def test_no_message_of_an_api_needs_construct() -> None:
    done = subprocess.run([sys.executable, "-c", ALL], capture_output=True, text=True, check=True, timeout=HUNG)
    count, imported = done.stdout.split()
    assert int(count) > 70 and imported == "False"

"""The machine in C neither leaks references nor drops too many: after any amount of work, all counts are as before.

A `Job` is all work with one message, with success and with errors, over and over. After each round these must be the
same: the references to all objects that the work shares (constants, classes, defaults, its own input), the blocks that
Python has allocated, and the memory of the process, which includes the allocations of C. For the loops over records,
`test_record_engines.py` does the same.
"""

import gc
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ottla.codec import build, engine, parse, wire
from ottla.errors import DecodeError, EncodeError
from tests.codec import strategies

pytestmark = pytest.mark.skipif(engine != "c", reason="the codec runs in Python, which counts its references itself")

STATM = Path("/proc/self/statm")
ROUNDS = 10
"""Other code may change a count now and then, but not by so much and in one direction in each round."""
GOOD, BAD = 50, 20
"""The number of repetitions in a round; a leak changes a count by that much."""


@dataclass
class Job:
    """Work to repeat.

    Attributes:
        good: calls that succeed; their results are dropped.
        bad: calls that must raise an error of the codec.
        shared: objects whose references are counted.
    """

    good: list[Callable[[], object]]
    bad: list[Callable[[], object]]
    shared: list[object]

    def do(self, good: int, bad: int) -> None:
        """Call all good work so many times, and all bad work so many times."""
        for work in self.good:
            for _ in range(good):
                work()
        for work in self.bad:
            for _ in range(bad):
                try:
                    work()
                except (DecodeError, EncodeError):
                    continue
                raise AssertionError(f"{work} raised no error")


def counted(job: Job) -> "array[int]":
    """References to shared objects, Python's blocks, and memory pages where the system reports them, in an array."""
    gc.collect()
    constants = (None, True, False, (), b"", "", wire.NO_UUID, wire.NO_TAGS, DecodeError, EncodeError, memoryview)
    counts = array("q", (sys.getrefcount(each) for each in (*constants, *job.shared)))
    counts.append(sys.getallocatedblocks())
    counts.append(int(STATM.read_text().split()[1]) if STATM.exists() else 0)
    return counts


class Failing:
    """Its `__index__` fails."""

    def __index__(self) -> int:
        raise ZeroDivisionError


def structs(value: Any) -> Iterator[Any]:
    """A message and every struct in it."""
    if hasattr(value, "__wire__"):
        yield value
        for each in value.__wire__:
            yield from structs(getattr(value, each.name))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from structs(each)


def build_with(message: Any, version: int, holder: Any, name: str, wrong: object) -> bytes:
    """Build ``message`` while an attribute of one of its structs has another value."""
    right = getattr(holder, name)
    setattr(holder, name, wrong)
    try:
        return build(message, version)
    finally:
        setattr(holder, name, right)


def misfits(message: Any, version: int) -> Iterator[tuple[Any, str, object]]:
    """Wrong values for the fields of ``message`` and of all structs in it: the struct, the name, the value."""
    for holder in structs(message):
        yield holder, wire.UNKNOWN_TAGS, {1 << 40: b""}
        for each in holder.__wire__:
            if version not in each.versions:
                continue
            yield holder, each.name, object()
            match getattr(holder, each.name):
                case int():
                    yield holder, each.name, Failing()
                    yield holder, each.name, 1 << 70
                case tuple() as items:
                    yield holder, each.name, [*items, object()]


def job_with(cls: type[Any], version: int) -> Job:
    node = strategies.tree(cls, version)
    full, nulls, least = (make(node) for make in (strategies.example, strategies.nulls, strategies.least))
    data, short = build(full, version), build(least, version)
    inputs: list[wire.Buffer] = [data, short, bytearray(data), memoryview(data), memoryview(b"x" + data)[1:]]
    good: list[Callable[[], object]] = [
        *(partial(parse, cls, version, each) for each in inputs),
        *(partial(build, each, version) for each in (full, nulls, least)),
        lambda: build(parse(cls, version, data)[0], version),
        lambda: list(structs(parse(cls, version, data)[0])),
    ]
    cuts = {0, 1, len(data) // 3, len(data) // 2, len(data) - 1}
    bad: list[Callable[[], object]] = [
        *(partial(parse, cls, version, data[:cut]) for cut in cuts if 0 <= cut < len(data)),
        *(partial(build_with, full, version, *misfit) for misfit in misfits(full, version)),
    ]
    shared: list[object] = [*inputs, full, nulls, least]
    for struct in structs(full):
        shared.append(type(struct))
        for each in struct.__wire__:
            shared += (each.name, each.absent_value, getattr(struct, each.name))
    return Job(good, bad, shared)


# One message in thirty here, and every second one in `make test`.
MESSAGES = [
    pytest.param(*case, marks=[] if at % 30 == 0 else [pytest.mark.deep])
    for at, case in enumerate(strategies.ENDS)
    if at % 2 == 0
]


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "version"), MESSAGES, ids=strategies.named)
def test_messages_parsed_and_built_well_and_badly_leave_nothing(cls: type[Any], version: int) -> None:
    job = job_with(cls, version)
    job.do(20, 20)  # now all caches are filled
    totals = [counted(job)]
    leaks: list[list[int]] = []
    for _ in range(ROUNDS):
        job.do(GOOD, BAD)
        totals.append(counted(job))
        changes = [[now - before for before, now in pairwise(column)] for column in zip(*totals, strict=True)]
        leaks = [each for each in changes if min(each) >= BAD or max(each) <= -BAD]
        if not leaks:
            break
    assert not leaks

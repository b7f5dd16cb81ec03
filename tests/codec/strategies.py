"""Hypothesis strategies, and whole examples, for any declared message: made of its tree, so a new API needs none."""

import functools
import importlib
import pkgutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from construct import Construct
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ottla.codec import trees, wire

PACKAGES = ("apis", "stored")


def _modules() -> Iterator[str]:
    yield from ("frames", "consumer_protocol")
    for package in PACKAGES:
        path = importlib.import_module(f"ottla.codec.{package}").__path__
        yield from (f"{package}.{found.name}" for found in pkgutil.iter_modules(path))


def _declared(names: Iterable[str]) -> Iterator[type[Any]]:
    """The message classes of modules."""
    for name in names:
        module = importlib.import_module(f"ottla.codec.{name}")
        for member in vars(module).values():
            if isinstance(member, type) and hasattr(member, "__api__") and member.__module__ == module.__name__:
                yield member


def _versions(messages: list[type[Any]]) -> dict[type[Any], range]:
    return {cls: range(wire.api(cls).versions.low, wire.api(cls).versions.high + 1) for cls in messages}


MESSAGES = list(_declared(_modules()))
"""Requests, responses, headers, and stored messages."""
VERSIONS = _versions(MESSAGES)
EVERY_VERSION = [(cls, version) for cls, versions in VERSIONS.items() for version in versions]
ENDS = [(cls, version) for cls, versions in VERSIONS.items() for version in dict.fromkeys((versions[0], versions[-1]))]
SAMPLE = ENDS[3::10]
OLD = [
    (cls, version)
    for cls, versions in _versions(list(_declared(["kafka07", "message_sets"]))).items()
    for version in versions
]
"""Messages of other protocols and formats, for which Kafka has no definitions."""


def parameters(cases: Iterable[tuple[type[Any], int]]) -> Callable[[Any], Any]:
    """Parametrize ``cls`` and ``version`` of a test; most cases run only in `make deep`, because they are many."""
    quick = (*SAMPLE, *OLD)
    marked = [pytest.param(*case, marks=[] if case in quick else [pytest.mark.deep]) for case in cases]
    return pytest.mark.parametrize(("cls", "version"), marked, ids=named)


def examples(count: int) -> Callable[[Any], Any]:
    """The settings of a test on generated values that runs for many messages: few examples, the same in each run."""
    return settings(
        max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )


def named(case: object) -> str:
    """For pytest's ids."""
    return case.__name__ if isinstance(case, type) else f"v{case}"


def tree(cls: type[Any], version: int) -> trees.Structure:
    hashable: Any = cls
    return trees.tree(hashable, version, version in wire.api(cls).flexible)


def messages(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Any message of ``cls`` that can be built at ``version``."""
    return values(tree(cls, version))


@functools.cache
def values(node: Construct) -> st.SearchStrategy[Any]:
    """Any value of ``node``."""
    match node:
        case trees.Integer(signed=signed, length=length):
            return integers(8 * length, signed)
        case trees.ZigZag(bits=bits):
            return integers(bits, True)
        case trees.Float():
            return st.floats(
                allow_nan=False, allow_infinity=False
            )  # NaN is unequal to itself, and JSON has no infinity
        case trees.Bool():
            return st.booleans()
        case trees.Id():
            return st.uuids()
        case trees.Text():
            return _or_null(node, st.text("aé漢\0😀", max_size=5))
        case trees.BlobView():
            return _or_null(node, st.binary(max_size=5).map(memoryview))
        case trees.Blob():
            return _or_null(node, st.binary(max_size=5))
        case trees.Sequence(item=item):
            return _or_null(node, st.lists(values(item), max_size=2).map(tuple))
        case trees.Structure(cls=cls, members=members, tagged=tagged):
            fields = {name: values(each) for name, each in members}
            if tagged is not None:
                fields |= {each.name: st.just(each.default) | values(each.node) for each in tagged}
                known = {each.tag for each in cls.__wire__}  # Kafka refuses tags that it knows in other versions only
                unknown = st.integers(0, 1 << 20).filter(lambda tag: tag not in known)
                fields[wire.UNKNOWN_TAGS] = st.just({}) | st.dictionaries(unknown, st.binary(max_size=4), max_size=2)
            return _or_null(node, st.builds(cls, **fields))
    raise TypeError(f"no strategy for {node!r}")


EDGES = (0, -1, 1, 2**7 - 1, 2**7, 2**8 - 1, 2**15 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)


def integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    edges = [each for each in EDGES if low <= each <= high]
    return st.sampled_from([*edges, low]) | st.integers(low, high)


def _or_null(node: Any, strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy if node.null else strategy


def example(node: Construct) -> Any:
    """A value of ``node`` without nulls, empty values or defaults."""
    match node:
        case trees.Integer() | trees.ZigZag():
            return 7
        case trees.Float():
            return 7.5
        case trees.Bool():
            return True
        case trees.Id():
            return uuid.UUID(int=7)
        case trees.Text():
            return "seven"
        case trees.BlobView():
            return memoryview(b"seven")
        case trees.Blob():
            return b"seven"
        case trees.Sequence(item=item):
            return (example(item),)
        case trees.Structure(cls=cls, members=members, tagged=tagged):
            fields = {name: example(each) for name, each in members}
            if tagged is not None:
                fields |= {each.name: example(each.node) for each in tagged}
                fields[wire.UNKNOWN_TAGS] = {77: b"seven"}
            return cls(**fields)
    raise TypeError(f"no example for {node!r}")


def nulls(node: Construct) -> Any:
    """A value of ``node`` in which every nullable part is null, and no other part has its default."""
    match node:
        case trees.Sized(null=True) | trees.Structure(null=True):
            return None
        case trees.Sequence(item=item):
            return (nulls(item),)
        case trees.Structure(cls=cls, members=members, tagged=tagged):
            fields = {name: nulls(each) for name, each in members}
            return cls(**fields | {each.name: nulls(each.node) for each in tagged or ()})
    return example(node)


def least(node: Construct) -> Any:
    """The value of ``node`` that takes the fewest bytes."""
    match node:
        case trees.Sized(null=True) | trees.Structure(null=True):
            return None
        case trees.Integer() | trees.ZigZag():
            return 0
        case trees.Float():
            return 0.0
        case trees.Bool():
            return False
        case trees.Id():
            return wire.NO_UUID
        case trees.Text():
            return ""
        case trees.BlobView():
            return memoryview(b"")
        case trees.Blob():
            return b""
        case trees.Sequence():
            return ()
        case trees.Structure(cls=cls, members=members):
            return cls(**{name: least(each) for name, each in members})
    raise TypeError(f"no least value for {node!r}")

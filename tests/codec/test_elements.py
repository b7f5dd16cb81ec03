"""The number of elements in a request, counted without parsing, and compared with the parsed message."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec import trees
from ottla.codec.apis import APIS
from ottla.codec.elements import has_more_elements
from ottla.codec.frames import build_request, parse_request
from ottla.errors import DecodeError, OttlaError
from tests.codec import strategies

REQUESTS = [(cls, version) for api in APIS.values() for cls in (api.request,) for version in strategies.VERSIONS[cls]]
SAMPLE = REQUESTS[::30]


def frame_of(message: Any, version: int) -> bytes:
    return build_request(message, version, 7, "client")[4:]


def elements(value: Any, node: Any) -> int:
    """The elements of all arrays in ``value``, and its tagged fields."""
    match node:
        case trees.Sequence(item=item) if value is not None:
            return len(value) + sum(elements(each, item) for each in value)
        case trees.Structure(members=members, tagged=tagged) if value is not None:
            sent = [each for each in tagged or () if getattr(value, each.name) != each.default]
            within = sum(elements(getattr(value, name), each) for name, each in members)
            within += sum(1 + elements(getattr(value, each.name), each.node) for each in sent)
            return within + (len(value.unknown_tags) if tagged is not None else 0)
    return 0


def assert_counted(frame: bytes, count: int) -> None:
    assert not has_more_elements(frame, count)
    assert not count or has_more_elements(frame, count - 1)


def test_the_elements_of_every_request_are_counted() -> None:
    for cls, version in REQUESTS:
        node = strategies.tree(cls, version)
        message = strategies.example(node)
        assert_counted(frame_of(message, version), elements(message, node))


@pytest.mark.parametrize(("cls", "version"), SAMPLE, ids=strategies.named)
@given(st.data())
@strategies.examples(10)
def test_the_elements_of_any_request_are_counted(cls: type[Any], version: int, data: st.DataObject) -> None:
    message = data.draw(strategies.messages(cls, version))
    assert_counted(frame_of(message, version), elements(message, strategies.tree(cls, version)))


def test_what_breaks_off_or_is_nonsense_is_left_to_the_parser() -> None:
    rng = random.Random(1)
    for cls, version in SAMPLE:
        frame = frame_of(strategies.example(strategies.tree(cls, version)), version)
        for end in range(len(frame)):
            assert not has_more_elements(frame[:end], 100)
        for _ in range(20):
            damaged = bytearray(frame)
            damaged[rng.randrange(8, len(frame))] = rng.randrange(256)
            try:
                count = elements(parse_request(damaged).message, strategies.tree(cls, version))
            except (DecodeError, OttlaError):
                has_more_elements(damaged, 100)  # may return either, and must not raise
            else:
                assert not has_more_elements(damaged, max(count, 100))


@pytest.mark.parametrize("fill", [b"\xff", b"\x80", b"\0"])
def test_bytes_without_sense_cost_little(fill: bytes) -> None:
    for cls, version in SAMPLE:
        header = frame_of(strategies.example(strategies.tree(cls, version)), version)[:16]
        has_more_elements(header + fill * 2**20, 10)


def test_an_api_that_is_not_known_has_no_elements() -> None:
    assert not has_more_elements(b"\x7f\xff\0\0" + bytes(100), 0)
    assert not has_more_elements(b"", 0)

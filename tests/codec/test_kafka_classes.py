"""Generated values, both ways, between ottla and the classes that Kafka 3.9, 4.3 and 4.4 generate."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from construct import Construct
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec import build, parse
from ottla.errors import BY_CODE
from tests.codec import strategies
from tests.codec.definitions import CLIENTS, definitions
from tests.codec.kafka_classes import KafkaMessages
from tests.codec.kafka_json import names_of, to_json
from tests.kafka import VERSION

pytestmark = pytest.mark.slow

EARLY_ACCESS = {("3.9.2", "ReadShareGroupStateSummaryResponse")}
"""Messages that a release had in another form, before they were final."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaMessages]:
    with KafkaMessages() as messages:
        yield messages


def test_the_table_of_errors_is_that_of_kafka(kafka: KafkaMessages) -> None:
    ours = {(each.code, each.name, each.retriable, each.stale_metadata) for each in BY_CODE.values()}
    theirs = {release: set(kafka.errors(release)) - {(0, "NONE", False, False)} for release in (*CLIENTS, VERSION)}
    assert ours == theirs["4.4.0"]
    assert all(each <= ours for each in theirs.values())


def releases(cls: type[Any], version: int) -> list[str]:
    """The releases that know this version of the message."""
    known = (each.release for each in definitions().get(cls.__name__, ()) if version in each.versions)
    return [release for release in known if (release, cls.__name__) not in EARLY_ACCESS]


def compare(kafka: KafkaMessages, value: Any, version: int) -> None:
    """Kafka reads ottla's bytes, and ottla reads Kafka's."""
    cls = type(value)
    tree = strategies.tree(cls, version)
    ours = build(value, version)
    for release in releases(cls, version):
        names = names_of(release)
        read, again = kafka.read(release, cls.__name__, version, ours)
        assert read == to_json(value, tree, names)
        assert again == ours
        theirs = kafka.build(release, cls.__name__, version, to_json(value, tree, names, records=True))
        parsed, end = parse(cls, version, theirs)
        assert end == len(theirs)
        assert to_json(parsed, tree, records=True) == to_json(value, tree, records=True)
        assert build(parsed, version) == theirs


EACH = strategies.parameters(strategies.EVERY_VERSION)


@EACH
@given(data=st.data())
@strategies.examples(3)
def test_generated_values(kafka: KafkaMessages, cls: type[Any], version: int, data: st.DataObject) -> None:
    compare(kafka, data.draw(strategies.messages(cls, version)), version)


@EACH
@pytest.mark.parametrize("corner", [strategies.least, strategies.nulls, strategies.example])
def test_corners(kafka: KafkaMessages, corner: Callable[[Construct], Any], cls: type[Any], version: int) -> None:
    compare(kafka, corner(strategies.tree(cls, version)), version)

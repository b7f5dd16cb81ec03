"""A block of the wrong kind is refused with advice, for each class that is used as a block."""

import traceback
from contextlib import ExitStack
from typing import Any

import pytest

import ottla
import ottla.aio
import ottla.sync
from ottla.codec._loops import Record as PythonRecord
from ottla.codec.records import Record
from ottla.sdk import sync as faces
from ottla.sdk.blocks import AsyncBlock, BlockingBlock

BLOCKS = ("Client", "Producer", "Consumer", "Transaction", "Transform", "TransformTransaction")


@pytest.mark.parametrize("connect", [ottla.connect, ottla.aio.connect])
def test_with_is_answered_with_async_with_and_the_blocking_client(connect: Any) -> None:
    says = r"^a Client needs 'async with', not 'with'; .* ottla\.sync\.connect$"
    with pytest.raises(TypeError, match=says), ExitStack() as stack:
        stack.enter_context(connect("localhost"))


async def test_async_with_is_answered_with_with_and_the_other_clients() -> None:
    blocking: Any = ottla.sync.connect("localhost")
    with pytest.raises(TypeError, match=r"^a Client of ottla\.sync needs 'with', .*ottla\.connect, .*ottla\.aio\.conn"):
        async with blocking:
            raise AssertionError("the block began")


@pytest.mark.parametrize("connect", [ottla.connect, ottla.aio.connect, ottla.sync.connect])
def test_a_misspelt_method_is_answered_with_the_right_one(connect: Any) -> None:
    client = connect("localhost")
    with pytest.raises(AttributeError, match=r"^a Client has no create_topics: do you mean create_topic[?]$"):
        client.create_topics()
    with pytest.raises(AttributeError, match=r"^'Client' object has no attribute 'entirely_else'$"):
        client.entirely_else()
    assert not hasattr(client, "_missing")


@pytest.mark.parametrize(
    ("name", "attribute", "says"),
    [
        ("Client", "close", "the end of its block closes it"),
        ("Client", "groups", "do you mean list_groups?"),
        ("Client", "grow_topic", "do you mean create_partitions?"),
        ("Producer", "produce", "do you mean send_soon, or send, which waits"),
        ("Producer", "send_and_wait", "do you mean send?"),
        ("Producer", "begin_transaction", "do you mean the block of transaction()?"),
        ("Transaction", "abort", "an error that ends its block aborts it"),
        ("TransformTransaction", "abort", "an error that ends its block aborts it"),
        ("Consumer", "getone", "do you mean a loop over the consumer, or poll?"),
        ("Consumer", "subscribe", "give the topics to client.consumer"),
        ("Consumer", "close", "the end of its block closes it"),
        ("Batch", "value", "its records have: for record in batch"),
        ("Batch", "key", "its records have: for record in batch"),
        ("Batch", "offset", "its records have: for record in batch"),
    ],
)
@pytest.mark.parametrize("face", [ottla, faces])
def test_a_name_of_another_client_is_answered_with_what_there_is(
    face: Any, name: str, attribute: str, says: str
) -> None:
    cls = getattr(face, name)
    with pytest.raises(AttributeError) as raised:
        getattr(cls.__new__(cls), attribute)
    assert str(raised.value).startswith(f"a {name} has no {attribute}: {says}")
    assert not hasattr(cls, attribute)


@pytest.mark.parametrize("cls", [Record, PythonRecord])
def test_a_record_says_that_its_batch_has_the_topic(cls: Any) -> None:
    record = cls(7, -1, None, b"value")
    for name in ("topic", "partition"):
        with pytest.raises(AttributeError, match=f"^a Record has no {name}: its batch has it$"):
            getattr(record, name)
    assert cls.__match_args__ == ("offset", "timestamp", "key", "value", "headers")


def test_python_adds_no_advice_of_its_own() -> None:
    client: Any = ottla.connect("localhost")
    for name in ("create_topics", "grow_topic"):
        with pytest.raises(AttributeError) as raised:
            getattr(client, name)
        assert traceback.format_exception_only(raised.value)[-1].count("mean") == 1


def test_a_missing_argument_names_the_call_and_no_class() -> None:
    client: Any = ottla.connect("localhost")
    with pytest.raises(
        TypeError, match=r"^transform\(\): missing a required (keyword-only )?argument: 'transactional_id'"
    ):
        client.transform("t", group="g")


@pytest.mark.parametrize("name", ["Producer", "Transaction"])
def test_a_class_with_a_hot_method_has_no_getattr(name: str) -> None:
    """Python 3.11 would create a bound method for each call."""
    assert not any(hasattr(getattr(module, name), "__getattr__") for module in (ottla, faces))


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_advises(name: str) -> None:
    plain, blocking = getattr(ottla, name), getattr(faces, name)
    assert issubclass(plain, AsyncBlock) and not issubclass(plain, BlockingBlock)
    assert issubclass(blocking, BlockingBlock) and not issubclass(blocking, AsyncBlock)

"""A block of the wrong kind is refused with advice, for each class that is used as a block."""

from contextlib import ExitStack
from typing import Any

import pytest

import ottla
import ottla.aio
import ottla.sync
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


@pytest.mark.parametrize("name", ["Producer", "Transaction"])
def test_a_class_with_a_hot_method_has_no_getattr(name: str) -> None:
    """Python 3.11 would create a bound method for each call."""
    assert not any(hasattr(getattr(module, name), "__getattr__") for module in (ottla, faces))


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_advises(name: str) -> None:
    plain, blocking = getattr(ottla, name), getattr(faces, name)
    assert issubclass(plain, AsyncBlock) and not issubclass(plain, BlockingBlock)
    assert issubclass(blocking, BlockingBlock) and not issubclass(blocking, AsyncBlock)

"""Advice for misused objects: `with` where `async with` is needed, the reverse, and wrong names of methods.

Python's own errors name neither the right block nor, to code that catches them, the right method. The methods here
exist at run time only, so type checkers refuse such code as before.
"""

from typing import TYPE_CHECKING

from ottla.misnamed import Misnamed
from ottla.unknown_options import nearest

_RECORDS = "its records have: for record in batch"


class Suggesting:
    """Suggests a public attribute whose name is near.

    Not a base of `Producer` and `Transaction`: if a class has `__getattr__`, Python 3.11 creates a bound method for
    each call, which costs 80 ns, a quarter of a `send_soon`. For these, Python's own traceback suggests the name.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            its = {each: value for cls in reversed(type(self).__mro__) for each, value in vars(cls).items()}
            if name not in its and not name.startswith("_"):
                public = [each for each in its if not (each.startswith("_") or isinstance(its[each], Misnamed))]
                if near := nearest(name, public):
                    Misnamed.refuse(type(self), name, f"do you mean {near}?")
            return object.__getattribute__(self, name)  # raises Python's error, or the one of a property


class ClientNames:
    """Names of other clients for a client."""

    __slots__ = ()

    if not TYPE_CHECKING:
        close = Misnamed("the end of its block closes it")
        groups = Misnamed("do you mean list_groups?")
        grow_topic = Misnamed("do you mean create_partitions?")


class ProducerNames:
    """Names of other clients for a producer."""

    __slots__ = ()

    if not TYPE_CHECKING:
        produce = Misnamed("do you mean send_soon, or send, which waits until the record is stored?")
        send_and_wait = Misnamed("do you mean send? It waits until the record is stored")
        begin_transaction = Misnamed("do you mean the block of transaction()? Its end commits, and an error aborts")
        init_transactions = Misnamed("the producer does it when its block begins")
        commit_transaction = Misnamed("the end of the block of transaction() commits")
        abort_transaction = Misnamed("an error that ends the block of transaction() aborts it")
        start = Misnamed("the beginning of its block opens it")
        stop = Misnamed("the end of its block flushes and closes it")


class TransactionNames:
    """Names of other clients for a transaction."""

    __slots__ = ()

    if not TYPE_CHECKING:
        commit = Misnamed("the end of its block commits it")
        abort = Misnamed("an error that ends its block aborts it")


class ConsumerNames:
    """Names of other clients for a consumer."""

    __slots__ = ()

    if not TYPE_CHECKING:
        getone = Misnamed("do you mean a loop over the consumer, or poll? Both give batches of records")
        getmany = Misnamed("do you mean poll, or a loop over the consumer? Both give batches of records")
        subscribe = Misnamed("give the topics to client.consumer, as in client.consumer('orders')")
        close = Misnamed("the end of its block closes it")
        start = Misnamed("the beginning of its block opens it")
        stop = Misnamed("the end of its block closes it")


class BatchNames:
    """Names of a record for a batch."""

    __slots__ = ()

    if not TYPE_CHECKING:
        value = Misnamed(_RECORDS)
        key = Misnamed(_RECORDS)
        offset = Misnamed(_RECORDS)
        timestamp = Misnamed(_RECORDS)
        headers = Misnamed(_RECORDS)


class AsyncBlock:
    """A base of the asynchronous classes."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __enter__(self):
            raise TypeError(
                f"a {type(self).__name__} needs 'async with', not 'with'; for blocking code make the client with "
                "ottla.sync.connect"
            )

        def __exit__(self, *_):
            """Python looks it up before it calls `__enter__`."""


class BlockingBlock:
    """A base of the blocking classes."""

    __slots__ = ()

    if not TYPE_CHECKING:

        async def __aenter__(self):
            raise TypeError(
                f"a {type(self).__name__} of ottla.sync needs 'with', not 'async with'; under trio make the client "
                "with ottla.connect, on asyncio with ottla.aio.connect"
            )

        async def __aexit__(self, *_):
            """Python looks it up before it calls `__aenter__`."""

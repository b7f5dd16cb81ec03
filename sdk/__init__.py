"""The client: `connect`, producers, consumers, administration; and `discovery` by zeroconf.

This is the map of the folder, in the order in which a record passes through it:

    client.py, aio.py    `connect` for trio and for asyncio. `Client` checks what it is given and makes the others.
    sync/                `connect` for code that blocks, and the faces, made of those that await.
    producer.py          the face of a producer: each call is one line that asks the core and waits.
    drivers/             sockets, clocks and loops. `driver.py`: the calls of a user; `stepper.py`: the steps that carry
                         out what the core asks for. `trio.py`, `asyncio.py`: how each loop waits, dials and rings;
                         `threads.py`, `callers.py`: in a thread, for code that blocks; `blocking.py`: for Spark.
    steps.py, gate.py    what a call waits for (a generator); and that a client does one thing at a time, with a user's
                         code outside of it.
    core.py              `ClientCore`, the whole client as one machine: events go in, actions come out (`events.py`).
    produce/             `core.py`: all that a producer's calls decide. Then prepare, turns, placing, room, accumulator,
                         batches, sender, results, deliveries; `identity.py` has producer id and epoch.
    transaction/         `core.py`: one transaction, from its block's beginning to the end. `transactions.py`: the
                         producer's id and epoch, and EndTxn; its states are a table (`states.py`). `joining.py`,
                         `offsets.py`: what takes part. `transform.py`: transactions about the batches of a consumer.
    cluster/             nodes, topics, leaders, coordinators: what is known, and how it is kept fresh.
    connection/          `pool.py`: a connection for each node and channel. `connection.py`: its table of states, with
                         handshake and pipeline. `versions.py`: everything about versions of APIs.
    consume/             `core.py`: all that a consumer's calls decide. `fetcher.py` lists its parts, from a position to
                         a batch; committing, notices and leaving are what a group adds.
    group/               a member of a group (`member.py`, a table of states), its commits, the assignors.
    consumer.py          the face of a consumer, and `Batch`.
    transform.py         the face of consume, transform, produce.

Beside it:

    calls/, admin.py     calls that end, such as `create_topic`; and what they return.
    options.py, arguments.py, kafka_config.py     what users give, and how it is checked.
    outcome.py, timers.py                         what machines wait with.
    logs.py, metrics.py, prometheus.py            what can be seen from outside.
    mdns.py, discovery.py                         zeroconf.

Rules:
- No rule of the protocol stands in a face or a driver. In the folders other than `drivers` nothing knows a loop, a
  clock, a socket or chance: time is ``now``, chance is ``rng``.
- Each file says at its top what it promises, and from which of Kafka's files or KIPs that is.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.sdk.client import Client, connect

__all__ = ["Client", "connect"]


def __getattr__(name: str) -> object:
    # Lazily, because the machines and the blocking driver must not bring trio with them.
    if name in __all__:
        from ottla.sdk import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

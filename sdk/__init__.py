"""The client: `connect`, producers, consumers, administration; and `discovery` by zeroconf.

This is the map of the folder, in the order in which it handles a record:

    client.py, aio.py    `connect` for trio and for asyncio. `Client` checks its arguments and creates the others.
    sync/                `connect` for blocking code, and its faces, generated from the asynchronous ones.
    producer.py          the face of a producer: each call is one line that asks the core and waits.
    drivers/             sockets, clocks and loops. `driver.py`: the user's calls; `pump.py`: carries out the actions
                         that the core asks for. `trio.py`, `asyncio.py`: how each loop waits, dials and wakes up;
                         `threads.py`, `callers.py`: in a thread, for blocking code; `blocking.py`: for Spark.
    steps.py, flow.py    how a call waits (it is a generator); and the same within a machine.
    gate.py              the rule that a client does one thing at a time, and runs the user's code outside of it.
    core.py              `ClientCore`, the whole client as one machine: events go in, actions come out (`events.py`).
    produce/             `core.py`: all that a producer's calls decide. Then preparation, turns, placing, room,
                         accumulator, batches, producer_queues, sender, results, deliveries, producer_leaving;
                         `producer_identity.py`: its id.
                         `append.py`: the base class that has `send_soon`, and the append of most records, in C.
    transaction/         `core.py`: one transaction, from the beginning of its block to the end.
                         `producer_transactions.py`: the producer's id, epoch and transactions; its states are
                         a table (`states.py`). `participants.py`, `offsets.py`: adding partitions and offsets.
                         `transaction_end.py`: EndTxn. `transform.py`: transactions of a consumer's batches.
    cluster/             nodes, topics, leaders, coordinators: the client's view of the cluster, and its refreshes.
    connection/          `connections.py`: one for each node and channel. `connection.py`: its table of states, with
                         handshake and pipeline. `versions.py`: everything about versions of APIs.
    consume/             `core.py`: all that a consumer's calls decide. `reading/fetcher.py` lists its parts, from a
                         position to a batch; `assignment/` serves members of a group.
    group/               members of a group (`classic_member.py`, `consumer_group_member.py`), their states as tables,
                         their commits, the assignors.
    consumer.py          the face of a consumer, and `Batch`.
    transform.py         the face of a consume-transform-produce loop.

Beside it:

    calls/, admin.py     administrative calls such as `create_topic`, and the classes that they return.
    options.py, arguments.py, kafka_config.py     the user's options and arguments, and how they are checked.
    outcome.py, timers.py                         what machines wait with.
    missing_rights.py                             errors of denied clients: the right they need, and how to grant it.
    logs.py, metrics.py, prometheus.py            monitoring.
    mdns.py, discovery.py                         zeroconf.

Rules:
- A face or a driver holds no rule of the protocol. Code outside `drivers` knows no loop, clock, socket or randomness:
  the time is ``now``, the source of randomness is ``rng``.
- Each file states its promises at its top, and the file of Kafka or the KIP from which they come.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.sdk.client import Client, connect

__all__ = ["Client", "connect"]


def __getattr__(name: str) -> object:
    # Lazily, because the machines and the blocking driver must not bring trio with them.
    if name in __all__:
        from ottla.sdk import client

        found: object = getattr(client, name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The client for blocking code such as scripts, Django and threads: `connect`, and everything else as under trio.

    import ottla.sync

    with ottla.sync.connect("localhost:9092") as client, client.producer() as producer:
        producer.send("events", b"hello", key=b"k")

Names, errors and promises are those of `ottla.connect`: the machines are the same, and the classes are generated from
the asynchronous ones (tools/faces.py). While your thread computes, the client's own thread sends, reads, and sends
heartbeats.

Rules:
- Any number of threads may share a client and a producer. One thread at a time reads a consumer; any number of threads
  may ask a share consumer for records.
- Callbacks (``on_delivery``, interceptors' acknowledgements and commits) are called in the threads that use the client,
  one at a time: within a call that waits, or within the next call. `flush` and the end of the block return after the
  callbacks of the records that they waited for. A listener's methods are called in the thread that asks for a batch.
- A custom assignor, log handlers, and a partitioner that had to wait for its topic are called in the client's own
  thread: they must not wait.
- Ctrl-C, or another exception from a signal handler, is raised by the call at once, and cancels the call.
- After a fork the client works only in the parent process.
"""

from ottla.sdk.drivers.threads import ThreadDriver
from ottla.sdk.options import ClientOptions
from ottla.sdk.signatures import declared_by
from ottla.sdk.sync.client import Client
from ottla.sdk.sync.consumer import Batch, Consumer, ConsumerInterceptor, RebalanceListener
from ottla.sdk.sync.producer import Producer, Transaction
from ottla.sdk.sync.share_consumer import ShareConsumer, SharedRecord
from ottla.sdk.sync.transform import Batches, Transform, TransformTransaction

__all__ = [
    "Batch",
    "Batches",
    "Client",
    "Consumer",
    "ConsumerInterceptor",
    "Producer",
    "RebalanceListener",
    "ShareConsumer",
    "SharedRecord",
    "Transaction",
    "Transform",
    "TransformTransaction",
    "connect",
]


@declared_by(ClientOptions)
def connect(options: ClientOptions) -> Client:
    """A client for blocking code; use it as ``with ottla.sync.connect("localhost:9092") as client``.

    Raises:
        ConfigurationError: an option or an address is invalid; raised at once.
        BrokerUnreachable: no broker answered within ``connect_timeout``; names the addresses tried. Raised on entering
            the block.
    """
    return Client(options, ThreadDriver)

"""No client: a program on trio that sends a prepared request over and over, and awaits each response.

Its processor time is the lower bound; everything above it is the cost of a client. Brokers that check sequence numbers
refuse it.
"""

import trio

from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.frames import FrameReader, build_request
from ottla.codec.records import Record, build_batch
from tests.bench.clients.task import Acknowledgements, Figures, Task

VERSION = 9
_CHUNK = 65536


def lone(task: Task) -> Figures:
    receipts = Acknowledgements(task)

    async def run() -> None:
        host, port = task.bootstrap.rsplit(":", 1)
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            frames, request = FrameReader(), _request(task)
            for sent in receipts.one_by_one():
                await stream.send_all(request)
                while not list(frames.feed(await stream.receive_some(_CHUNK))):
                    pass
                receipts.of(sent)

    trio.run(run)
    return receipts.figures()


def _request(task: Task) -> bytes:
    batch = build_batch([Record(offset=0, timestamp=0, key=None, value=task.value)])
    partition = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name=task.names[0], partition_data=(partition,))
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=(topic,))
    return build_request(request, VERSION, 1, "bench")

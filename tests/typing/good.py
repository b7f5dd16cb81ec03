"""A user's program: type checkers must accept every line of it, and `test_typing.py` also runs it."""

import trio

import ottla
from ottla.codec import (
    BatchBuilder,
    Columns,
    Compression,
    Message,
    Record,
    RecordBatch,
    Records,
    build,
    engine,
    parse,
    read_batches,
    read_record_set,
    unknown_tags,
)
from ottla.codec.apis.fetch import FetchResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.codec.frames import FrameReader, build_request, parse_request, parse_response
from ottla.codec.partitioners import PARTITIONERS, Partitioner
from ottla.errors import BrokerError, DecodeError, EncodeError
from ottla.testing import Broker


def ask(topics: list[str]) -> bytes:
    request = MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in topics))
    request.allow_auto_topic_creation = False
    return build_request(request, 12, correlation_id=1, client_id=None)


def leaders(frame: bytes) -> dict[tuple[str, int], int]:
    _, response = parse_response(MetadataResponse, 12, frame)
    racks: list[str] = [broker.rack.upper() for broker in response.brokers if broker.rack is not None]
    assert sorted(racks) == racks
    found: dict[tuple[str, int], int] = {}
    for topic in response.topics:
        for partition in topic.partitions:
            if topic.name is not None:
                found[topic.name, partition.partition_index] = partition.leader_id
    return found


def round_trip(message: MetadataRequest) -> MetadataRequest:
    data: bytes = build(message, 9)
    read, end = parse(MetadataRequest, 9, memoryview(data))
    assert end == len(data)
    for tag, value in unknown_tags(read).items():
        print(f"tag {tag + 1}: {value.hex()}")
    return read


def values(response: FetchResponse) -> list[bytes]:
    found: list[bytes] = []
    for topic in response.responses:
        for partition in topic.partitions:
            for batch in read_batches(partition.records or b""):
                found += [record.value for record in batch.records() if record.value is not None]
    return found


def batched(records: list[Record]) -> RecordBatch:
    builder = BatchBuilder()
    index: int = builder.append(1_700_000_000_000, b"key", None, (("name", b"value"),))
    builder.extend(records)
    [batch] = read_batches(
        builder.build(compression=Compression.LZ4, producer_id=7, producer_epoch=0, base_sequence=index)
    )
    return batch


def of_any_age(data: bytes) -> Columns:
    parts: list[Records] = []
    for each in read_record_set(data):
        print(each.magic if isinstance(each, Message) else each.base_sequence)
        parts.append(each.records())
    return Columns.of(parts)


def again(columns: Columns) -> bytes:
    builder = BatchBuilder()
    first: int = builder.extend_columns(columns)
    builder.extend_columns(columns.timestamps, columns.keys, columns.values, columns.headers)
    return builder.build(base_offset=first)


def summed(columns: Columns) -> int:
    validity, offsets, data = columns.values.buffers
    assert validity is None or len(validity) > 0
    return len(offsets) + len(data) + sum(columns.offsets)


def placed(key: bytes, name: str = "murmur2") -> int:
    place: Partitioner = PARTITIONERS[name]
    return place(key, 6)


def explained(frame: bytes) -> str:
    try:
        request = parse_request(frame)
    except DecodeError as error:
        return f"{error.path} at byte {error.offset + 1}"
    except (EncodeError, BrokerError) as error:
        return str(error)
    return f"{request.header.correlation_id + 1}: {type(request.message).__name__}"


async def shared(client: ottla.Client) -> list[bytes | None]:
    done: list[bytes | None] = []
    async with client.share_consumer("jobs", group="workers", max_records=10) as jobs:
        async for record in jobs:
            async with record:
                done.append(record.value)
            if record.delivery_count > 1 and record.lock_left < 5:
                await record.renew()
                record.reject_soon()
        await jobs.flush()
    return done


async def copied(broker: Broker, topic: str) -> int:
    count = 0
    async with ottla.connect(broker.bootstrap) as client, client.producer(compression="lz4") as producer:
        receipt = await producer.send(topic, b"value", key=b"key", headers=[("name", None)])
        async with client.consumer(topic, start="beginning") as consumer:
            async for batch in consumer:
                for record in batch:
                    count += len(record.value or b"")
                if batch.partition == receipt.partition:
                    break
    return count


def test_a_record(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("events", partitions=3)
    assert trio.run(copied, ottla_broker, "events") == 5


def main() -> None:
    assert round_trip(MetadataRequest(topics=None)).topics is None
    [frame] = FrameReader().feed(ask(["events"]))
    assert explained(frame) == "2: MetadataRequest"
    batch = batched([Record(0, 0, b"a", b"b")])
    assert summed(batch.columns()) > 0
    assert len(of_any_age(again(batch.columns()))) == 4
    assert engine in ("c", "python")
    assert placed(b"key") < 6


if __name__ == "__main__":
    main()

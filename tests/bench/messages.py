"""Messages: ottla's machines and interpreted construct against kafka-python and kio, on the same bytes."""

import functools
import io
import uuid
from collections.abc import Callable
from typing import Any

import kio.schema.fetch.v12.response
import kio.schema.metadata.v12.response
import kio.schema.produce.v9.request
from kafka.protocol.consumer import FetchResponse as KafkaPythonFetchResponse
from kafka.protocol.metadata import MetadataResponse as KafkaPythonMetadataResponse
from kafka.protocol.producer import ProduceRequest as KafkaPythonProduceRequest
from kio.serial import entity_reader, entity_writer

from ottla.codec.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.codec.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.bench.case import Case
from tests.codec.engines import ENGINES

METADATA = MetadataResponse(
    brokers=tuple(
        MetadataResponseBroker(node_id=node, host=f"broker-{node}.example.com", port=9092, rack=f"rack-{node % 3}")
        for node in range(6)
    ),
    cluster_id="bench",
    controller_id=1,
    topics=tuple(
        MetadataResponseTopic(
            error_code=0,
            name=f"topic-{topic:03}",
            topic_id=uuid.UUID(int=topic + 1 << 80),
            is_internal=False,
            partitions=tuple(
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=partition,
                    leader_id=partition % 6,
                    leader_epoch=5,
                    replica_nodes=(1, 2, 3),
                    isr_nodes=(1, 2, 3),
                    offline_replicas=(),
                )
                for partition in range(12)
            ),
        )
        for topic in range(50)
    ),
)
FETCH = FetchResponse(
    responses=tuple(
        FetchableTopicResponse(
            topic=f"topic-{topic}",
            partitions=tuple(
                PartitionData(
                    partition_index=partition,
                    error_code=0,
                    high_watermark=10**6,
                    last_stable_offset=10**6,
                    log_start_offset=0,
                    aborted_transactions=None,
                    records=bytes(6000),
                )
                for partition in range(4)
            ),
        )
        for topic in range(2)
    )
)
PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=30_000,
    topic_data=(
        TopicProduceData(
            name="topic",
            partition_data=tuple(PartitionProduceData(index=partition, records=bytes(3000)) for partition in range(4)),
        ),
    ),
)


def _cases(message: Any, version: int, kafka_python: Any, kio_class: Any) -> list[Case]:
    cls = type(message)
    data = ENGINES["construct"].build(message, version)
    kafka_python_message = kafka_python.decode(data, version=version)
    kafka_python_message._header = None  # otherwise it cannot be encoded
    read, write = entity_reader(kio_class), entity_writer(kio_class)
    kio_message = read(data, 0)[0]

    def kio_build() -> bytes:
        write(buffer := io.BytesIO(), kio_message)
        return buffer.getvalue()

    def case(what: str, ours: dict[str, Callable[[], Any]], theirs: dict[str, Callable[[], Any]]) -> Case:
        return Case(
            name=f"{what} {cls.__name__} v{version}, {len(data):,} bytes",
            unit="messages",
            ours={name: functools.partial(_repeat, work) for name, work in ours.items()},
            theirs={name: functools.partial(_repeat, work) for name, work in theirs.items()},
        )

    builds = {
        "kafka-python": lambda: bytes(kafka_python_message.encode(version=version)),
        "kio": kio_build,
    }
    assert all(build() == data for build in builds.values())
    return [
        case(
            "parse",
            {name: functools.partial(engine.parse, cls, version, data) for name, engine in _fastest_first()},
            {
                "kafka-python": lambda: kafka_python.decode(data, version=version),
                "kio": lambda: read(data, 0),
            },
        ),
        case(
            "build",
            {name: functools.partial(engine.build, message, version) for name, engine in _fastest_first()},
            builds,
        ),
    ]


def _fastest_first() -> list[tuple[str, Any]]:
    return list(reversed(ENGINES.items()))


def _repeat(work: Callable[[], Any]) -> int:
    for _ in range(10):
        work()
    return 10


CASES = [
    *_cases(METADATA, 12, KafkaPythonMetadataResponse, kio.schema.metadata.v12.response.MetadataResponse),
    *_cases(FETCH, 12, KafkaPythonFetchResponse, kio.schema.fetch.v12.response.FetchResponse),
    *_cases(PRODUCE, 9, KafkaPythonProduceRequest, kio.schema.produce.v9.request.ProduceRequest),
]

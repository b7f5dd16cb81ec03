"""Produce requests: one batch for each of some partitions.

Rules:
- A broker before Kafka 0.11 gets message sets of magic 1.
- A batch is not copied into its request: see `ottla.codec.frames.build_request_parts`.

Source: ProduceRequestData.json.
"""

from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.errors import EncodeError
from ottla.sdk.options import broker_timeout_ms
from ottla.sdk.produce.batches import PartitionQueue, ProducerBatch
from ottla.sdk.produce.options import ProducerOptions, compressors
from ottla.sdk.produce.sender_metrics import SenderMetrics

Batches = dict[ProducerBatch, PartitionQueue]


class ProduceRequests:
    """Builds the requests of a producer; ``timeout`` in seconds."""

    def __init__(self, options: ProducerOptions, timeout: float, metrics: SenderMetrics) -> None:
        self._options, self._timeout, self._metrics = options, timeout, metrics
        self._compression, self._topic_compression = compressors(options.compression, options.compression_level)

    def build(
        self, batches: Batches, version: int, unsendable: dict[ProducerBatch, EncodeError], now: float
    ) -> ProduceRequest:
        """Build a request; adds batches that this version cannot express to ``unsendable``, with the error."""
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch, queue in batches.items():
            topic, partition = queue.place
            compression, level = self._topic_compression.get(topic, self._compression)
            try:
                data = queue.encode(batch, version, compression, level)
            except EncodeError as error:
                unsendable[batch] = error
                continue
            self._metrics.batch_size.record(len(data), now)
            self._metrics.compression_rate.record(len(data) / batch.size, now)
            self._metrics.count("byte", topic, len(data), now)
            topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=data))
        return ProduceRequest(
            transactional_id=self._options.transactional_id,
            acks=self._options.required_acks,
            timeout_ms=broker_timeout_ms(self._timeout),
            topic_data=tuple(TopicProduceData(name=name, partition_data=tuple(data)) for name, data in topics.items()),
        )

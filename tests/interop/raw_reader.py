"""The contents of a topic, read with only a socket and the codec: committed records, or all."""

from collections.abc import Iterator, Sequence

from ottla.codec.apis.fetch import AbortedTransaction, PartitionData
from ottla.codec.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.records import RecordBatch, read_batches
from ottla.codec.stored.control import ABORT, parse_control
from tests.brokerlite.machine import fetching
from tests.brokerlite.peer import Peer
from tests.interop.lines import Received
from tests.patience import HUNG

_LATEST, _READ_COMMITTED = -1, 1


class RawReader:
    """A connection to a broker that leads all partitions."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(":")
        self._peer = Peer(int(port), host, timeout=HUNG)

    def committed(self, topic: str) -> list[Received]:
        """The committed records of a topic, up to its last stable offsets; each partition in order."""
        return [record for index in self._partitions(topic) for record in self._read(topic, index, isolation_level=1)]

    def uncommitted(self, topic: str) -> list[Received]:
        """All records of a topic; each partition in order."""
        return [record for index in self._partitions(topic) for record in self._read(topic, index, isolation_level=0)]

    def end(self, topic: str, partition: int, isolation_level: int = _READ_COMMITTED) -> int:
        """The last stable offset, or the high watermark."""
        asked = ListOffsetsPartition(partition_index=partition, timestamp=_LATEST)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation_level, topics=(ListOffsetsTopic(name=topic, partitions=(asked,)),)
        )
        (answer,) = self._peer.ask(request, 7).topics[0].partitions
        assert answer.error_code == 0, answer
        return int(answer.offset)

    def is_open(self, topic: str, partition: int) -> bool:
        """Whether the partition has an open transaction."""
        return self.end(topic, partition) < self.end(topic, partition, 0)

    def _partitions(self, topic: str) -> list[int]:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
        (answer,) = self._peer.ask(request, 9).topics
        assert answer.error_code == 0, answer
        return sorted(each.partition_index for each in answer.partitions)

    def _read(self, topic: str, partition: int, *, isolation_level: int) -> Iterator[Received]:
        end = self.end(topic, partition, isolation_level)
        offset = 0
        while offset < end:
            request = fetching(offset, topic=topic, partitions=(partition,), isolation_level=isolation_level)
            data: PartitionData = self._peer.ask(request).responses[0].partitions[0]
            assert data.error_code == 0, data
            batches = list(read_batches(data.records or b""))
            assert batches, f"nothing to read at {offset} of {topic}-{partition}, which ends at {end}"
            for batch in _without_aborted(batches, data.aborted_transactions or ()):
                for record in batch.records():
                    if record.offset >= offset:
                        yield Received(partition, record.offset, record.timestamp, record.key, record.value)
            offset = batches[-1].last_offset + 1

    def close(self) -> None:
        self._peer.close()

    def __enter__(self) -> "RawReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _without_aborted(batches: Sequence[RecordBatch], aborted: Sequence[AbortedTransaction]) -> Iterator[RecordBatch]:
    """The batches with users' records, without aborted transactions.

    Args:
        aborted: transactions with records here, each from its first offset up to the next marker of its producer.
    """
    to_come = sorted((each.first_offset, each.producer_id) for each in aborted)
    open_ones: set[int] = set()
    for batch in batches:
        while to_come and to_come[0][0] <= batch.last_offset:
            open_ones.add(to_come.pop(0)[1])
        if batch.control:
            (record,) = batch.records()
            marker = parse_control(record.key, record.value)
            assert marker is not None
            if marker.type == ABORT:
                open_ones.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in open_ones):
            yield batch

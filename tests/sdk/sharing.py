"""A share consumer of ottla's; the test plays the coordinator and the leaders."""

import uuid
from collections.abc import Sequence
from typing import Any

from ottla.codec.apis import share_acknowledge, share_fetch
from ottla.codec.apis.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.codec.apis.share_fetch import ShareFetchRequest, ShareFetchResponse
from ottla.codec.apis.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.codec.records import Record, build_batch, rebased
from ottla.errors import AcknowledgementFailed, BrokerError
from ottla.sdk.options import Options
from ottla.sdk.share.core import ShareConsumerCore
from ottla.sdk.share.locked_record import LockedRecord
from ottla.sdk.share.options import ShareConsumerOptions
from ottla.sdk.steps import Steps
from tests.sdk.calling import Call
from tests.sdk.coordinator import Coordinator

T_ID = uuid.UUID(int=101)
SHARE_APIS = {76: (1, 1), 78: (1, 2), 79: (1, 2)}
LOCK = 30.0


def batch(base: int, *values: bytes) -> bytes:
    """A record batch at this offset."""
    return bytes(rebased(build_batch([Record(0, 0, None, each) for each in values]), base, 0))


def numbered(first: int, last: int) -> bytes:
    """A batch whose values are the offsets."""
    return batch(first, *(b"%d" % each for each in range(first, last + 1)))


class Sharing:
    """One share consumer of topic ``t``, which has three partitions."""

    def __init__(
        self,
        *,
        served: dict[int, tuple[int, int]] | None = None,
        joins: bool = True,
        leaders: dict[tuple[str, int], int] | None = None,
        client: Options | None = None,
        **options: Any,
    ) -> None:
        self.world = Coordinator({"t": 3}, client or Options(), more=SHARE_APIS if served is None else served)
        self.world.ids["t"] = T_ID
        self.world.leaders |= leaders or {}
        self.world.racks |= dict.fromkeys((leaders or {}).values())
        self.core = ShareConsumerCore(self.world.core, ("t",), ShareConsumerOptions(group="g", **options))
        self._asked: list[Call[Any]] = []
        """The garbage collector would end other calls."""
        self.entered: Call[None] = self.call(self.core.enter())
        self.world.run()
        assert self.entered.go_on().over
        if joins:
            self.world.run()
            self.assign(0)

    def call(self, steps: Steps[Any]) -> Call[Any]:
        """Begin a call, as a user's."""
        return Call(self.world.core, steps, lambda: self.world.now, self.world.run)

    # -- the coordinator ---------------------------------------------------------------------------------------------

    @property
    def beat(self) -> ShareGroupHeartbeatRequest:
        """The only heartbeat without an answer."""
        return self.world.asked(ShareGroupHeartbeatRequest)

    def assign(self, *partitions: int, epoch: int = 1, topic: uuid.UUID = T_ID) -> None:
        some = (TopicPartitions(topic_id=topic, partitions=partitions),) if partitions else ()
        self.confirm(epoch, Assignment(topic_partitions=some))

    def confirm(self, epoch: int = 1, assignment: Assignment | None = None) -> None:
        """Answer the heartbeat."""
        answer = ShareGroupHeartbeatResponse(
            error_code=0, member_epoch=epoch, heartbeat_interval_ms=5000, assignment=assignment
        )
        self.world.answer(self.beat, answer)

    def refuse_beat(self, error: type[BrokerError]) -> None:
        answer = ShareGroupHeartbeatResponse(error_code=error.code, member_epoch=0, heartbeat_interval_ms=0)
        self.world.answer(self.beat, answer)

    # -- the leaders -------------------------------------------------------------------------------------------------

    @property
    def fetch(self) -> ShareFetchRequest:
        """The only ShareFetch without an answer."""
        return self.world.asked(ShareFetchRequest)

    @property
    def fetches(self) -> list[ShareFetchRequest]:
        return self.world.pending(ShareFetchRequest)

    @property
    def acknowledgement(self) -> ShareAcknowledgeRequest:
        """The only ShareAcknowledge without an answer."""
        return self.world.asked(ShareAcknowledgeRequest)

    @property
    def acknowledgements(self) -> list[ShareAcknowledgeRequest]:
        return self.world.pending(ShareAcknowledgeRequest)

    def answer_fetch(
        self,
        records: bytes = b"",
        *acquired: tuple[int, int, int],
        partition: int = 0,
        code: int = 0,
        error: int = 0,
        leader: tuple[int, int] = (-1, -1),
        lock: float = LOCK,
    ) -> None:
        """Answer the ShareFetch; ``acquired``: (first offset, last offset, delivery count).

        Args:
            code: the error of the whole request.
            error: the error of the partition.
        """
        data = share_fetch.PartitionData(
            partition_index=partition,
            error_code=error,
            acknowledge_error_code=0,
            current_leader=share_fetch.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
            records=records,
            acquired_records=tuple(
                share_fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in acquired
            ),
        )
        topics = (share_fetch.ShareFetchableTopicResponse(topic_id=T_ID, partitions=(data,)),)
        answer = ShareFetchResponse(
            error_code=code,
            acquisition_lock_timeout_ms=int(lock * 1000),
            responses=topics if acquired or error else (),
            node_endpoints=(),
        )
        self.world.answer(self.fetch, answer)

    def answer_acknowledgement(self, code: int = 0, error: int = 0, lock: float = LOCK) -> None:
        """Answer the ShareAcknowledge; ``error``: of each partition."""
        request = self.acknowledgement
        topics = tuple(
            share_acknowledge.ShareAcknowledgeTopicResponse(
                topic_id=topic.topic_id,
                partitions=tuple(
                    share_acknowledge.PartitionData(
                        partition_index=each.partition_index,
                        error_code=error,
                        current_leader=share_acknowledge.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        answer = ShareAcknowledgeResponse(
            error_code=code,
            acquisition_lock_timeout_ms=int(lock * 1000),
            responses=() if code else topics,
            node_endpoints=(),
        )
        self.world.answer(request, answer)

    # -- the user ----------------------------------------------------------------------------------------------------

    def next(self, task: str = "user", timeout: float | None = None) -> Call[LockedRecord | None]:
        """Ask for a record."""
        asked = self.call(self.core.next_record(task, timeout))
        self._asked.append(asked)
        self.world.run()
        return asked.go_on()

    def take(self, first: int, last: int, count: int = 1) -> list[LockedRecord]:
        """Let the leader of partition 0 deliver these offsets, and take all of them."""
        asked = self.next()
        self.answer_fetch(numbered(first, last), (first, last, count))
        taken = [asked.go_on().result]
        for _ in range(first, last):
            taken.append(self.next().result)
        if self.fetches:  # the leader has no more to fetch ahead
            self.answer_fetch()
        return taken


def failure(call: Call[Any]) -> AcknowledgementFailed:
    """The error with which a call has ended."""
    error = call.go_on().error
    assert isinstance(error, AcknowledgementFailed), error
    return error


def told(request: ShareAcknowledgeRequest) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """The acknowledgements in a request: (partition, first offset, last offset, kinds)."""
    return [
        (each.partition_index, some.first_offset, some.last_offset, tuple(some.acknowledge_types))
        for topic in request.topics
        for each in topic.partitions
        for some in each.acknowledgement_batches
    ]


def asked_partitions(request: ShareFetchRequest) -> list[int]:
    return [each.partition_index for topic in request.topics for each in topic.partitions]


def values(records: Sequence[LockedRecord]) -> list[bytes | None]:
    return [each.record.value for each in records]

"""Sequences of requests of share groups, for Apache Kafka and brokerlite: some written by hand, others at random."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from ottla.codec.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.codec.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.codec.apis.delete_groups import DeleteGroupsRequest
from ottla.codec.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.codec.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.codec.apis.describe_groups import DescribeGroupsRequest
from ottla.codec.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.codec.apis.heartbeat import HeartbeatRequest
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.codec.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.codec.apis.list_groups import ListGroupsRequest
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.codec.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.codec.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.codec.apis.share_fetch import ACCEPT, GAP, RECORD_LIMIT, REJECT, RELEASE, RENEW
from ottla.codec.apis.share_group_describe import ShareGroupDescribeRequest
from ottla.codec.apis.sync_group import SyncGroupRequest
from ottla.codec.records import read_batches
from tests.brokerlite.consumer_group_lines import Line, MachineLine, create
from tests.brokerlite.machine import a_batch, producing
from tests.brokerlite.sharing import Results, acknowledge, beat, configure, fetch

Said = Any
"""The content of an answer, in JSON's types."""
WALKS = 60
MEMBERS = ("a", "b", "c")
_NEW_TOPIC = (3, 6)
"""Error codes of a partition that Apache Kafka has created, but does not lead yet."""
PATIENCE = 10.0
"""Seconds that the first fetch of a member may wait: Apache Kafka loads the share partition meanwhile."""


class PatientLine(MachineLine):
    """brokerlite's machine, whose time passes while a ShareFetch waits."""

    def ask(self, message: Any, version: int) -> Any:
        answer = self.send(message, version)
        if answer() is None:
            self.pass_time(message.max_wait_ms / 1000)
        return answer()


class Sharing:
    """Asks a broker about one group, which reads one topic with batches of five records."""

    def __init__(self, line: Line, name: str, *, batches: int = 6, partitions: int = 1) -> None:
        self.line = line
        self.group = f"share-{name}"
        self.topic = f"topic-{name}"
        self.topic_id: UUID = create(line, self.topic, partitions)
        self._next: dict[str, int] = {}
        self._epochs: dict[str, int] = {}
        for _ in range(batches):
            self.produce()

    def produce(self, count: int = 5, partition: int = 0, **batch: Any) -> None:
        records = a_batch(*(b"%d" % i for i in range(count)), **batch)
        request = producing(records, topic=self.topic, partition=partition)
        while error := self.line.ask(request, 12).responses[0].partition_responses[0].error_code:
            assert error in _NEW_TOPIC, error
            self.line.pass_time(0.0)

    def begin(self, members: Sequence[str] = MEMBERS, **configs: str) -> None:
        """Let members join, and wait until each has partitions."""
        self.configure(**{"auto_offset_reset": "earliest"} | configs)
        for member in members:
            self.join(member)

    def configure(self, **configs: str | None) -> list[int]:
        answer = self.line.ask(configure(self.group, **configs), 1)
        self.line.pass_time(0.0)
        return [each.error_code for each in answer.responses]

    def join(self, member: str) -> None:
        answer = self.beat(member)
        assert answer.error_code == 0, answer
        while not self.has_partitions(member):
            self.line.pass_time(0.0)
            self.beat(member, self._epochs[member])

    def has_partitions(self, member: str) -> bool:
        request = ShareGroupDescribeRequest(group_ids=(self.group,), include_authorized_operations=False)
        members = self.line.ask(request, 1).groups[0].members
        return any(each.member_id == member and each.assignment.topic_partitions for each in members)

    def beat(self, member: str, epoch: int = 0, **told: Any) -> Any:
        if epoch == 0:
            told.setdefault("subscribed_topic_names", (self.topic,))
        answer = self.line.ask(beat(member, epoch, group=self.group, **told), 1)
        if answer.error_code == 0:
            self._epochs[member] = answer.member_epoch
        return answer

    # -- fetching and acknowledging

    def fetch(self, member: str, results: Results | None = None, epoch: int | None = None, **others: Any) -> Said:
        used = self._next.get(member, 0) if epoch is None else epoch
        others.setdefault("wait", PATIENCE if used == 0 else 0.0)
        answer = self.line.ask(fetch(self.topic_id, used, member, results=results, group=self.group, **others), 2)
        self._count(member, used, answer.error_code)
        if answer.error_code:
            return {"error": answer.error_code}
        return [
            {
                "partition": each.partition_index,
                "errors": [each.error_code, each.acknowledge_error_code],
                "acquired": [(run.first_offset, run.last_offset, run.delivery_count) for run in each.acquired_records],
                "records": [(batch.base_offset, batch.last_offset) for batch in read_batches(each.records or b"")],
            }
            for topic in answer.responses
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            # In its first answer Kafka may leave out partitions that it is still loading.
            if used != 0 or each.acquired_records or each.error_code
        ]

    def acknowledge(self, member: str, results: Results, epoch: int | None = None, **others: Any) -> Said:
        used = self._next.get(member, 0) if epoch is None else epoch
        answer = self.line.ask(acknowledge(self.topic_id, used, results, member, group=self.group, **others), 2)
        self._count(member, used, answer.error_code)
        told = [
            (each.partition_index, each.error_code)
            for topic in answer.responses
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        ]
        return [answer.error_code, told]

    def opens(self, member: str) -> bool:
        """Whether the next fetch of a member opens a session."""
        return self._next.get(member, 0) == 0

    def _count(self, member: str, used: int, error: int) -> None:
        if not error:
            self._next[member] = 0 if used == -1 else used + 1

    # -- describing

    def progress(self, *partitions: int, topic: str | None = None) -> Said:
        """The lag and the error of each partition."""
        topics = (
            (DescribeShareGroupOffsetsRequestTopic(topic_name=topic or self.topic, partitions=partitions),)
            if partitions
            else None
        )
        groups = (DescribeShareGroupOffsetsRequestGroup(group_id=self.group, topics=topics),)
        (group,) = self.line.ask(DescribeShareGroupOffsetsRequest(groups=groups), 1).groups
        told = [
            (each.partition_index, each.lag, each.error_code)
            for topic in group.topics
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        ]
        return [group.error_code, told]

    def described(self) -> Said:
        request = ShareGroupDescribeRequest(group_ids=(self.group,), include_authorized_operations=False)
        (group,) = self.line.ask(request, 1).groups
        return [
            group.error_code, group.group_state, group.assignor_name,
            sorted(
                [each.member_id, sorted(each.subscribed_topic_names), each.rack_id,
                 [list(topic.partitions) for topic in each.assignment.topic_partitions]]
                for each in group.members
            ),
        ]  # fmt: skip

    def alter(self, starts: Mapping[int, int], topic: str | None = None) -> Said:
        asked = AlterShareGroupOffsetsRequestTopic(
            topic_name=topic or self.topic,
            partitions=tuple(
                AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=start)
                for index, start in starts.items()
            ),
        )
        answer = self.line.ask(AlterShareGroupOffsetsRequest(group_id=self.group, topics=(asked,)), 0)
        told = [(each.partition_index, each.error_code) for topic in answer.responses for each in topic.partitions]
        return [answer.error_code, sorted(told)]

    def delete_offsets(self, *topics: str) -> Said:
        asked = tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics or (self.topic,))
        answer = self.line.ask(DeleteShareGroupOffsetsRequest(group_id=self.group, topics=asked), 0)
        return [answer.error_code, sorted((each.topic_name, each.error_code) for each in answer.responses)]

    def delete(self) -> Said:
        return [each.error_code for each in self.line.ask(DeleteGroupsRequest(groups_names=(self.group,)), 2).results]

    def leave(self, *members: str) -> Said:
        return [self.beat(member, -1).error_code for member in members]


Scene = Callable[[Sharing], Iterator[tuple[str, Said]]]


# -- acquiring


def batches(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin()
    yield "a takes whole batches", sharing.fetch("a", records=7)
    yield "b takes the next one", sharing.fetch("b", records=1)
    yield "c takes the rest in pieces", sharing.fetch("c", batch_size=5)
    yield "nothing is left", sharing.fetch("a")
    sharing.produce()
    yield "a new batch", sharing.fetch("a")


def sizes(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin()
    for size, records in ((1, 10), (7, 13), (3, 2)):
        yield f"pieces of {size}", sharing.fetch("a", batch_size=size, records=records)


def bytes_(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin()
    yield "at least one batch", sharing.fetch("a", max_bytes=1)
    yield "again", sharing.fetch("a", max_bytes=1)
    yield "no records", sharing.fetch("a", records=0)
    yield "no bytes", sharing.fetch("a", max_bytes=0)


def strict(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin()
    for member, count in (("a", 3), ("b", 1), ("c", 12), ("a", 3)):
        yield f"{member} takes {count}", sharing.fetch(member, records=count, share_acquire_mode=RECORD_LIMIT)
    yield "a accepts", sharing.acknowledge("a", {0: [(0, 2, [ACCEPT])]})
    yield "c releases", sharing.acknowledge("c", {0: [(4, 7, [RELEASE])]})
    yield "b takes", sharing.fetch("b", records=2, share_acquire_mode=RECORD_LIMIT)
    yield "b takes the rest", sharing.fetch("b", share_acquire_mode=RECORD_LIMIT)
    yield "progress", sharing.progress()


def room(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin(partition_max_record_locks="100")
    for _ in range(20):
        sharing.produce()
    yield "a takes all", sharing.fetch("a")
    yield "b gets nothing", sharing.fetch("b", wait=0.0)
    yield "a releases two", sharing.acknowledge("a", {0: [(10, 10, [RELEASE]), (50, 50, [RELEASE])]})
    yield "b gets them", sharing.fetch("b")
    yield "a accepts the first", sharing.acknowledge("a", {0: [(0, 9, [ACCEPT])]})
    yield "b accepts", sharing.acknowledge("b", {0: [(10, 10, [ACCEPT])]})
    yield "b gets more", sharing.fetch("b")
    yield "progress", sharing.progress()


def two_partitions(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    for _ in range(3):
        sharing.produce(partition=1)
    sharing.begin(("a",))
    sharing.fetch("a", partitions=(0, 1), records=1)
    for _ in range(3):
        sharing.fetch("a", wait=0.3)
    yield "everything was acquired", sharing.fetch("a")
    yield "accepted", sharing.acknowledge("a", {0: [(0, 29, [ACCEPT])], 1: [(0, 14, [REJECT])]})
    yield "progress", sharing.progress()
    yield "with what was forgotten", sharing.fetch("a", forget=(0,))
    sharing.produce(partition=0)
    sharing.produce(partition=1)
    yield "only the other one", sharing.fetch("a")
    yield "added again", sharing.fetch("a", partitions=(0,))


# -- results


def results(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin()
    yield "a takes ten", sharing.fetch("a", records=10)
    kinds = [ACCEPT, RELEASE, REJECT, GAP, ACCEPT]
    yield "each kind", sharing.acknowledge("a", {0: [(0, 4, kinds)]})
    yield "progress", sharing.progress()
    yield "b gets the released one", sharing.fetch("b", records=1)
    # No RELEASE with a fetch: in Apache Kafka the record is available once the release is stored, a little later.
    yield "with a fetch", sharing.fetch("a", {0: [(5, 9, [REJECT])]}, records=5)
    yield "b accepts", sharing.acknowledge("b", {0: [(1, 1, [ACCEPT])]})
    yield "progress at last", sharing.progress()


def wrong_results(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin()
    yield "a takes ten", sharing.fetch("a", records=10)
    yield "b takes ten", sharing.fetch("b", records=10)
    cases: list[tuple[str, list[tuple[int, int, list[int]]]]] = [
        ("of another member", [(10, 14, [ACCEPT])]),
        ("partly of another member", [(5, 14, [ACCEPT])]),
        ("never acquired", [(25, 29, [ACCEPT])]),
        ("partly never acquired", [(5, 25, [ACCEPT])]),
        ("past the end", [(1000, 1000, [ACCEPT])]),
        ("backwards", [(4, 3, [ACCEPT])]),
        ("no type", [(0, 4, [])]),
        ("too few types", [(0, 4, [ACCEPT, ACCEPT])]),
        ("unknown type", [(0, 4, [5])]),
        ("negative type", [(0, 4, [-1])]),
        ("a renewal unannounced", [(0, 4, [RENEW])]),
        ("not in order", [(5, 9, [ACCEPT]), (0, 4, [ACCEPT])]),
        ("the second is wrong", [(0, 4, [ACCEPT]), (10, 14, [ACCEPT])]),
        ("overlapping by one", [(0, 4, [ACCEPT]), (4, 9, [ACCEPT])]),
        ("none", []),
    ]
    for case, batches_ in cases:
        yield case, sharing.acknowledge("a", {0: batches_})
    yield "another partition", sharing.acknowledge("a", {7: [(0, 4, [ACCEPT])]})
    yield "with a fetch", sharing.fetch("a", {0: [(10, 14, [ACCEPT])]}, records=1)
    yield "right at last", sharing.acknowledge("a", {0: [(0, 9, [ACCEPT])]})
    yield "and again", sharing.acknowledge("a", {0: [(0, 9, [ACCEPT])]})
    yield "one of them", sharing.acknowledge("a", {0: [(9, 9, [ACCEPT])]})


def deliveries(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    """A batch is released again and again, until its records are archived."""
    sharing.begin()
    for i in range(14):
        taken = sharing.fetch("a", records=1)
        yield f"fetch {i}", taken
        for each in taken:
            for first, last, _ in each["acquired"]:
                yield f"release {i}", sharing.acknowledge("a", {0: [(first, last, [RELEASE])]})
    yield "progress", sharing.progress()


def few_deliveries(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin(delivery_count_limit="2")
    for i in range(4):
        taken = sharing.fetch("a")
        yield f"fetch {i}", taken
        for each in taken:
            for first, last, _ in each["acquired"]:
                yield f"release {i}", sharing.acknowledge("a", {0: [(first, last, [RELEASE])]})
    yield "progress", sharing.progress()


# -- sessions and locks


def sessions(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin()
    yield "fetch without a session", sharing.fetch("a", epoch=1)
    yield "acknowledge without a session", sharing.acknowledge("a", {}, epoch=1)
    yield "end without a session", sharing.fetch("a", epoch=-1)
    yield "end without a session, acknowledging", sharing.acknowledge("a", {}, epoch=-1)
    yield "results in the first", sharing.fetch("a", {0: [(0, 4, [ACCEPT])]}, epoch=0)
    yield "opened", sharing.fetch("a", records=5)
    yield "too far", sharing.fetch("a", epoch=5)
    yield "acknowledging opens nothing", sharing.acknowledge("a", {0: [(0, 0, [ACCEPT])]}, epoch=0)
    yield "acknowledging too far", sharing.acknowledge("a", {0: [(0, 0, [ACCEPT])]}, epoch=7)
    yield "acknowledged", sharing.acknowledge("a", {0: [(0, 0, [ACCEPT])]})
    yield "nothing acknowledged", sharing.acknowledge("a", {})
    yield "fetched", sharing.fetch("a", records=5)
    yield "opened again", sharing.fetch("a", epoch=0, records=5)
    yield "ended", sharing.acknowledge("a", {0: [(1, 1, [ACCEPT])]}, epoch=-1)
    sharing.line.pass_time(0.0)
    yield "b gets the rest", sharing.fetch("b")


def end_by_fetch(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin()
    yield "a takes ten", sharing.fetch("a", records=10)
    yield "a ends", sharing.fetch("a", {0: [(0, 2, [ACCEPT])]}, epoch=-1)
    sharing.line.pass_time(0.0)
    yield "b gets the rest", sharing.fetch("b", records=5)
    yield "again", sharing.fetch("b", records=5)


def locks(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin(record_lock_duration_ms="1000")
    yield "a takes ten", sharing.fetch("a", records=10)
    yield "a accepts some", sharing.acknowledge("a", {0: [(2, 4, [ACCEPT])]})
    sharing.line.pass_time(1.0)
    yield "b gets what a kept", sharing.fetch("b", records=5)
    yield "again", sharing.fetch("b", records=5)
    yield "a is too late", sharing.acknowledge("a", {0: [(0, 1, [ACCEPT])]})
    yield "progress", sharing.progress()


def renewals(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin(record_lock_duration_ms="2000")
    nothing = {"records": 0, "max_bytes": 0, "min_bytes": 0}
    yield "a takes ten", sharing.fetch("a", records=10)
    sharing.line.pass_time(1.0)
    yield "a renews some", sharing.acknowledge("a", {0: [(0, 4, [RENEW])]}, is_renew_ack=True)
    yield "and one, with a fetch", sharing.fetch("a", {0: [(7, 7, [RENEW])]}, is_renew_ack=True, **nothing)
    yield "a fetch for more", sharing.fetch("a", {0: [(8, 8, [RENEW])]}, is_renew_ack=True)
    sharing.line.pass_time(1.0)
    yield "b gets the others", sharing.fetch("b", records=1)
    yield "a accepts", sharing.acknowledge("a", {0: [(0, 4, [ACCEPT])]})
    yield "renewing what is done", sharing.acknowledge("a", {0: [(4, 4, [RENEW])]}, is_renew_ack=True)


def unknown_places(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin()
    yield "a partition that is not there", sharing.fetch("a", partitions=(9,))
    yield "both", sharing.fetch("a", partitions=(0,), wait=PATIENCE)


# -- groups


def heartbeats(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    yield "of no group", [sharing.beat("a", epoch).error_code for epoch in (1, -1)]
    cases: dict[str, dict[str, Any]] = {
        "no topics": {"subscribed_topic_names": None},
        "empty topics": {"subscribed_topic_names": ()},
        "blank rack": {"rack_id": " "},
        "epoch -2": {"epoch": -2},
        "no member": {"member": ""},
    }
    for case, told in cases.items():
        member = told.pop("member", "a")
        yield case, sharing.beat(member, **told).error_code
    sharing.begin(("a", "b"))
    yield "described", sharing.described()
    yield "unknown member", sharing.beat("x", 1).error_code
    yield "a later epoch", sharing.beat("a", 1000).error_code
    yield "leave of a stranger", sharing.beat("x", -1).error_code
    yield "leave", sharing.leave("a", "b")
    yield "described empty", sharing.described()
    yield "leave again", sharing.leave("a")


def kinds(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    """Requests of other protocols to a share group."""
    sharing.begin(("a",))
    line, group, topic = sharing.line, sharing.group, sharing.topic
    modern = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        topic_partitions=(),
        subscribed_topic_names=(topic,),
    )
    yield "a consumer's heartbeat", line.ask(modern, 1).error_code
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=(protocol,),
    )
    yield "JoinGroup", line.ask(join, 9).error_code
    yield (
        "SyncGroup",
        line.ask(SyncGroupRequest(group_id=group, generation_id=1, member_id="a", assignments=()), 5).error_code,
    )
    yield "Heartbeat", line.ask(HeartbeatRequest(group_id=group, generation_id=1, member_id="a"), 4).error_code
    left = line.ask(LeaveGroupRequest(group_id=group, members=(MemberIdentity(member_id="a"),)), 5)
    yield "LeaveGroup", [left.error_code, [each.error_code for each in left.members]]
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    for version in (8, 9):
        commit = OffsetCommitRequest(
            group_id=group, topics=(OffsetCommitRequestTopic(name=topic, partitions=(partition,)),)
        )
        answer = line.ask(commit, version)
        yield f"OffsetCommit {version}", [each.error_code for told in answer.topics for each in told.partitions]
    for asked in (None, (OffsetFetchRequestTopics(name=topic, partition_indexes=(0,)),)):
        groups = (OffsetFetchRequestGroup(group_id=group, topics=asked),)
        (told,) = line.ask(OffsetFetchRequest(groups=groups), 9).groups
        yield "OffsetFetch", [told.error_code, [each.committed_offset for t in told.topics for each in t.partitions]]
    places = OffsetDeleteRequestTopic(name=topic, partitions=(OffsetDeleteRequestPartition(partition_index=0),))
    answer = line.ask(OffsetDeleteRequest(group_id=group, topics=(places,)), 0)
    yield "OffsetDelete", answer.error_code
    for version in (5, 6):
        (described,) = line.ask(DescribeGroupsRequest(groups=(group,)), version).groups
        yield f"DescribeGroups {version}", [described.error_code, described.group_state]
    (described,) = line.ask(
        ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False), 1
    ).groups
    yield "ConsumerGroupDescribe", described.error_code
    for types in (("share",), ("SHARE",), ("classic",), ()):
        listed = line.ask(ListGroupsRequest(states_filter=(), types_filter=types), 5).groups
        yield (
            f"ListGroups {types}",
            [(each.group_type, each.group_state, each.protocol_type) for each in listed if each.group_id == group],
        )
    yield "deleted with members", sharing.delete()
    yield "leave", sharing.leave("a")
    yield "deleted", sharing.delete()
    yield "deleted again", sharing.delete()
    yield "described", sharing.described()
    yield "progress", sharing.progress()


def other_kinds(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    """Requests of share groups to a consumer group, and to no group."""
    line, group, topic = sharing.line, sharing.group, sharing.topic
    yield "described, no group", sharing.described()
    yield "progress, no group", sharing.progress()
    yield "progress of a partition, no group", sharing.progress(0)
    yield "deleted, no group", sharing.delete_offsets()
    modern = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        topic_partitions=(),
        subscribed_topic_names=(topic,),
    )
    assert line.ask(modern, 1).error_code == 0
    yield "heartbeat", sharing.beat("a").error_code
    yield "described", sharing.described()
    yield "progress", sharing.progress()
    yield "altered", sharing.alter({0: 1})
    yield "offsets deleted", sharing.delete_offsets()


def made_by_alter(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    """A group that begins with its offsets, and gets members later."""
    yield "altered", sharing.alter({0: 12})
    yield "progress", sharing.progress()
    yield "described", sharing.described()
    listed = sharing.line.ask(ListGroupsRequest(states_filter=(), types_filter=("share",)), 5).groups
    yield "listed", [each.group_state for each in listed if each.group_id == sharing.group]
    sharing.join("a")
    yield "a takes", sharing.fetch("a", records=1)


def offsets(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin(("a",))
    yield "a takes", sharing.fetch("a", records=10)
    yield "a accepts", sharing.acknowledge("a", {0: [(0, 4, [ACCEPT])]})
    yield "progress", sharing.progress()
    yield "of some partitions", sharing.progress(0, 7)
    yield "of a topic that is not there", sharing.progress(0, topic="no-such")
    yield "altered with members", sharing.alter({0: 2})
    yield "deleted with members", sharing.delete_offsets()
    yield "a ends", sharing.fetch("a", epoch=-1)
    yield "leave", sharing.leave("a")
    # What members get then, Apache Kafka decides later: a share partition that it has loaded stays as it is.
    yield "altered", sharing.alter({0: 2})
    yield "progress from there", sharing.progress()
    yield "altered elsewhere", sharing.alter({9: 2})
    yield "altered no topic", sharing.alter({0: 2}, topic="no-such")
    yield "offsets deleted", sharing.delete_offsets(sharing.topic, "no-such")
    yield "progress of nothing", sharing.progress()
    yield "deleted again", sharing.delete_offsets()


def configurations(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    for name, value in (
        ("auto_offset_reset", "middle"),
        ("auto_offset_reset", "EARLIEST"),
        ("auto_offset_reset", "by_duration:P1D"),
        ("auto_offset_reset", "by_duration:-P1D"),
        ("isolation_level", "read_committed"),
        ("isolation_level", "none"),
        ("delivery_count_limit", "1"),
        ("record_lock_duration_ms", "x"),
        ("nonsense", "1"),
        ("isolation_level", None),
    ):
        yield f"{name} {value}", sharing.configure(**{name: value})
    resource = DescribeConfigsResource(resource_type=32, resource_name=sharing.group, configuration_keys=None)
    answer = sharing.line.ask(DescribeConfigsRequest(resources=(resource,)), 4).results[0]
    wanted = ("share.auto.offset.reset", "share.isolation.level", "share.record.lock.duration.ms")
    yield (
        "described",
        sorted((each.name, each.value, each.config_source) for each in answer.configs if each.name in wanted),
    )


def latest(sharing: Sharing) -> Iterator[tuple[str, Said]]:
    sharing.begin(("a",), auto_offset_reset="latest")
    yield "nothing old", sharing.fetch("a", wait=2.0)
    sharing.produce()
    yield "something new", sharing.fetch("a")
    yield "accepted", sharing.acknowledge("a", {0: [(30, 34, [ACCEPT])]})
    yield "progress", sharing.progress()


# -- at random


def walk(seed: int) -> Scene:
    """Members fetch, acknowledge and end their sessions, in any order."""

    def scene(sharing: Sharing) -> Iterator[tuple[str, Said]]:
        rng = random.Random(seed)
        limit = rng.choice(("2", "3", "5"))
        sharing.begin(MEMBERS[:2], delivery_count_limit=limit)
        held: dict[str, list[tuple[int, int]]] = {member: [] for member in MEMBERS[:2]}
        yield "first", sharing.fetch("a", records=1)
        yield "given back", sharing.acknowledge("a", {0: [(0, 4, [RELEASE])]})
        for i in range(rng.randint(10, 30)):
            member = rng.choice(MEMBERS[:2])
            what = rng.choice(("fetch", "fetch", "acknowledge", "acknowledge", "both", "end", "produce"))
            given: Results = {}
            if what in ("acknowledge", "both") and held[member]:
                first, last = held[member].pop(rng.randrange(len(held[member])))
                if rng.random() < 0.3:
                    last = rng.randint(first, last)
                single = rng.random() < 0.5
                count = 1 if single else last - first + 1
                # A fetch releases no record: see `results`.
                choice = (ACCEPT, RELEASE, RELEASE, REJECT) if what == "acknowledge" else (ACCEPT, REJECT)
                given = {0: [(first, last, [rng.choice(choice) for _ in range(count)])]}
            if what == "produce":
                sharing.produce(rng.randint(1, 8))
            elif what == "end":
                yield f"{i} {member} ends", sharing.fetch(member, epoch=-1)
                sharing.line.pass_time(0.0)
                held[member].clear()
            elif what == "acknowledge":
                yield f"{i} {member} acknowledges {given}", sharing.acknowledge(member, given)
            else:
                opens = sharing.opens(member)
                taken = sharing.fetch(
                    member,
                    None if opens else given,
                    records=rng.randint(1, 12),
                    batch_size=rng.randint(1, 12),
                    share_acquire_mode=rng.choice((0, RECORD_LIMIT)),
                    wait=0.3 if opens else 0.0,
                )
                yield f"{i} {member} fetches {given}", taken
                if isinstance(taken, list):
                    held[member] += [(first, last) for each in taken for first, last, _ in each["acquired"]]
        yield "progress", sharing.progress()

    return scene


SCENES: Mapping[str, Scene] = {
    each.__name__.strip("_"): each
    for each in (
        batches, sizes, bytes_, strict, room, results, wrong_results, deliveries, few_deliveries, sessions,
        end_by_fetch, locks, renewals, unknown_places, heartbeats, kinds, other_kinds, made_by_alter, offsets,
        configurations, latest,
    )
}  # fmt: skip


def sequences(line: Line, walks: int = WALKS) -> Iterator[list[Any]]:
    """Play all scenes and walks; yield scene, step and the content of the answer."""
    for name, scene in SCENES.items():
        for step, said in scene(Sharing(line, name)):
            yield [name, step, said]
    for step, said in two_partitions(Sharing(line, "two-partitions", partitions=2)):
        yield ["two-partitions", step, said]
    for seed in range(walks):
        for step, said in walk(seed)(Sharing(line, f"walk-{seed}")):
            yield [f"walk-{seed}", step, said]

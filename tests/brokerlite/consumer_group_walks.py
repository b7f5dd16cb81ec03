"""Sequences of requests of members of consumer groups, for Apache Kafka and for brokerlite.

A sequence sends requests to a broker, and yields each with a summary of its answer as JSON. Topic ids are replaced by
names, and ids that a broker makes by their order. `python -m tests.brokerlite.record_consumer_groups` records the
answers of Apache Kafka.

`WALKS` walks choose requests at random, from a seed. `SCENES` are written by hand.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import UUID

from ottla.codec.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.codec.apis.delete_groups import DeleteGroupsRequest
from ottla.codec.apis.describe_groups import DescribeGroupsRequest
from ottla.codec.apis.heartbeat import HeartbeatRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
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
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.codec.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    build_assignment,
    build_subscription,
    parse_assignment,
)
from tests.brokerlite.consumer_group_lines import Line, create

Said = tuple[str, Any]
Owned = dict[str, list[int]]

COUNTS = {"three": 3, "seven": 7}
"""The topics of the walks and scenes, and their partitions."""
MISSING = "missing"
"""A topic that does not exist."""
ACTS = (
    *("join", "beat", "beat", "beat", "adopt", "adopt", "adopt", "keep", "told", "leave", "away", "wrong", "old"),
    *("commit", "commit", "stale", "fetch", "describe", "full", "list"),
)
STEPS = 40
WALKS = 190


class Asking:
    """A broker, and a group there that one sequence has for itself."""

    def __init__(self, line: Line, group: str, topics: dict[str, UUID]) -> None:
        self.line, self.group, self.topics = line, group, topics
        self._made: dict[str, str] = {}

    def names(self, topics: Any) -> Owned:
        known = {topic_id: name for name, topic_id in self.topics.items()}
        return {
            known[each.topic_id]: sorted(each.partitions) for each in sorted(topics, key=lambda e: known[e.topic_id])
        }

    def owned(self, owned: Owned) -> tuple[TopicPartitions, ...]:
        return tuple(
            TopicPartitions(topic_id=self.topics[name], partitions=tuple(each)) for name, each in sorted(owned.items())
        )

    def id(self, member_id: str | None) -> str | None:
        """A member id without what differs between brokers."""
        if member_id and len(member_id) >= 20:
            return self._made.setdefault(member_id, f"made-{len(self._made)}")
        return member_id

    def heartbeat(
        self, member_id: str, epoch: int, *, version: int = 1, owned: Owned | None = None, **told: Any
    ) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=told.pop("group", self.group),
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=None if owned is None else self.owned(owned),
            **told,
        )
        return self.line.ask(request, version)

    def said(self, answer: Any) -> list[Any]:
        assigned = None if answer.assignment is None else self.names(answer.assignment.topic_partitions)
        if answer.error_code:
            return [answer.error_code, answer.error_message]
        return [self.id(answer.member_id), answer.member_epoch, answer.heartbeat_interval_ms, assigned]

    def join(self, member_id: str, *topics: str, **told: Any) -> Any:
        usual: dict[str, Any] = {"owned": {}, "rebalance_timeout_ms": 60_000, "subscribed_topic_names": topics or None}
        return self.heartbeat(member_id, 0, **usual | told)

    def described(self) -> list[Any]:
        request = ConsumerGroupDescribeRequest(group_ids=(self.group,), include_authorized_operations=False)
        (group,) = self.line.ask(request, 1).groups
        if group.error_code:
            return [group.error_code, group.error_message]
        members = [
            [
                self.id(each.member_id),
                each.instance_id,
                each.rack_id,
                each.member_epoch,
                sorted(each.subscribed_topic_names),
                each.subscribed_topic_regex,
                self.names(each.assignment.topic_partitions),
                self.names(each.target_assignment.topic_partitions),
                each.member_type,
            ]
            for each in group.members
        ]
        about = [group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name]
        return [*about, sorted(members, key=str)]

    def listed(self, *types: str, states: tuple[str, ...] = ()) -> list[Any]:
        groups = self.line.ask(ListGroupsRequest(states_filter=states, types_filter=types), 5).groups
        return [[e.protocol_type, e.group_state, e.group_type] for e in groups if e.group_id == self.group]

    def described_as_classic(self, version: int = 6) -> list[Any]:
        request = DescribeGroupsRequest(groups=(self.group,), include_authorized_operations=False)
        (group,) = self.line.ask(request, version).groups
        members = sorted([self.id(each.member_id), self.assigned(each.member_assignment)] for each in group.members)
        return [group.error_code, group.error_message, group.group_state, group.protocol_type, members]

    def commit(self, member_id: str, epoch: int, places: Owned, *, version: int = 9, offset: int = 5) -> list[Any]:
        topics = tuple(
            OffsetCommitRequestTopic(
                name=name,
                topic_id=self.topics[name],
                partitions=tuple(
                    OffsetCommitRequestPartition(partition_index=i, committed_offset=offset, committed_metadata=None)
                    for i in each
                ),
            )
            for name, each in sorted(places.items())
        )
        request = OffsetCommitRequest(
            group_id=self.group, generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics
        )
        answer = self.line.ask(request, version)
        return [[e.partition_index, e.error_code] for topic in answer.topics for e in topic.partitions]

    def producer(self) -> InitProducerIdResponse:
        """Return the producer id of a transactional id that is named as the group."""
        request = InitProducerIdRequest(transactional_id=self.group, transaction_timeout_ms=60_000)
        answer: InitProducerIdResponse = self.line.ask(request, 4)
        assert answer.error_code == 0, answer
        return answer

    def commit_in_transaction(
        self, producer: InitProducerIdResponse, member_id: str, epoch: int, partitions: Iterable[int]
    ) -> list[Any]:
        """Commit offsets of the topic ``three``; a first commit begins the transaction."""
        offsets = tuple(
            TxnOffsetCommitRequestPartition(partition_index=i, committed_offset=5, committed_metadata=None)
            for i in partitions
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.group,
            group_id=self.group,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=(TxnOffsetCommitRequestTopic(name="three", partitions=offsets),),
        )
        answer = self.line.ask(request, 5)
        return [[e.partition_index, e.error_code] for topic in answer.topics for e in topic.partitions]

    def fetched(self, member_id: str | None = None, epoch: int = -1, topic: str = "three") -> list[Any]:
        topics = (OffsetFetchRequestTopics(name=topic, partition_indexes=tuple(range(COUNTS[topic]))),)
        group = OffsetFetchRequestGroup(group_id=self.group, member_id=member_id, member_epoch=epoch, topics=topics)
        (answer,) = self.line.ask(OffsetFetchRequest(groups=(group,)), 9).groups
        places = [[e.partition_index, e.committed_offset, e.error_code] for t in answer.topics for e in t.partitions]
        return [answer.error_code, places]

    def offsets_deleted(self, topic: str) -> list[Any]:
        partitions = (OffsetDeleteRequestPartition(partition_index=0),)
        topics = (OffsetDeleteRequestTopic(name=topic, partitions=partitions),)
        answer = self.line.ask(OffsetDeleteRequest(group_id=self.group, topics=topics), 0)
        return [answer.error_code, [e.error_code for t in answer.topics for e in t.partitions]]

    def deleted(self) -> int:
        (answer,) = self.line.ask(DeleteGroupsRequest(groups_names=(self.group,)), 2).results
        return int(answer.error_code)

    # -- the classic protocol

    def classic_join(
        self, member_id: str = "", *topics: str, owned: Owned | None = None, **told: Any
    ) -> Callable[[], Any]:
        """Send JoinGroup; the result returns the summary of its answer."""
        subscription = ConsumerProtocolSubscription(
            topics=topics or ("three",),
            owned_partitions=tuple(
                TopicPartition(topic=n, partitions=tuple(e)) for n, e in sorted((owned or {}).items())
            ),
        )
        names = told.pop("protocols", ("range",))
        metadata = told.pop("metadata", build_subscription(subscription, 1))
        usual: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": 45_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": tuple(JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names),
        }
        request = JoinGroupRequest(**usual | told)
        return self.line.send(request, 9)

    def joined(self, answer: Any) -> list[Any]:
        others = sorted(str(self.id(each.member_id)) for each in answer.members)
        return [answer.error_code, self.id(answer.member_id), answer.generation_id, answer.protocol_name, others]

    def sync(self, member_id: str, generation: int, **assigned: Owned) -> Any:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=name, assignment=_assignment(each))
                for name, each in assigned.items()
            ),
        )
        return self.line.ask(request, 5)

    def synced(self, answer: Any) -> list[Any]:
        return [answer.error_code, answer.protocol_name, self.assigned(answer.assignment)]

    @staticmethod
    def assigned(assignment: bytes) -> Owned | None:
        if not assignment:
            return None
        read = parse_assignment(assignment)[1].assigned_partitions
        return {each.topic: sorted(each.partitions) for each in sorted(read, key=lambda e: e.topic)}

    def classic_beat(self, member_id: str, generation: int, instance_id: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        return int(self.line.ask(request, 4).error_code)

    def classic_leave(self, *members: tuple[str, str | None]) -> list[Any]:
        leaving = tuple(MemberIdentity(member_id=each, group_instance_id=instance) for each, instance in members)
        answer = self.line.ask(LeaveGroupRequest(group_id=self.group, members=leaving), 5)
        return [answer.error_code, [[self.id(e.member_id), e.error_code] for e in answer.members]]


def _assignment(owned: Owned) -> bytes:
    topics = tuple(TopicPartition(topic=name, partitions=tuple(each)) for name, each in owned.items())
    return build_assignment(ConsumerProtocolAssignment(assigned_partitions=topics), 1)


# -- walks


class Person:
    """A member that may do anything, as it remembers its last answers."""

    def __init__(self, asking: Asking, name: str, instance: str | None) -> None:
        self.asking, self.name, self.instance = asking, name, instance
        self.epoch = 0
        self.has: Owned = {}
        self.target: Owned = {}
        self.topics: tuple[str, ...] = ()

    def hear(self, answer: Any) -> list[Any]:
        said = self.asking.said(answer)
        if answer.error_code in (110, 25, 82, 69):
            self.epoch, self.has, self.target = 0, {}, {}
        elif not answer.error_code:
            self.epoch = max(answer.member_epoch, 0)
            if answer.assignment is not None:
                self.target = self.asking.names(answer.assignment.topic_partitions)
        return said

    def beat(self, epoch: int | None = None, **told: Any) -> list[Any]:
        if self.instance is not None:
            told["instance_id"] = self.instance
        return self.hear(self.asking.heartbeat(self.name, self.epoch if epoch is None else epoch, **told))

    def adopt(self) -> None:
        self.has = {name: list(each) for name, each in self.target.items()}


def walk(asking: Asking, seed: int) -> Iterator[Said]:
    """Members join, send heartbeats of all kinds, commit, and leave, in an order from a seed."""
    rng = random.Random(seed)
    subscriptions: tuple[tuple[str, ...], ...] = (
        (("three",), ("seven",), ("three", MISSING)) if seed % 2 else (("seven",),)
    )
    assignors: tuple[str | None, ...] = ((None, "range"), (None, "uniform"), (None,))[seed % 3]
    if seed % 5 == 0:
        subscriptions, assignors = (("three",), ("three", "seven"), ("seven",)), ("range",)
    people = [Person(asking, f"m{i}", f"i{i}" if rng.random() < 0.3 else None) for i in range(4)]
    for _ in range(STEPS):
        person = rng.choice(people)
        act = rng.choice(ACTS)
        joined = person.epoch > 0
        if not joined and rng.random() < 0.7:
            act = "join"
        label = f"{act} {person.name}"
        match act:
            case "join" if not joined or rng.random() < 0.2:
                person.topics = rng.choice(subscriptions)
                told: dict[str, Any] = {"subscribed_topic_names": person.topics, "rebalance_timeout_ms": 60_000}
                if (assignor := rng.choice(assignors)) is not None:
                    told["server_assignor"] = assignor
                yield label, person.beat(0, owned={}, **told)
            case "beat":
                yield label, person.beat()
            case "adopt":
                person.adopt()
                yield label, person.beat(owned=person.has)
            case "keep":
                yield label, person.beat(owned=person.has)
            case "told":
                person.topics = rng.choice(subscriptions)
                yield label, person.beat(subscribed_topic_names=person.topics)
            case "full":
                topics = person.topics or ("three",)
                yield label, person.beat(owned=person.has, rebalance_timeout_ms=60_000, subscribed_topic_names=topics)
            case "leave" if rng.random() < 0.4:
                said = person.beat(-1)
                person.epoch, person.has, person.target = 0, {}, {}
                yield label, said
            case "away" if person.instance is not None and rng.random() < 0.5:
                said = person.beat(-2)
                person.epoch, person.has, person.target = 0, {}, {}
                yield label, said
            case "wrong":
                yield label, person.beat(person.epoch + rng.choice((1, 5)))
                person.epoch = 0 if not joined else person.epoch
            case "old" if person.epoch > 1:
                yield label, person.beat(person.epoch - 1, owned=rng.choice((person.has, {})))
            case "commit":
                yield label, asking.commit(person.name, person.epoch or -1, {"three": [0, 1], "seven": [0]})
            case "stale" if person.epoch > 1:
                topic = person.topics[0] if person.topics else "three"
                for index in range(COUNTS.get(topic, 1)):
                    yield f"{label} {index}", asking.commit(person.name, person.epoch - 1, {topic: [index]})
            case "fetch":
                yield label, asking.fetched(*rng.choice(((None, -1), (person.name, person.epoch), (person.name, -1))))
            case "describe":
                yield "describe", asking.described()
            case "list":
                yield "list", asking.listed(*rng.choice(((), ("consumer",), ("classic",))))
    yield "describe", asking.described()


def sequences(line: Line, walks: range, scenes: "dict[str, Callable[[Asking], Iterator[Said]]]") -> Iterator[list[Any]]:
    """Run all sequences; yield the name, the request and the summary of each answer."""
    topics = {name: create(line, name, count) for name, count in COUNTS.items()}
    line.pass_time(0.5)  # Apache Kafka's coordinator learns of topics a little later
    for name, scene in scenes.items():
        for label, said in scene(Asking(line, name, topics)):
            yield [name, label, said]
    for seed in walks:
        for label, said in walk(Asking(line, f"walk {seed}", topics), seed):
            yield [f"walk {seed}", label, said]

"""The model's coordinator of KIP-848 answers as Apache Kafka 4.3.1, in the sequences that were recorded for brokerlite.

The model divides partitions at random. Here Kafka's assignors do it (those of brokerlite, which the same recording
checks), because epochs and errors depend on who gets which partition.

Of refusals only the error code is compared, and neither the scenes of `UNMODELLED` nor the answers of `UNCOMPARED`.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby
from random import Random
from typing import Any

import pytest

from ottla.brokerlite.machines.consumer_groups.assignors import ASSIGNORS, UNIFORM, Candidate
from ottla.codec.apis import consumer_group_describe as describing
from ottla.codec.apis import list_groups as listing
from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.codec.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.codec.apis.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.codec.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.errors import GroupIdNotFound
from tests.brokerlite.consumer_group_scenes import SCENES
from tests.brokerlite.consumer_group_walks import COUNTS, WALKS, sequences
from tests.brokerlite.record_consumer_groups import RECORDED
from tests.patience import HUNG
from tests.sim.clock import Clock
from tests.sim.cluster import ModelCluster
from tests.sim.groups import Group, State, group_of
from tests.sim.history import History
from tests.sim.modern_groups import ModernCoordinator, ModernGroup, ModernMember, Part, Progress
from tests.sim.network import Network

_CLIENT = "a-client-with-a-long-name"
"""`Asking` takes ids of 20 characters for ids that the broker made."""

UNMODELLED = {
    "invalid": "no client of a world sends such fields",
    "made ids": "no client of a world speaks version 0, in which the broker makes the ids",
    "life": "the model does not delete groups or offsets",
    "transactional": "the model's groups are asked without its transaction coordinator",
}
UNCOMPARED = {
    "described as classic": "the model does not list the members of classic groups",
    "created again": "a topic of the model has as many partitions as before",
}
_CLASSIC = {
    State.EMPTY: "Empty",
    State.PREPARING: "PreparingRebalance",
    State.COMPLETING: "CompletingRebalance",
    State.STABLE: "Stable",
}
Lines = list[tuple[str, Any]]


class ModelLine:
    """The coordinator of a model cluster, as a broker that takes the requests of members (`Line`)."""

    def __init__(self) -> None:
        self.clock = Clock()
        history = History(self.clock, False)
        network = Network(self.clock, Random(1), history)
        self.cluster = network.cluster = ModelCluster(self.clock, Random(2), network, history, dict(COUNTS), 1, "4.3")
        self.modern = self.cluster.groups.modern
        self.modern.session, self.modern.interval = 45.0, 5.0
        self.assignors: dict[tuple[str, str], str] = {}
        """Group and member id -> the assignor that it wants; only this test's targets depend on it."""

    def ask(self, message: Any, version: int) -> Any:
        answer = self.send(message, version)()
        assert answer is not None, message
        return answer

    def send(self, message: Any, version: int) -> Callable[[], Any]:
        answers: list[Any] = []
        match message:
            case CreateTopicsRequest(topics=(CreatableTopic(name=name, num_partitions=count),)):
                self.cluster.create(name, count)
                made = CreatableTopicResult(name=name, topic_id=self.cluster.ids[name], error_code=0)
                answers.append(CreateTopicsResponse(topics=(made,)))
            case CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=name, count=count),)):
                self.cluster.grow(name, count - sum(each[0] == name for each in self.cluster.leaders))
                grown = CreatePartitionsTopicResult(name=name, error_code=0)
                answers.append(CreatePartitionsResponse(results=(grown,)))
            case DeleteTopicsRequest(topics=(DeleteTopicState(name=str(name)),)):
                self.cluster.delete(name)
                answers.append(DeleteTopicsResponse(responses=(DeletableTopicResult(name=name, error_code=0),)))
            case describing.ConsumerGroupDescribeRequest():
                answers.append(self._described(self.cluster.groups.group(message.group_ids[0])))
            case listing.ListGroupsRequest():
                answers.append(self._listed(message.types_filter))
            case ConsumerGroupHeartbeatRequest():
                before = dict(self.assignors)
                self._note_assignor(self.cluster.groups.group(message.group_id), message)
                self._act(message, version, answers)
                if answers[0].error_code:
                    self.assignors = before
            case _:
                self._act(message, version, answers)

        def answer() -> Any:
            end = self.clock.now + HUNG
            while not answers and self.clock.now < end:
                assert self.clock.step()
            return answers[0] if answers else None

        return answer

    def _act(self, message: Any, version: int, answers: list[Any]) -> None:
        group = self.cluster.groups.group(group_of(message))
        self.cluster.groups.act(group, _CLIENT, version, message, answers.append)

    def _note_assignor(self, group: Group, message: ConsumerGroupHeartbeatRequest) -> None:
        key = group.name, message.member_id
        if message.server_assignor is not None:
            self.assignors[key] = message.server_assignor
        elif group.modern is None or message.member_id not in group.modern.members:
            self.assignors.pop(key, None)

    def _assignor(self, group: ModernGroup) -> str:
        """The assignor that most members want."""
        wanted = Counter(filter(None, (self.assignors.get((group.name, each)) for each in group.members)))
        return wanted.most_common(1)[0][0] if wanted else UNIFORM

    def pass_time(self, seconds: float) -> None:
        end = self.clock.now + seconds
        self.clock.at(end, lambda: None)
        while self.clock.now < end:
            assert self.clock.step()

    def divide(self, group: ModernGroup) -> dict[str, frozenset[Part]]:
        """The targets that Apache Kafka computes."""
        found = ASSIGNORS[self._assignor(group)](
            {name: self._candidate(group, member) for name, member in group.members.items()},
            dict(group.counts.values()),
        )
        return {
            name: frozenset((topic, index) for topic, indexes in found.get(name, {}).items() for index in indexes)
            for name in group.members
        }

    def _candidate(self, group: ModernGroup, member: ModernMember) -> Candidate:
        topics = frozenset(group.counts[name][0] for name in member.topics if name in group.counts)
        return Candidate(topics, _by_topic(group.targets.get(member.id, ())), member.instance, member.topics)

    def _described(self, group: Group) -> describing.ConsumerGroupDescribeResponse:
        modern = group.modern
        described = _described_missing(group.name) if modern is None else _described(modern, self._assignor(modern))
        return describing.ConsumerGroupDescribeResponse(groups=(described,))

    def _listed(self, types: tuple[str, ...]) -> listing.ListGroupsResponse:
        groups = tuple(
            listed
            for group in self.cluster.groups.groups.values()
            if (listed := _listed(group)) is not None and (not types or listed.group_type in types)
        )
        return listing.ListGroupsResponse(error_code=0, groups=groups)


def _by_topic(parts: Any) -> dict[Any, frozenset[int]]:
    topics: dict[Any, set[int]] = {}
    for topic, index in parts:
        topics.setdefault(topic, set()).add(index)
    return {topic: frozenset(indexes) for topic, indexes in topics.items()}


def _state(group: ModernGroup) -> str:
    if not group.members:
        return "Empty"
    if group.epoch > group.target_epoch:
        return "Assigning"
    settled = all(
        each.progress is Progress.STABLE and each.epoch == group.target_epoch for each in group.members.values()
    )
    return "Stable" if settled else "Reconciling"


def _listed(group: Group) -> listing.ListedGroup | None:
    if group.modern is None:
        if not group.exists and group.stored is None:
            return None
        return listing.ListedGroup(
            group_id=group.name,
            protocol_type=group.protocol_type or "",
            group_state=_CLASSIC[group.state],
            group_type="classic",
        )
    return listing.ListedGroup(
        group_id=group.name, protocol_type="consumer", group_state=_state(group.modern), group_type="consumer"
    )


def _described_missing(name: str) -> describing.DescribedGroup:
    return describing.DescribedGroup(
        error_code=GroupIdNotFound.code,
        group_id=name,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def _described(modern: ModernGroup, assignor: str) -> describing.DescribedGroup:
    return describing.DescribedGroup(
        error_code=0,
        group_id=modern.name,
        group_state=_state(modern),
        group_epoch=modern.epoch,
        assignment_epoch=modern.target_epoch,
        assignor_name=assignor,
        members=tuple(
            describing.Member(
                member_id=each.id,
                instance_id=each.instance,
                member_epoch=each.epoch,
                client_id="",
                client_host="",
                subscribed_topic_names=each.topics,
                subscribed_topic_regex=each.regex,
                assignment=_assignment(each.has),
                target_assignment=_assignment(modern.targets.get(each.id, ())),
                member_type=int(each.protocols is None),
            )
            for each in modern.members.values()
        ),
    )


def _assignment(parts: Any) -> describing.Assignment:
    return describing.Assignment(
        topic_partitions=tuple(
            describing.TopicPartitions(topic_id=topic, topic_name="", partitions=tuple(indexes))
            for topic, indexes in _by_topic(parts).items()
        )
    )


def _compared(said: Any) -> Any:
    """An answer, or the error code of a refusal: clients ignore the rest of it."""
    refused = isinstance(said, list) and said and isinstance(said[0], int) and said[0]
    return said[0] if (refused and not isinstance(said[1], int)) or (refused and len(said) == 5) else said


def _named(lines: Lines) -> Lines:
    """The lines with ids that the model made as `Asking` names them."""
    made: dict[str, str] = {}

    def named(said: Any) -> Any:
        match said:
            case str() if re.fullmatch(r"[abij]-m?\d+", said):
                return made.setdefault(said, f"made-{len(made)}")
            case list():
                return [named(each) for each in said]
            case dict():
                return {name: named(each) for name, each in said.items()}
        return said

    found = [(label, named(said)) for label, said in lines]
    for label, said in found:
        if label == "described" and isinstance(said[-1], list):
            said[-1].sort(key=str)  # the members, by their ids
    return found


def _by_name(lines: Iterable[list[Any]]) -> dict[str, Lines]:
    return {name: [(label, said) for _, label, said in each] for name, each in groupby(lines, key=lambda e: str(e[0]))}


def test_every_answer_is_apache_kafkas(monkeypatch: pytest.MonkeyPatch) -> None:
    line = ModelLine()

    def divide(coordinator: ModernCoordinator, group: ModernGroup) -> None:
        group.targets, group.target_epoch = line.divide(group), group.epoch

    monkeypatch.setattr(ModernCoordinator, "_divide", divide)
    scenes = {name: scene for name, scene in SCENES.items() if name not in UNMODELLED}
    ours = _by_name(json.loads(json.dumps(each)) for each in sequences(line, range(WALKS), scenes))
    theirs = _by_name(map(json.loads, gzip.decompress(RECORDED.read_bytes()).splitlines()))
    assert len(ours) >= 200
    for name, lines in ours.items():
        assert [label for label, _ in lines] == [label for label, _ in theirs[name]], name
        for ours_said, (label, said) in zip(_named(lines), theirs[name], strict=True):
            if label not in UNCOMPARED:
                assert _compared(ours_said[1]) == _compared(said), f"{name}: {label}"

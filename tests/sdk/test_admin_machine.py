"""Calls about groups and topics against a model of brokers: which node gets the request, retries, and errors."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ottla.codec.apis import consumer_group_describe
from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.codec.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.codec.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.codec.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.codec.apis.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.codec.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse, DescribeConfigsResult
from ottla.codec.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.codec.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.codec.apis.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.codec.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.codec.apis.list_offsets import (
    EARLIEST,
    MAX_TIMESTAMP,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
)
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
)
from ottla.codec.consumer_protocol import ConsumerProtocolAssignment, TopicPartition, build_assignment
from ottla.codec.wire import NO_UUID
from ottla.errors import (
    ConfigurationError,
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    InvalidPartitions,
    KafkaStorageError,
    LeaderNotAvailable,
    NonEmptyGroup,
    NotCoordinator,
    PartialFailure,
    RebootstrapRequired,
    RequestTimedOut,
    TimeoutExpired,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ottla.sdk import calls
from ottla.sdk.admin import CommittedOffset, ListedOffset
from ottla.sdk.calls import resets
from ottla.sdk.calls.offset_lookups import reachable_offsets
from ottla.sdk.cluster.metadata import UNKNOWN_TOPIC_GRACE
from ottla.sdk.consume.reading.fetcher import Offset, Time
from ottla.sdk.core import ClientCore
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from tests.sim.groups import State
from tests.sim.world import ModelBroker, World

NEWEST = {8: (2, 10), 9: (1, 10), 10: (0, 6), 15: (0, 6), 16: (0, 5), 37: (0, 3), 42: (0, 2), 44: (0, 1), 47: (0, 0)}
SILENCE = object()
MEMBER = DescribedGroupMember(
    member_id="c-1",
    client_id="c",
    client_host="/10.0.0.7",
    member_metadata=b"",
    member_assignment=build_assignment(
        ConsumerProtocolAssignment(assigned_partitions=(TopicPartition(topic="t", partitions=(1, 0)),)), 1
    ),
)


CREATE, DELETE, DESCRIBE_CONFIGS, CONSUMER_GROUP_DESCRIBE = 19, 20, 32, 69


@dataclass
class Group:
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    members: tuple[DescribedGroupMember, ...] = ()

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"


class Groups(ModelBroker):
    """A cluster with groups; ``script`` may answer a request instead, also with `SILENCE`."""

    def __init__(self, topics: dict[str, int], nodes: int = 1) -> None:
        super().__init__(topics, nodes)
        self.groups: dict[str, Group] = {}
        self.coordinator: dict[str, int] = {}
        self.versions.update(NEWEST)
        self.script: Callable[[int, Any], Any] = lambda node, message: None

    def asked(self, kind: type) -> list[tuple[int, Any]]:
        return [(node, message) for node, message in self.requests if isinstance(message, kind)]

    def _answer(self, node: int, message: Any) -> Any:
        if not isinstance(message, ApiVersionsRequest) and (answer := self.script(node, message)) is not None:
            return None if answer is SILENCE else answer
        match message:
            case FindCoordinatorRequest(key=key):
                where = self.coordinator.get(key, 1)
                return FindCoordinatorResponse(node_id=where, host=f"n{where}", port=9000 + where)
            case ListGroupsRequest():
                mine = [(name, each) for name, each in self.groups.items() if self.coordinator.get(name, 1) == node]
                return ListGroupsResponse(
                    error_code=0,
                    groups=tuple(
                        ListedGroup(group_id=name, protocol_type="consumer", group_state=each.state)
                        for name, each in mine
                    ),
                )
            case DescribeGroupsRequest(groups=names):
                return DescribeGroupsResponse(groups=tuple(self._described(node, name) for name in names))
            case OffsetFetchRequest() | OffsetCommitRequest():
                return self._offsets(message)
        return super()._answer(node, message)

    def _described(self, node: int, name: str) -> DescribedGroup:
        group = self.groups.get(name)
        wrong = self.coordinator.get(name, 1) != node
        return DescribedGroup(
            error_code=NotCoordinator.code if wrong else 0,
            group_id=name,
            group_state="" if wrong else group.state if group else "Dead",
            protocol_type="consumer" if group else "",
            protocol_data="range" if group and group.members else "",
            members=group.members if group else (),
        )

    def _offsets(self, message: OffsetCommitRequest | OffsetFetchRequest) -> Any:
        """Let the model's coordinator read or write the offsets of the groups."""
        coordinators, answers = self.cluster.groups, list[Any]()
        for name, each in self.groups.items():
            known = coordinators.group(name)
            known.state = State.STABLE if each.members else State.EMPTY
            known.offsets = {place: (offset, -1, "") for place, offset in each.offsets.items()}
        coordinators.act(coordinators.group(message.group_id), "", self._version, message, answers.append)
        for name, known in coordinators.groups.items():
            if known.offsets:
                offsets = {place: offset for place, (offset, *_) in known.offsets.items()}
                self.groups.setdefault(name, Group()).offsets = offsets
        return answers[0]


def cluster(nodes: int = 1, **groups: Group) -> tuple[Groups, World]:
    """A cluster that knows these groups, the n-th on the n-th node in turn, and a client of it."""
    broker = Groups({"t": 2}, nodes)
    broker.groups |= groups
    broker.coordinator |= {name: 1 + index % nodes for index, name in enumerate(groups)}
    world = World(broker, options=Options(api_timeout=10.0, connect_timeout=2.0, request_timeout=3.0))
    world.call(world.core.connect)
    return broker, world


def test_each_coordinator_is_asked_once_for_all_of_its_groups() -> None:
    broker, world = cluster(2, a=Group(), b=Group(members=(MEMBER,)), c=Group())
    described = world.call(lambda now: calls.describe_groups(world.core, ["a", "b", "c"], now))
    assert [(each.group, each.state, each.coordinator.id) for each in described.values()] == [
        ("a", "Empty", 1),
        ("b", "Stable", 2),
        ("c", "Empty", 1),
    ]
    [member] = described["b"].members
    assert (member.member_id, member.client_id, member.host) == ("c-1", "c", "10.0.0.7")
    assert member.assignment == (("t", 0), ("t", 1))
    asked = {node: message.groups for node, message in broker.asked(DescribeGroupsRequest)}
    assert asked == {1: ("a", "c"), 2: ("b",)}


def test_a_coordinator_that_has_moved_is_looked_up_again() -> None:
    broker, world = cluster(2, a=Group())
    world.call(lambda now: calls.describe_groups(world.core, ["a"], now))
    broker.coordinator["a"] = 2
    described = world.call(lambda now: calls.describe_groups(world.core, ["a"], now))
    assert described["a"].coordinator.id == 2
    assert [node for node, _ in broker.asked(DescribeGroupsRequest)] == [1, 1, 2]


def test_a_coordinator_that_loads_is_asked_again_until_the_deadline_which_says_so() -> None:
    broker, world = cluster(a=Group())
    busy = DescribedGroup(
        error_code=CoordinatorLoadInProgress.code,
        group_id="a",
        group_state="",
        protocol_type="",
        protocol_data="",
        members=(),
    )
    broker.script = lambda node, message: (
        DescribeGroupsResponse(groups=(busy,)) if isinstance(message, DescribeGroupsRequest) else None
    )
    with pytest.raises(TimeoutExpired, match=r"describing group 'a': not done within 10 s.*COORDINATOR_LOAD_IN"):
        world.call(lambda now: calls.describe_groups(world.core, ["a"], now))
    assert len(broker.asked(FindCoordinatorRequest)) == 1


def test_a_group_that_is_not_there_is_an_error_also_where_brokers_call_it_dead() -> None:
    _, world = cluster(a=Group())
    with pytest.raises(GroupIdNotFound, match="'x'"):
        world.call(lambda now: calls.describe_groups(world.core, ["x"], now))
    with pytest.raises(PartialFailure) as failed:
        world.call(lambda now: calls.describe_groups(world.core, ["a", "x"], now))
    assert list(failed.value.found) == ["a"] and isinstance(failed.value.failures["x"], GroupIdNotFound)


def test_a_consumer_group_is_described_by_its_own_api() -> None:
    broker, world = cluster(a=Group())
    broker.versions[CONSUMER_GROUP_DESCRIBE] = (0, 1)
    places = (consumer_group_describe.TopicPartitions(topic_id=NO_UUID, topic_name="t", partitions=(1, 0)),)
    assignment = consumer_group_describe.Assignment(topic_partitions=places)
    member = consumer_group_describe.Member(
        member_id="m",
        member_epoch=3,
        client_id="c",
        client_host="/10.0.0.7",
        subscribed_topic_names=("t",),
        assignment=assignment,
        target_assignment=assignment,
    )

    def describe(name: str) -> consumer_group_describe.DescribedGroup:
        return consumer_group_describe.DescribedGroup(
            error_code=0 if name == "new" else GroupIdNotFound.code,
            group_id=name,
            group_state="Stable",
            group_epoch=3,
            assignment_epoch=3,
            assignor_name="uniform",
            members=(member,),
        )

    def script(node: int, message: Any) -> Any:
        if not isinstance(message, ConsumerGroupDescribeRequest):
            return None
        return ConsumerGroupDescribeResponse(groups=tuple(map(describe, message.group_ids)))

    broker.script = script
    found = world.call(lambda now: calls.describe_groups(world.core, ["new"], now))["new"]
    assert (found.type, found.state, found.protocol_type, found.protocol) == (
        "consumer",
        "Stable",
        "consumer",
        "uniform",
    )
    assert found.members[0].assignment == (("t", 0), ("t", 1)) and found.members[0].host == "10.0.0.7"
    with pytest.raises(PartialFailure) as failed:
        world.call(lambda now: calls.describe_groups(world.core, ["a", "new", "x"], now))
    assert list(failed.value.found) == ["a", "new"] and list(failed.value.failures) == ["x"]


@pytest.mark.parametrize(("newest", "requests"), [(10, 1), (8, 1), (7, 2), (2, 2)])
def test_offsets_of_many_groups_are_one_request_where_the_broker_can(newest: int, requests: int) -> None:
    broker, world = cluster(a=Group({("t", 0): 5}), b=Group({("t", 1): 7}))
    broker.versions[9] = (1, newest)
    committed = world.call(lambda now: calls.committed(world.core, {"a": None, "b": None}, now))
    assert committed == {"a": {("t", 0): CommittedOffset(5)}, "b": {("t", 1): CommittedOffset(7)}}
    assert len(broker.asked(OffsetFetchRequest)) == requests


def test_a_broker_that_cannot_tell_all_offsets_is_asked_for_partitions() -> None:
    broker, world = cluster(a=Group({("t", 0): 5}))
    broker.versions[9] = (1, 1)
    with pytest.raises(UnsupportedVersion, match=r"0\.10\.2 or newer: name the partitions"):
        world.call(lambda now: calls.committed(world.core, {"a": None}, now))
    asked = {"a": [("t", 0)]}
    assert world.call(lambda now: calls.committed(world.core, asked, now)) == {"a": {("t", 0): CommittedOffset(5)}}


def test_groups_of_all_brokers_are_listed() -> None:
    broker, world = cluster(3, a=Group(), b=Group(members=(MEMBER,)), c=Group())
    listed = world.call(lambda now: calls.list_groups(world.core, (), (), now))
    assert [(each.group, each.state, each.type, each.coordinator.id) for each in listed] == [
        ("a", "Empty", "classic", 1),
        ("b", "Stable", "classic", 2),
        ("c", "Empty", "classic", 3),
    ]
    assert [each.group for each in world.call(lambda now: calls.list_groups(world.core, ["stable"], (), now))] == ["b"]
    assert world.call(lambda now: calls.list_groups(world.core, (), ["share"], now)) == ()
    broker.versions[16] = (0, 3)
    with_old = World(broker, options=Options())
    with pytest.raises(UnsupportedVersion, match=r"2\.6"):
        with_old.call(lambda now: calls.list_groups(with_old.core, ["stable"], (), now))


@pytest.mark.parametrize(
    ("states", "types", "says"),
    [
        (["empty", "Emty"], [], "'Emty' is not a known group state: do you mean 'Empty'"),
        ([], ["classik"], "'classik' is not a known group type: do you mean 'classic'"),
        ([], ["xyz"], "there are classic, consumer, share, streams"),
    ],
)
def test_a_state_or_type_that_there_is_not_is_refused_with_the_nearest(
    states: list[str], types: list[str], says: str
) -> None:
    _, world = cluster(a=Group())
    with pytest.raises(ConfigurationError, match=says):
        world.call(lambda now: calls.list_groups(world.core, states, types, now))


def test_a_broker_that_cannot_tell_its_groups_is_named_beside_those_of_the_others() -> None:
    broker, world = cluster(2, a=Group(), b=Group())
    broken = ListGroupsResponse(error_code=CoordinatorLoadInProgress.code, groups=())
    broker.script = lambda node, message: broken if node == 2 and isinstance(message, ListGroupsRequest) else None
    with pytest.raises(PartialFailure, match=r"node 2 \(n2:9002\).*COORDINATOR_LOAD") as failed:
        world.call(lambda now: calls.list_groups(world.core, (), (), now))
    assert [each.group for each in failed.value.found] == ["a"]
    assert world.now < 6


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(MetadataResponse(brokers=(), cluster_id="c", topics=()), id="a broker that has just started"),
        pytest.param(
            MetadataResponse(brokers=(), cluster_id="c", topics=(), error_code=RebootstrapRequired.code),
            id="a broker that sends its clients away",
        ),
        pytest.param(
            MetadataResponse(
                brokers=(MetadataResponseBroker(node_id=1, host="n1", port=9001),), cluster_id="another", topics=()
            ),
            id="a broker of another cluster",
        ),
    ],
)
def test_what_is_listed_comes_from_no_broker_whose_metadata_the_client_refuses(refused: MetadataResponse) -> None:
    broker, _ = cluster(a=Group())
    broker.versions[3] = (0, 13)  # the first version with the error code
    world = World(broker)
    world.call(world.core.connect)
    world.core.cluster.cluster_id = "c"
    until = 0.0
    broker.script = lambda node, message: (
        refused if isinstance(message, MetadataRequest) and world.now < until else None
    )
    until = world.now + 2.0
    assert world.call(lambda now: calls.list_topics(world.core, now)) == ["t"]
    until = world.now + 2.0
    assert [each.group for each in world.call(lambda now: calls.list_groups(world.core, (), (), now))] == ["a"]
    until = world.now + 2.0
    found = world.call(lambda now: reachable_offsets(world.core, {("t", 0): EARLIEST}, now))
    assert isinstance(found["t", 0], ListedOffset)


def test_a_group_that_somebody_is_in_is_not_reset_and_its_members_are_named() -> None:
    broker, world = cluster(a=Group({("t", 0): 5}, (MEMBER,)))
    with pytest.raises(NonEmptyGroup, match=r"'a' is Stable; its members: c-1 \(client c, 10\.0\.0\.7\)"):
        world.call(lambda now: resets.reset_offsets(world.core, "a", Offset(0), None, True, now))
    assert not broker.asked(OffsetCommitRequest)


def test_a_member_that_joins_before_the_commit_is_found_by_it() -> None:
    broker, world = cluster(a=Group({("t", 0): 0}))

    def join(node: int, message: Any) -> None:
        if isinstance(message, OffsetCommitRequest):
            broker.groups["a"].members = (MEMBER,)

    broker.script = join
    with pytest.raises(NonEmptyGroup, match="c-1"):
        world.call(lambda now: resets.reset_offsets(world.core, "a", resets.Current(), None, True, now))


def test_a_group_that_was_deleted_without_an_answer_counts_as_deleted() -> None:
    broker, world = cluster(a=Group())
    answers = iter([SILENCE, None])

    def script(node: int, message: Any) -> Any:
        if not isinstance(message, DeleteGroupsRequest):
            return None
        code = 0 if broker.groups.pop("a", None) else GroupIdNotFound.code
        result = DeletableGroupResult(group_id=message.groups_names[0], error_code=code)
        return next(answers, None) or DeleteGroupsResponse(results=(result,))

    broker.script = script
    world.call(lambda now: calls.delete_groups(world.core, ["a"], now))
    assert len(broker.asked(DeleteGroupsRequest)) == 2 and not broker.groups
    with pytest.raises(GroupIdNotFound):
        world.call(lambda now: calls.delete_groups(world.core, ["a"], now))


@pytest.mark.parametrize(
    "asked", [CreateTopicsRequest, CreatePartitionsRequest, DeleteTopicsRequest, DeleteGroupsRequest]
)
@pytest.mark.parametrize("silent", [False, True], ids=["timed out", "silent"])
def test_what_the_broker_has_done_without_saying_so_counts_as_done(asked: type, silent: bool) -> None:
    """When its timeout passes, a broker answers REQUEST_TIMED_OUT and continues the work."""
    broker, world = cluster(a=Group())
    broker.versions.update({CREATE: (0, 4), DELETE: (0, 4)})

    def answer(message: Any, code: int) -> Any:
        match message:
            case CreateTopicsRequest():
                code = code or TopicAlreadyExists.code
                return CreateTopicsResponse(topics=(CreatableTopicResult(name="t", error_code=code),))
            case CreatePartitionsRequest():
                code = code or InvalidPartitions.code
                return CreatePartitionsResponse(results=(CreatePartitionsTopicResult(name="t", error_code=code),))
            case DeleteTopicsRequest():
                code = code or UnknownTopicOrPartition.code
                return DeleteTopicsResponse(responses=(DeletableTopicResult(name="t", error_code=code),))
            case DeleteGroupsRequest():
                code = code or GroupIdNotFound.code
                return DeleteGroupsResponse(results=(DeletableGroupResult(group_id="a", error_code=code),))

    def script(node: int, message: Any) -> Any:
        if not isinstance(message, asked):
            return None
        first = len(broker.asked(asked)) == 1
        return SILENCE if first and silent else answer(message, RequestTimedOut.code if first else 0)

    broker.script = script
    start: dict[type, Callable[[float], Outcome[Any]]] = {
        CreateTopicsRequest: lambda now: calls.create_topic(world.core, "t", 2, 1, {}, now),
        CreatePartitionsRequest: lambda now: calls.create_partitions(world.core, "t", 2, now),
        DeleteTopicsRequest: lambda now: calls.delete_topic(world.core, "t", now),
        DeleteGroupsRequest: lambda now: calls.delete_groups(world.core, ["a"], now),
    }
    world.call(start[asked])
    assert len(broker.asked(asked)) == 2


@pytest.mark.parametrize("call", ["create", "grow", "configure", "delete", "describe"])
def test_a_topic_that_the_brokers_disk_keeps_back_is_an_error_at_once(call: str) -> None:
    """`ottla broker` answers so for a topic with a damaged file, until a restart."""
    broker, _ = cluster()
    broker.versions.update({CREATE: (0, 4), DELETE: (0, 4), DESCRIBE_CONFIGS: (1, 4)})
    world = World(broker)
    world.call(world.core.connect)
    bad: dict[str, Any] = {"name": "t", "error_code": KafkaStorageError.code}
    config = DescribeConfigsResult(
        error_code=KafkaStorageError.code, error_message=None, resource_type=2, resource_name="t", configs=()
    )
    change = AlterConfigsResourceResponse(
        error_code=KafkaStorageError.code, error_message=None, resource_type=2, resource_name="t"
    )
    answers: dict[type, Any] = {
        CreateTopicsRequest: CreateTopicsResponse(topics=(CreatableTopicResult(**bad),)),
        CreatePartitionsRequest: CreatePartitionsResponse(results=(CreatePartitionsTopicResult(**bad),)),
        IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse(responses=(change,)),
        DeleteTopicsRequest: DeleteTopicsResponse(responses=(DeletableTopicResult(**bad),)),
        DescribeConfigsRequest: DescribeConfigsResponse(results=(config,)),
    }
    broker.script = lambda node, message: answers.get(type(message))
    start: dict[str, Callable[[float], Outcome[Any]]] = {
        "create": lambda now: calls.create_topic(world.core, "t", 2, 1, {}, now),
        "grow": lambda now: calls.create_partitions(world.core, "t", 3, now),
        "configure": lambda now: calls.configure_topic(world.core, "t", {"retention.ms": "5"}, now),
        "delete": lambda now: calls.delete_topic(world.core, "t", now),
        "describe": lambda now: calls.describe_topic(world.core, "t", now, configs=True),
    }
    with pytest.raises(KafkaStorageError):
        world.call(start[call])
    assert sum(type(message) in answers for _, message in broker.requests) == 1


@pytest.mark.parametrize(("key", "since"), [(42, "1.1"), (37, "1.0"), (44, "2.3"), (47, "2.4")])
def test_an_api_that_a_broker_lacks_is_named_with_the_version_that_brought_it(key: int, since: str) -> None:
    broker, world = cluster(a=Group())
    del broker.versions[key]
    world = World(broker)
    asked: dict[int, Callable[[float], Outcome[Any]]] = {
        42: lambda now: calls.delete_groups(world.core, ["a"], now),
        37: lambda now: calls.create_partitions(world.core, "t", 3, now),
        44: lambda now: calls.configure_topic(world.core, "t", {"retention.ms": "5"}, now),
        47: lambda now: calls.delete_offsets(world.core, "a", [("t", 0)], now),
    }
    world.call(world.core.connect)
    with pytest.raises(UnsupportedVersion, match=rf"does not offer it; you need Kafka {since} or newer"):
        world.call(asked[key])


@pytest.mark.parametrize("before", [2, 3])
def test_a_topic_that_grew_without_an_answer_counts_as_grown(before: int) -> None:
    broker, world = cluster()
    if before == 3:
        broker.cluster.grow("t", 1)
    refused = CreatePartitionsTopicResult(name="t", error_code=InvalidPartitions.code, error_message="has 3")
    answers = iter([SILENCE] if before == 2 else [])

    def script(node: int, message: Any) -> Any:
        if not isinstance(message, CreatePartitionsRequest):
            return None
        if ("t", 2) not in broker.logs:
            broker.cluster.grow("t", 1)
        return next(answers, CreatePartitionsResponse(results=(refused,)))

    broker.script = script
    if before == 2:
        grown = world.call(lambda now: calls.create_partitions(world.core, "t", 3, now))
        assert [each.partition for each in grown.partitions] == [0, 1, 2]
    else:
        with pytest.raises(InvalidPartitions, match="has 3"):
            world.call(lambda now: calls.create_partitions(world.core, "t", 3, now))


def test_brokers_that_know_only_segments_are_asked_for_the_beginning_where_none_is_so_old() -> None:
    broker, world = cluster()
    broker.versions[2] = (0, 0)

    def script(node: int, message: Any) -> Any:
        if not isinstance(message, ListOffsetsRequest):
            return None
        [topic] = message.topics
        known = {EARLIEST: (3,), 1000: (), 5000: (40, 3)}
        return ListOffsetsResponse(
            topics=(
                ListOffsetsTopicResponse(
                    name="t",
                    partitions=tuple(
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, error_code=0, old_style_offsets=known[each.timestamp]
                        )
                        for each in topic.partitions
                    ),
                ),
            )
        )

    broker.script = script
    found = world.call(lambda now: calls.list_offsets(world.core, {("t", 0): 1000, ("t", 1): 5000}, now))
    assert found == {("t", 0): ListedOffset(3), ("t", 1): ListedOffset(40)}


def test_a_topic_that_goes_while_offsets_are_looked_up_is_told_once_brokers_have_not_known_it_for_a_while() -> None:
    broker, world = cluster()

    def script(node: int, message: Any) -> Any:
        if not isinstance(message, ListOffsetsRequest):
            return None
        broker.cluster.delete("t")
        unknown = ListOffsetsPartitionResponse(partition_index=0, error_code=UnknownTopicOrPartition.code)
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(unknown,)),))

    broker.script = script
    start = world.now
    with pytest.raises(UnknownTopicOrPartition):
        world.call(lambda now: calls.list_offsets(world.core, {("t", 0): EARLIEST}, now))
    assert UNKNOWN_TOPIC_GRACE <= world.now - start < UNKNOWN_TOPIC_GRACE + 1


def test_a_topic_that_has_fewer_partitions_while_offsets_are_looked_up_is_told_of_as_soon() -> None:
    broker, world = cluster()

    def script(node: int, message: Any) -> Any:
        if not isinstance(message, ListOffsetsRequest):
            return None
        broker.cluster.recreate("t", 1)
        unknown = ListOffsetsPartitionResponse(partition_index=1, error_code=UnknownTopicOrPartition.code)
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(unknown,)),))

    broker.script = script
    start = world.now
    with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 0, not 1"):
        world.call(lambda now: calls.list_offsets(world.core, {("t", 1): EARLIEST}, now))
    assert UNKNOWN_TOPIC_GRACE <= world.now - start < UNKNOWN_TOPIC_GRACE + 1


def test_the_largest_timestamp_is_not_taken_for_a_time_by_old_brokers() -> None:
    broker, world = cluster()
    broker.versions[2] = (1, 6)
    with pytest.raises(UnsupportedVersion, match=r"since Kafka 3\.0"):
        world.call(lambda now: calls.list_offsets(world.core, {("t", 0): MAX_TIMESTAMP}, now))


@pytest.mark.parametrize("target", [Offset(5), Time(0), resets.Current()])
def test_a_reset_that_waits_for_a_leader_says_so_at_its_deadline(target: resets.Target) -> None:
    broker, world = cluster(a=Group())
    broker.cluster.lead(("t", 0), -1)
    with pytest.raises(TimeoutExpired, match=r"resetting offsets of group 'a': not done .*t-0 has no leader"):
        world.call(lambda now: resets.reset_offsets(world.core, "a", target, ["t"], False, now))


def test_an_offset_before_a_time_that_waits_for_a_leader_says_so_at_its_deadline() -> None:
    broker, world = cluster()
    broker.cluster.lead(("t", 0), -1)
    with pytest.raises(TimeoutExpired, match=r"t-0 has no leader"):
        world.call(lambda now: calls.offsets_before(world.core, {("t", 0): 5}, now))


def test_lag_is_told_where_it_can_be_and_why_where_it_cannot() -> None:
    broker, world = cluster(a=Group({("t", 0): 5, ("gone", 0): 9, ("t", 7): 1}, (MEMBER,)))
    broker.logs["t", 0].append(*[b""] * 12)
    lag = world.call(lambda now: calls.group_lags(world.core, ["a"], now))["a"]
    rows = [(each.topic, each.partition, each.committed, each.end, each.lag) for each in lag.partitions]
    assert rows == [
        ("gone", 0, 9, None, None),
        ("t", 0, 5, 12, 7),
        ("t", 1, None, 0, None),
        ("t", 7, 1, None, None),
    ]
    assert "gone" in lag.partitions[0].trouble and "partitions 0 to 1, not 7" in lag.partitions[3].trouble
    assert [each.member.member_id if each.member else None for each in lag.partitions] == [None, "c-1", "c-1", None]
    assert lag.total == 7


@pytest.mark.parametrize(("partitions", "replication_factor"), [(-1, 1), (2, -1)])
def test_a_number_is_not_left_to_brokers_that_have_no_default(partitions: int, replication_factor: int) -> None:
    broker, world = cluster()
    broker.versions[CREATE] = (0, 3)
    with pytest.raises(UnsupportedVersion, match=r"before Kafka 2\.4 .*: give partitions and replication_factor"):
        world.call(lambda now: calls.create_topic(world.core, "new", partitions, replication_factor, {}, now))
    assert not broker.asked(CreateTopicsRequest)


def test_a_broker_has_less_time_than_it_is_waited_for() -> None:
    """The request has a shorter timeout than the client, so that the broker's REQUEST_TIMED_OUT arrives in time."""
    broker, world = cluster()
    broker.versions.update({CREATE: (0, 7), DELETE: (0, 6)})
    broker.script = lambda node, message: (
        SILENCE if isinstance(message, CreateTopicsRequest | DeleteTopicsRequest) else None
    )
    for call in (
        lambda now: calls.create_topic(world.core, "new", -1, -1, {}, now),
        lambda now: calls.delete_topic(world.core, "t", now),
    ):
        with pytest.raises(TimeoutExpired):
            world.call(call)
    asked = broker.asked(CreateTopicsRequest) + broker.asked(DeleteTopicsRequest)
    timeout = world.core.options.request_timeout
    assert asked and {message.timeout_ms for _, message in asked} == {int(0.8 * timeout * 1000)}


Start = Callable[[ClientCore, float], Outcome[Any]]


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(lambda core, now: calls.create_topic(core, "x", 1, 1, {}, now), id="create_topic"),
        pytest.param(lambda core, now: calls.create_partitions(core, "x", 3, now), id="create_partitions"),
        pytest.param(lambda core, now: calls.list_offsets(core, {("x", 0): -1, ("y", 0): -1}, now), id="list_offsets"),
        pytest.param(lambda core, now: calls.leader(core, ("x", 0), now), id="leader"),
    ],
)
def test_nothing_more_is_asked_about_a_topic_whose_caller_is_gone(start: Start) -> None:
    broker, world = cluster()
    broker.versions[CREATE] = (0, 4)

    def script(node: int, message: Any) -> Any:
        if isinstance(message, CreateTopicsRequest):
            made = CreatableTopicResult(name="x", error_code=0, error_message=None)
            return CreateTopicsResponse(topics=(made,))
        if isinstance(message, CreatePartitionsRequest):
            return CreatePartitionsResponse(results=(CreatePartitionsTopicResult(name="x", error_code=0),))
        return nowhere(message) if isinstance(message, MetadataRequest) and message.topics else None

    def nowhere(message: MetadataRequest) -> MetadataResponse:
        """The topics exist, and have no leader yet."""
        topics = [
            MetadataResponseTopic(error_code=LeaderNotAvailable.code, name=each.name, partitions=())
            for each in message.topics or ()
        ]
        return replace(broker.cluster._metadata(1, 9, MetadataRequest(topics=())), topics=tuple(topics))

    broker.script = script
    outcome = start(world.core, world.now)
    world.run(lambda: world.now > 2.0)
    with world.core.gate:
        outcome.cancel()
    asked = broker.asked(MetadataRequest)
    assert len(asked) > 10
    world.run(20.0)
    assert len(broker.asked(MetadataRequest)) <= len(asked) + 1, "at most the request that was already scheduled"

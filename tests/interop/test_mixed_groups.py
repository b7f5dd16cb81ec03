"""ottla's consumer in a group with other clients, on Apache Kafka: members join, leave and die, and no record is lost.

The first member to join leads the group, and assigns the partitions of all.
"""

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.interop.lines import Message
from tests.interop.members import MEMBERS, OURS, Member, MemberClient, shared, until
from tests.interop.peers import LIBRDKAFKA, create_topic
from tests.kafka import ApacheKafka
from tests.patience import HUNG

pytestmark = pytest.mark.slow

PARTITIONS = 8
JAVA, OTHER = MEMBERS["java"], MEMBERS["librdkafka"]


class Group:
    """A topic of its own, and a group that reads numbers from it; a context manager.

    Args:
        session: the session timeout in seconds; a member that stalls for longer must rejoin, and loses its partitions.

    Attributes:
        members: all members, including the ones that have ended.
        sent: the number of records sent so far.
    """

    def __init__(self, kafka: ApacheKafka, assignor: str, *, session: int = 6) -> None:
        self.bootstrap, self.assignor, self.session = kafka.bootstrap, assignor, session
        self.name = self.topic = f"mixed-{uuid.uuid4().hex[:8]}"
        self.members: list[Member] = []
        self.sent = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        create_topic(self.bootstrap, self.topic, PARTITIONS)
        self._producer = self._stack.enter_context(LIBRDKAFKA.producing(self.bootstrap, {"linger.ms": "5"}))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def join(self, *clients: MemberClient) -> list[Member]:
        """Let clients join, one after the other, and wait until all members share the partitions."""
        new = []
        for client in clients:
            config = {"session.timeout.ms": str(self.session * 1000)}
            member = client.join(self.bootstrap, self.topic, self.name, assignor=self.assignor, config=config)
            new.append(self._stack.enter_context(member))
            self.members.append(member)
            self.await_shared()
        return new

    @property
    def running(self) -> list[Member]:
        return [each for each in self.members if each.runs]

    def produce(self, count: int) -> None:
        """Send so many more numbers, into all partitions."""
        for number in range(self.sent, self.sent + count):
            self._producer.send(Message(self.topic, None, b"%d" % number, partition=number % PARTITIONS))
        self._producer.flush()
        self.sent += count

    @contextmanager
    def flow(self) -> Iterator[None]:
        """Send numbers without a pause; at the end, wait until all of them have been read."""
        over = threading.Event()

        def send() -> None:
            while not over.wait(0.02):
                self.produce(20)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            yield
        finally:
            over.set()
            sender.join()
        self.await_read()

    def await_shared(self, timeout: float = HUNG) -> None:
        """Wait until every running member has partitions, and each partition one member."""
        running = self.running
        until(lambda: shared(running, PARTITIONS), running, timeout)

    def await_read(self, timeout: float = HUNG) -> None:
        """Wait until the members have read all sent numbers."""
        until(lambda: self.seen.keys() == set(range(self.sent)), self.running, timeout)

    @property
    def seen(self) -> Counter[int]:
        return Counter(int(record.value or b"") for member in self.members for record in member.records)

    @property
    def committed(self) -> int:
        """The sum of the committed offsets, as an administrator sees them."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        result = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.name)])[self.name]
        return sum(place.offset for place in result.result(timeout=HUNG).topic_partitions or ())


def named(group: Group, name: str) -> Member:
    return next(each for each in group.members if each.name == name)


def in_turn(clients: tuple[MemberClient, ...]) -> str:
    return "-".join(map(str, clients))


@pytest.mark.deep
@pytest.mark.parametrize("first", [OURS, JAVA, OTHER], ids=str)
def test_clients_of_six_kinds_share_a_topic_and_nothing_is_lost_when_they_come_leave_and_die(
    kafka: ApacheKafka, first: MemberClient
) -> None:
    others = [each for each in (OURS, *MEMBERS.values()) if each is not first]
    with Group(kafka, "roundrobin") as group:
        group.join(first)
        with group.flow():
            group.join(*others)
            ours, killed, leaver = (named(group, each) for each in ("ottla", "librdkafka", "aiokafka"))
            killed.kill()
            group.await_shared()
            leaver.leave()
            group.await_shared()
            group.join(OURS)
            ours.kill()
            group.await_shared()
            named(group, "kafka-python").leave()
            group.await_shared()
        for member in group.running:
            member.leave()
        assert group.committed == group.sent
        assert all(member.records for member in group.members), "every member had a share"


@pytest.mark.deep
@pytest.mark.parametrize("clients", [(OURS, JAVA, OTHER), (JAVA, OTHER, OURS)], ids=in_turn)
def test_cooperative_members_keep_what_they_read_while_others_come_leave_and_die(
    kafka: ApacheKafka, clients: tuple[MemberClient, ...]
) -> None:
    with Group(kafka, "cooperative-sticky", session=15) as group:
        for client in clients:
            before = {member: member.partitions for member in group.members}
            with group.flow():
                group.join(client)
            kept = {each.name: (sorted(before[each]), sorted(each.partitions)) for each in before}
            assert all(each.partitions < before[each] for each in before), f"they only gave up: {kept}"
        first, second, third = group.members
        before = {member: member.partitions for member in group.members}
        with group.flow():
            second.kill()
            group.await_shared()
        assert first.partitions > before[first] and third.partitions > before[third], "and only took over"
        third.leave()
        with group.flow():
            group.await_shared()
        first.leave()
        assert group.committed == group.sent


@pytest.mark.deep
@pytest.mark.parametrize("clients", [(OURS, JAVA), (JAVA, OURS)], ids=in_turn)
def test_sticky_members_get_again_what_they_had(kafka: ApacheKafka, clients: tuple[MemberClient, ...]) -> None:
    with Group(kafka, "sticky") as group, group.flow():
        first, second = group.join(*clients)
        assert len(first.partitions) == len(second.partitions) == PARTITIONS // 2
        before = first.partitions, second.partitions
        (third,) = group.join(OURS)
        between = first.partitions, second.partitions
        assert between[0] < before[0] and between[1] < before[1]
        third.kill()
        group.await_shared()
        assert first.partitions > between[0] and second.partitions > between[1]


@pytest.mark.parametrize("client", MEMBERS.values(), ids=str)
def test_each_goes_on_where_the_other_has_committed(kafka: ApacheKafka, client: MemberClient) -> None:
    with Group(kafka, "roundrobin") as group:
        for turn, each in enumerate((OURS, client, OURS)):
            group.produce(200)
            (member,) = group.join(each)
            group.await_read()
            member.leave()
            assert sorted(int(record.value or b"") for record in member.records) == list(
                range(200 * turn, 200 * (turn + 1))
            )
            assert group.committed == group.sent

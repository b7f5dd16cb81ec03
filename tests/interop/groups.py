"""A group that members of several clients share: they join, leave and die while records flow.

with Group(bootstrap) as group:
    with group.flow():
        first, second = group.join(OURS, MEMBERS["java"])
        second.kill()
        group.await_shared()
"""

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.interop.lines import Message
from tests.interop.members import Member, MemberClient, shared, until
from tests.interop.peers import LIBRDKAFKA, create_topic
from tests.patience import HUNG

PARTITIONS = 8


class Group:
    """A topic of its own, and a group that reads numbers from it; a context manager.

    Args:
        assignor: of members that use the classic protocol.

    Attributes:
        name: the name of the group and of its topic.
        members: all members, including the ones that have ended.
        sent: the number of records sent so far.
    """

    def __init__(self, bootstrap: str, assignor: str = "range") -> None:
        self.bootstrap, self.assignor = bootstrap, assignor
        self.name = f"mixed-{uuid.uuid4().hex[:8]}"
        self.members: list[Member] = []
        self.sent = 0
        self._flows = False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        create_topic(self.bootstrap, self.name, PARTITIONS)
        config = {**LIBRDKAFKA.idempotence, **LIBRDKAFKA.soon_back, "linger.ms": "5"}
        self._producer = self._stack.enter_context(LIBRDKAFKA.producing(self.bootstrap, config))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def join(self, *clients: MemberClient) -> list[Member]:
        """Let clients join, one after the other, and wait until all members share the partitions.

        While numbers flow, wait also until each new member has read some: it may be killed or leave right after this.
        """
        new = []
        for client in clients:
            assignor = None if "group.protocol" in client.settings else self.assignor
            member = self._stack.enter_context(client.join(self.bootstrap, self.name, self.name, assignor=assignor))
            new.append(member)
            self.members.append(member)
            self.await_shared()
            if self._flows:
                until(lambda: bool(new[-1].records), self.running)
        return new

    def replace(self, member: Member, client: MemberClient) -> Member:
        """Let a member leave, and another one join."""
        member.leave()
        return self.join(client)[0]

    def leave(self) -> None:
        """Let all members leave."""
        for member in self.running:
            member.leave()

    @property
    def running(self) -> list[Member]:
        return [each for each in self.members if each.runs]

    def named(self, name: str) -> Member:
        return next(each for each in self.members if each.name == name)

    def produce(self, count: int) -> None:
        """Send so many more numbers, each as key and value, into all partitions."""
        for number in range(self.sent, self.sent + count):
            value = b"%d" % number
            self._producer.send(Message(self.name, value, value, partition=number % PARTITIONS))
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
        self._flows = True
        try:
            yield
        finally:
            self._flows = False
            over.set()
            sender.join()
        self.await_read()

    def await_shared(self, timeout: float = HUNG) -> None:
        """Wait until the running members share the partitions evenly."""
        running = self.running
        until(lambda: shared(running, PARTITIONS), running, timeout)

    def await_read(self, timeout: float = HUNG) -> None:
        """Wait until the members have read all sent numbers."""
        found = set[int]()
        looked = dict.fromkeys(self.members, 0)

        def all_read() -> bool:
            """Looks only at records that are new: members wait with each line until the condition was checked."""
            for member in self.members:
                new = member.records[looked[member] :]
                found.update(int(record.value or b"") for record in new)
                looked[member] += len(new)
            return len(found) >= self.sent

        until(all_read, self.running, timeout)
        assert found == set(range(self.sent))

    @property
    def seen(self) -> Counter[int]:
        """How often the members have read each number."""
        return Counter(int(record.value or b"") for member in self.members for record in member.records)

    def repeated_only_after(self, *killed: Member) -> bool:
        """Whether records came twice only if one of the killed members had them."""
        had = {int(record.value or b"") for member in killed for record in member.records}
        return {number for number, times in self.seen.items() if times > 1} <= had

    @property
    def committed(self) -> int:
        """The sum of the committed offsets, as an administrator sees them."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        result = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.name)])[self.name]
        return sum(place.offset for place in result.result(timeout=HUNG).topic_partitions or ())

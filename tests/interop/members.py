"""Members of consumer groups, of other clients and ottla, as programs that tests start, stop and kill.

    with MEMBERS["java"].join(bootstrap, "flights", "billing") as a, MEMBERS["librdkafka"].join(…) as b:
        until(lambda: shared((a, b), 6))

A program reads the topic, commits after each batch, and leaves in good order when its standard input ends. It prints
``assigned`` and its partitions, separated by spaces, after each change; and ``record`` and the record's fields, as in
`tests.interop.lines`.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.interop.lines import Received
from tests.interop.peers import AIOKAFKA, JAVA, KAFKAJS, LIBRDKAFKA, PeerFailed, Running
from tests.interop.programs import go_program, kafka_python
from tests.patience import HUNG

_news = threading.Condition()
"""An item in the queue: a member printed a line."""


@dataclass(frozen=True)
class MemberClient:
    """A client that can be a member.

    Attributes:
        settings: the client's names for settings that tests need of all clients.
        assignors: Kafka's names and the client's own names, for the assignors that it has.
    """

    name: str
    command: Callable[[str], list[str]]
    settings: Mapping[str, str]
    assignors: Mapping[str, str]

    def __str__(self) -> str:
        return self.name

    def join(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        *,
        assignor: str | None = None,
        config: Mapping[str, str] | None = None,
        progressed: Callable[[], None] = lambda: None,
    ) -> "Member":
        """Start a member with a session timeout of 15 seconds, more than a pause of a busy machine; a context manager.

        Args:
            config: settings, in the client's own names.
            progressed: called in a thread for each record that it has read.
        """
        settings = {"bootstrap.servers": bootstrap, "group.id": group, **self.settings}
        if assignor is not None:
            settings |= {"partition.assignment.strategy": self.assignors[assignor]} if self.assignors[assignor] else {}
        settings |= config or {}
        command = [*self.command("join"), topic, *(f"{k}={v}" for k, v in settings.items())]
        return Member(self.name, command, progressed)


_COMMON = {"auto.offset.reset": "earliest", "enable.auto.commit": "false", "session.timeout.ms": "15000"}
_JAVA = "org.apache.kafka.clients.consumer."

MEMBERS = {
    each.name: each
    for each in (
        MemberClient(
            "java",
            JAVA.command,
            {**_COMMON, "heartbeat.interval.ms": "300", "metadata.max.age.ms": "1000"},
            {
                "range": f"{_JAVA}RangeAssignor",
                "roundrobin": f"{_JAVA}RoundRobinAssignor",
                "sticky": f"{_JAVA}StickyAssignor",
                "cooperative-sticky": f"{_JAVA}CooperativeStickyAssignor",
            },
        ),
        MemberClient(
            "librdkafka",
            LIBRDKAFKA.command,
            {**_COMMON, "heartbeat.interval.ms": "300", "topic.metadata.refresh.interval.ms": "1000"},
            {each: each for each in ("range", "roundrobin", "cooperative-sticky")},
        ),
        MemberClient("aiokafka", AIOKAFKA.command, {**_COMMON, "heartbeat.interval.ms": "300"}, {"roundrobin": ""}),
        MemberClient(
            "kafka-python",
            lambda role: kafka_python("tests.interop.kafka_python_peer", role),
            {**_COMMON, "heartbeat.interval.ms": "300"},
            {"roundrobin": ""},
        ),
        # kafkajs has no assignor that other clients know: the program brings one.
        MemberClient("kafkajs", KAFKAJS.command, {**_COMMON, "heartbeat.interval.ms": "300"}, {"roundrobin": ""}),
    )
}


OURS = MemberClient(
    "ottla",
    lambda role: [sys.executable, "-m", "tests.interop.ottla_peer", role],
    {**_COMMON, "heartbeat.interval.ms": "300", "metadata.max.age.ms": "1000"},
    {each: each for each in ("range", "roundrobin", "sticky", "cooperative-sticky")},
)


_FRANZ = MemberClient("franz-go", lambda role: [go_program("franz_join"), role], {"metadata.max.age.ms": "1000"}, {})


def _without_timeouts(settings: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in settings.items() if k not in ("session.timeout.ms", "heartbeat.interval.ms")}


CONSUMER_PROTOCOL = {
    each.name: replace(each, settings={**_without_timeouts(each.settings), "group.protocol": "consumer"}, assignors={})
    for each in (OURS, MEMBERS["java"], MEMBERS["librdkafka"], _FRANZ)
}
"""The clients that have the group protocol of KIP-848: the broker divides partitions, and sets the timeouts."""

CHOOSING = replace(OURS, settings={**_without_timeouts(OURS.settings), "group.protocol": "auto"}, assignors={})
"""ottla with its default: it chooses the protocol."""


class Member(Running):
    """A running member.

    Attributes:
        partitions: its current partitions.
        records: the records that it has read so far.
    """

    def __init__(self, name: str, command: Sequence[str], progressed: Callable[[], None]) -> None:
        self.name = name
        self._progressed = progressed
        self.partitions: frozenset[int] = frozenset()
        self.records: list[Received] = []
        super().__init__(command)

    def leave(self) -> None:
        """Make the member close its consumer, and end."""
        self.close()
        self.partitions = frozenset()

    def kill(self) -> None:
        """Kill the program, so that it does not leave its group."""
        super().kill()
        self.partitions = frozenset()

    def heard(self, line: str) -> None:
        kind, _, rest = line.partition("\t")
        with _news:
            if kind == "assigned":
                self.partitions = frozenset(map(int, rest.split()))
            elif kind == "record":
                self.records.append(Received.parse(rest))
            _news.notify_all()
        if kind == "record":
            self._progressed()

    def __str__(self) -> str:
        return f"{self.name} with {len(self.records)} records and partitions {sorted(self.partitions)}"


def until(condition: Callable[[], bool], members: Iterable[Member], timeout: float = HUNG) -> None:
    """Wait until ``condition`` holds; check it whenever a member has printed a line.

    Raises:
        PeerFailed: the condition did not hold in time, or a member has ended.
    """
    deadline = time.monotonic() + timeout
    with _news:
        while not condition():
            if ended := [member for member in members if not member.runs]:
                raise PeerFailed(f"{ended[0]} has ended:\n{ended[0].said()}")
            if time.monotonic() > deadline:
                they = "\n".join(f"{member}; it wrote: {member.said() or 'nothing'}" for member in members)
                raise PeerFailed(f"not within {timeout:g} s: {they}")
            _news.wait(0.2)


def shared(members: Sequence[Member], partitions: int) -> bool:
    """Whether each partition has one member, and each member as many partitions as another one, or one more.

    Every assignor ends there for one topic. In a rebalance, each member may have partitions before it ends.
    """
    all_of_them = sorted(index for member in members for index in member.partitions)
    counts = {len(member.partitions) for member in members}
    return all_of_them == list(range(partitions)) and min(counts) > 0 and max(counts) - min(counts) <= 1


# -- for the programs


def input_ends() -> threading.Event:
    """An event that is set when standard input ends."""
    over = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=watch, daemon=True).start()
    return over


_told: list[int] = []


def tell_assigned(partitions: Iterable[int]) -> None:
    """Print the partitions, if they have changed."""
    if (now := sorted(partitions)) != _told:
        _told[:] = now
        print("assigned", " ".join(map(str, now)), sep="\t", flush=True)


def tell_record(received: Received) -> None:
    print("record", received.line(), sep="\t", flush=True)

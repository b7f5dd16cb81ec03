"""How many requests the members of a consumer group (KIP-848) send, counted on their way to Apache Kafka.

Rules:
- A relay stands before each node, at the address that the node advertises to the members. It counts their requests by
  API. Other requests, such as a producer's, go to another listener.
- Members of several clients are counted at the same time, in a group each, whose name is their client id.
- Counting begins a while after each group has reached its assignment, and ends before members leave.
- A group has the same epoch and the same members before and after. Otherwise a member was fenced or has rejoined, and
  the figures would include a rebalance.
"""

import contextlib
import itertools
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import ottla.sync
from ottla.codec.apis import APIS
from ottla.codec.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from tests import kafka
from tests.bench.clients.process import Broken
from tests.bench.clients.task import Figures
from tests.bench.peer import Peer
from tests.interop.programs import java_classes
from tests.interop.relay import Relay

PATIENCE = 120.0
"""Seconds until all members have joined."""
_DESCRIBE = 0
TOPIC = "requests"
_SETTINGS = {
    "group.consumer.assignors": "range",  # so that members of all groups have the same partitions
    # On a busy machine a node would otherwise lose its partitions for a moment.
    "broker.session.timeout.ms": "60000",
}


@dataclass(frozen=True, kw_only=True)
class Load:
    """The topic that the members of a group read.

    Attributes:
        nodes: lead as many of the partitions each.
        partitions: of each member.
        pace: records a second, spread over all partitions.
    """

    nodes: int = 1
    partitions: int = 1
    pace: float = 0.0


@dataclass(frozen=True)
class Served:
    """Nodes of Apache Kafka behind relays, with a topic."""

    cluster: kafka.ApacheKafka
    relays: Sequence[Relay]

    @property
    def bootstrap(self) -> str:
        """The addresses at which requests are counted."""
        return ",".join(each.address for each in self.relays)

    def counts(self) -> Counter[tuple[str, int]]:
        """Client id and API key -> requests so far."""
        return sum((each.counts for each in self.relays), Counter())

    def group(self, name: str) -> DescribedGroup | None:
        """The group, as its coordinator describes it; ``None`` until one knows it."""
        for node in self.cluster.nodes:
            with contextlib.closing(Peer(node.port)) as peer:
                request = ConsumerGroupDescribeRequest(group_ids=(name,), include_authorized_operations=False)
                [found] = peer.ask(request, _DESCRIBE, ConsumerGroupDescribeResponse).groups
            if found.error_code == 0:
                described: DescribedGroup = found
                return described
        return None


@contextlib.contextmanager
def serving(load: Load, members: int) -> Iterator[Served]:
    """Start Apache Kafka, create the topic, and write to it at the pace of the load."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home, contextlib.ExitStack() as stack:
        cluster = kafka.start(Path(home), load.nodes, _SETTINGS)
        stack.callback(cluster.stop)
        relays = [stack.enter_context(Relay(cluster.relayed(node), cluster.relay(node))) for node in range(load.nodes)]
        client = stack.enter_context(ottla.sync.connect(cluster.bootstrap))
        partitions = load.partitions * members
        client.create_topic(TOPIC, partitions=partitions, replication_factor=1)
        if load.pace:
            stack.enter_context(_writing(client, partitions, load.pace))
        yield Served(cluster, relays)


@contextlib.contextmanager
def _writing(client: ottla.sync.Client, partitions: int, pace: float) -> Iterator[None]:
    over = threading.Event()

    def write() -> None:
        turns = itertools.cycle(range(partitions))
        with client.producer() as producer:
            while not over.wait(1 / pace):
                producer.send(TOPIC, b"x" * 100, partition=next(turns))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


Command = Callable[[Served, str, int], list[str]]
"""The command that runs members, given their group, which is also their client id, and their number."""


def ours(served: Served, group: str, members: int, *, wait: float = 0.5) -> list[str]:
    """Members with ottla's client, whose ``fetch_max_wait`` is so many seconds."""
    arguments = served.bootstrap, TOPIC, group, str(members), str(wait)
    return [sys.executable, "-m", "tests.bench.requests.members", *arguments]


def java(served: Served, group: str, members: int, *, poll: float) -> list[str]:
    """Members with Java's client, whose calls of ``poll`` wait up to so many seconds."""
    settings = {
        "bootstrap.servers": served.bootstrap,
        "client.id": group,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    return kafka.java(
        "Poll",
        *(TOPIC, str(members), f"{poll * 1000:.0f}"),
        *(f"{key}={value}" for key, value in settings.items()),
        heap="512m",
        classes=java_classes(),
    )


def measured(
    served: Served, contestants: Mapping[str, Command], members: int, *, settle: float, seconds: float
) -> dict[str, Figures]:
    """The requests of a member in a minute, by API, and ``requests`` in all. All groups are counted at once.

    Raises:
        Broken: members did not join, or their group did not stay as it was.
    """
    with contextlib.ExitStack() as stack:
        groups = {
            name: stack.enter_context(_running(served, command, members)) for name, command in contestants.items()
        }
        for each in groups.values():
            each.await_members()
        time.sleep(settle)
        first = {name: each.state() for name, each in groups.items()}
        before, began = served.counts(), time.monotonic()
        time.sleep(seconds)
        sent, took = served.counts() - before, time.monotonic() - began
        if changed := [name for name, each in groups.items() if each.state() != first[name]]:
            raise Broken(f"members were fenced or rejoined while requests were counted: {', '.join(changed)}")
    found: dict[str, Figures] = {name: {"requests": 0.0} for name in groups}
    for name, each in groups.items():
        for (client, key), count in sent.items():
            if client == each.name:
                share = count / members * 60 / took
                found[name][APIS[key].request.__name__.removesuffix("Request")] = share
                found[name]["requests"] += share
    return found


@dataclass(frozen=True)
class _Group:
    """A group whose members run in a process."""

    served: Served
    name: str
    members: int
    process: subprocess.Popen[bytes]
    output: IO[str]

    def state(self) -> tuple[str, int, frozenset[tuple[str, int]]] | None:
        """What stays the same while no member joins, leaves or is fenced; ``None`` until the group is known.

        Raises:
            Broken: the process has ended.
        """
        if self.process.poll() is not None:
            self.output.seek(0)
            raise Broken(f"the members ended: {self.output.read().strip()[-500:]}")
        found = self.served.group(self.name)
        if found is None:
            return None
        return (
            found.group_state,
            found.group_epoch,
            frozenset((each.member_id, each.member_epoch) for each in found.members),
        )

    def await_members(self) -> None:
        """Wait until all have joined, and have the partitions that they should have."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.state()) is None or found[0] != "Stable" or len(found[2]) != self.members:
            if time.monotonic() > deadline:
                joined = "no group" if found is None else f"{len(found[2])} members, {found[0]}"
                raise Broken(f"the members did not join within {PATIENCE:.0f} s: {joined}")
            time.sleep(0.5)


@contextlib.contextmanager
def _running(served: Served, command: Command, members: int) -> Iterator[_Group]:
    """Members in a process, which is killed at the end: no other uses their group."""
    name = new_name()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command(served, name, members), stdin=subprocess.PIPE, stdout=output, stderr=output)
        try:
            yield _Group(served, name, members, process, output)
        finally:
            process.kill()
            process.communicate()


def new_name() -> str:
    """A name for a group."""
    return f"requests-{uuid.uuid4().hex[:8]}"

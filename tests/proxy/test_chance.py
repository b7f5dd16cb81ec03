"""Random cuts, temporary refusals and retries in any order: each record is stored once, and each key in order."""

from collections import defaultdict, deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec.partitioners import murmur2_partition
from ottla.errors import NotEnoughReplicas, NotEnoughReplicasAfterAppend
from tests.examples import examples
from tests.proxy.simulated import ANSWERED, CUT_AFTER, CUT_BEFORE, Reply, World, batch
from tests.proxy.test_rewriting import KEYS, SIX, world_of

RETRIABLE = (5, 6, 7, 19, 20)
REFUSED_FOR_NOW = {NotEnoughReplicas.code, NotEnoughReplicasAfterAppend.code}
"""The errors that the proxy passes on: the client sends the batch again."""
PRODUCERS, SOURCES = 2, 2


@dataclass
class Producer:
    """An idempotent client: up to five batches in flight to a partition; unanswered ones are sent again, in order.

    So are refused ones, once no response is missing.
    """

    world: World
    producer_id: int
    source: int
    connection: int
    sequence: int = 0
    in_flight: deque[tuple[bytes, Reply]] = field(default_factory=deque)
    sent: list[bytes] = field(default_factory=list)

    def send(self, keys: list[int]) -> None:
        if len(self.in_flight) == 5:
            return
        values = [b"%d-%d-%d" % (self.producer_id, self.source, self.sequence + n) for n in range(len(keys))]
        records = [(KEYS[key + 20 * self.source], value) for key, value in zip(keys, values, strict=True)]
        data = batch([*records], self.producer_id, 0, self.sequence)
        self.sequence += len(keys)
        self.sent += values
        self.in_flight.append((data, self._put(data)))

    def _put(self, data: bytes) -> Reply:
        return self.world.produce(self.connection, {("flights", self.source): data})

    def acknowledge(self) -> None:
        while self.in_flight and self.in_flight[0][1].frame is not None and self.in_flight[0][1].code == 0:
            self.in_flight.popleft()
        if self.in_flight and all(reply.frame is not None for _, reply in self.in_flight):
            assert {reply.code for _, reply in self.in_flight} <= REFUSED_FOR_NOW
            self.in_flight = deque((data, self._put(data)) for data, _ in self.in_flight)

    def reconnect(self, connection: int) -> None:
        """Break the connection, and send all unanswered requests again over another one."""
        self.world.leave(self.connection)
        self.connection = connection
        for _, reply in self.in_flight:
            reply.frame = None
        self.in_flight = deque((data, self._put(data)) for data, _ in self.in_flight)


step = st.one_of(
    st.tuples(
        st.just("send"),
        st.integers(0, PRODUCERS * SOURCES - 1),
        st.lists(st.integers(0, 9), min_size=1, max_size=6),
    ),
    st.tuples(st.just("reconnect"), st.integers(0, PRODUCERS * SOURCES - 1)),
    st.tuples(st.just("fate"), st.lists(st.sampled_from((ANSWERED, CUT_AFTER, CUT_BEFORE)), max_size=4)),
    st.tuples(st.just("error"), st.integers(0, SIX - 1), st.sampled_from(RETRIABLE)),
    st.tuples(st.just("slow"), st.booleans()),
    st.tuples(st.just("release")),
    st.tuples(st.just("wait"), st.sampled_from((0.01, 0.3, 40.0))),
    st.tuples(st.just("move"), st.integers(0, SIX - 1), st.integers(0, 2)),
)


@pytest.mark.slow
@examples(150)
@given(st.lists(step, max_size=60))
def test_every_record_is_stored_once_and_every_key_in_order(steps: list[tuple[object, ...]]) -> None:
    world = world_of(nodes=3, delivery_timeout=10_000)
    fates: deque[str] = deque()
    world.upstream.fate = lambda request: fates.popleft() if fates else ANSWERED
    connections = iter(range(100, 10_000))
    clients = [
        Producer(world, producer_id, source, next(connections))
        for producer_id in [world.producer_id(1) for _ in range(PRODUCERS)]
        for source in range(SOURCES)
    ]
    for name, *values in steps:
        match name, values:
            case "send", [int(who), list(keys)]:
                clients[who].send(keys)
            case "reconnect", [int(who)]:
                clients[who].acknowledge()
                clients[who].reconnect(next(connections))
            case "fate", [list(chosen)]:
                fates.extend(chosen)
            case "error", [int(partition), int(code)]:
                world.upstream.errors["flights", partition].append(code)
            case "slow", [bool(slow)]:
                world.slow = slow
            case "release", []:
                world.release()
            case "wait", [float(seconds)]:
                world.settle(seconds)
            case "move", [int(partition), int(node)]:
                world.upstream.lead("flights", partition, node)
        for client in clients:
            client.acknowledge()
    finish(world, clients)


def finish(world: World, clients: list[Producer]) -> None:
    """Repair everything, and check the stored records."""
    world.slow = False
    world.release()
    for _ in range(100):  # each time upstream may refuse something that is sent again
        world.settle(100)
        for client in clients:
            client.acknowledge()
        if not any(client.in_flight for client in clients):
            break
    else:
        raise AssertionError("a batch got no response, or is refused again and again")
    sent = [value for client in clients for value in client.sent]
    assert sorted(world.upstream.values("flights"), key=repr) == sorted(sent, key=repr)
    order: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
    for (_, partition), log in world.upstream.logs.items():
        for record in log:
            assert record.key is not None and record.value is not None
            assert murmur2_partition(record.key, SIX) == partition
            sender, _, number = record.value.rpartition(b"-")
            order[record.key, sender].append(int(number))
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert world.core.buffered.total == world.core.rewriter.unsettled == world.core.rewriter.unsettled_records == 0
    assert world.core.idle

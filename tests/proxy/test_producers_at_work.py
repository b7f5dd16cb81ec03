"""A host may have records of only so many producers under way, because each has its own connections to upstream."""

import pytest

from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.errors import NotEnoughReplicas
from ottla.proxy.clients.producers_at_work import AT_LEAST, OF_A_CONNECTION, ProducersAtWork
from ottla.proxy.events import Requested
from ottla.proxy.upstream.producer import UpstreamProducer
from tests.proxy.simulated import Reply, World, batch
from tests.proxy.test_rewriting import key_at, make_known, pairs, world_of

PLACE = ("flights", 0)


def produce(world: World, producer: int, sequence: int = 0, *, client: int = 1, acks: int = -1, at: int = 0) -> Reply:
    """Send a record for partition ``at`` with a producer id; -1: without one."""
    identity = (producer, 0, sequence) if producer >= 0 else (-1, -1, -1)
    return world.produce(client, {PLACE: batch([(key_at(at), b"x")], *identity)}, acks=acks)


def release(world: World) -> None:
    """Let upstream answer everything."""
    world.slow = False
    world.release()
    world.settle(1)


def held(world: World) -> int:
    return sum(map(len, world.core.at_work._batches.values()))


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_fifteen_hundred_producers_of_one_connection_have_a_bounded_number_of_links(acks: int) -> None:
    world = world_of()
    producers = [world.producer_id(1) for _ in range(1500)]
    before = len(world._links)
    world.slow = True
    replies = [produce(world, producer, acks=acks) for producer in producers]
    assert len(world._links) <= before + AT_LEAST
    other = produce(world, -1, client=2)
    release(world)
    assert other.code == 0
    if acks:
        assert [reply.code for reply in replies] == [0] * AT_LEAST + [NotEnoughReplicas.code] * (1500 - AT_LEAST)
    else:
        assert f"error {NotEnoughReplicas.code}" in world.closed[1]
    assert held(world) == 0


def test_the_error_says_whose_fault_it_is_and_what_to_do() -> None:
    world = world_of()
    world.slow = True
    for producer in [world.producer_id(1) for _ in range(AT_LEAST)]:
        produce(world, producer)
    (answer,) = produce(world, world.producer_id(1)).produced.values()
    assert answer.error_message == (
        "this host has records of 100 producers under way, and may have 100 with 1 connection to the proxy: send the "
        "records again later, or use fewer producers for each connection"
    )


def test_refused_records_are_accepted_once_others_are_settled() -> None:
    world = world_of()
    producers = [world.producer_id(1) for _ in range(AT_LEAST + 1)]
    world.slow = True
    first, *_ = [produce(world, each) for each in producers[:-1]]
    assert produce(world, producers[-1]).code == NotEnoughReplicas.code
    release(world)
    assert first.code == produce(world, producers[-1]).code == 0


def test_sixteen_producers_of_one_connection_are_never_refused() -> None:
    world = world_of()
    producers = [world.producer_id(1) for _ in range(16)]
    for round_ in range(5):
        world.slow = True
        replies = [produce(world, each, 3 * round_ + n) for n in range(3) for each in producers]
        release(world)
        assert {reply.code for reply in replies} == {0}


@pytest.mark.parametrize("idempotent", [True, False])
def test_six_hundred_clients_of_one_host_are_never_refused(idempotent: bool) -> None:
    world = world_of()
    replies = []
    world.slow = True
    for client in range(1000, 1600):
        world.peers[client] = f"10.1.1.1:{client}"
        replies.append(produce(world, world.producer_id(client) if idempotent else -1, client=client))
    release(world)
    assert {reply.code for reply in replies} == {0}


def test_batches_of_a_producer_at_work_and_retries_are_never_refused() -> None:
    world = world_of()
    producers = [world.producer_id(1) for _ in range(AT_LEAST)]
    world.slow = True
    replies = [produce(world, each) for each in producers]
    replies += [produce(world, producers[0], 1), produce(world, producers[0], 0)]
    release(world)
    assert {reply.code for reply in replies} == {0}


def test_a_producer_is_at_work_until_its_records_are_settled_and_not_only_answered() -> None:
    world = world_of()
    producers = [world.producer_id(1) for _ in range(AT_LEAST)]
    world.slow = True
    replies = [world.produce(1, {PLACE: batch([(key_at(0), b"x")], each, 0, 0)}, timeout_ms=0) for each in producers]
    world.settle(2)
    assert {reply.code for reply in replies} == {7}, "REQUEST_TIMED_OUT"
    assert produce(world, world.producer_id(1)).code == NotEnoughReplicas.code
    world.leave(1)
    assert held(world) == AT_LEAST
    release(world)
    assert held(world) == 0


def test_a_dead_broker_with_producers_at_work_stops_no_other_host() -> None:
    world = world_of(2)
    nodes = {partition: world.upstream.cluster.leaders["flights", partition].node for partition in range(6)}
    dead = next(partition for partition, node in nodes.items() if node == 1)
    healthy = next(partition for partition, node in nodes.items() if node == 0)
    producers = [world.producer_id(1) for _ in range(AT_LEAST)]
    world.kill(1)
    for each in producers:
        produce(world, each, at=dead)
    world.settle(5)
    assert held(world) == AT_LEAST
    assert produce(world, -1, client=2, at=healthy).code == 0
    assert produce(world, producers[0], 1, at=healthy).frame is None  # waits for its own earlier batch only


def test_a_client_that_reconnects_while_its_records_are_under_way_is_served() -> None:
    world = world_of()
    world.slow = True
    for client in range(1, AT_LEAST + 1):
        world.peers[client] = f"10.1.1.1:{client}"
        produce(world, -1, client=client)
        world.leave(client)
    assert len(world.core.at_work._batches["10.1.1.1"]) == AT_LEAST
    world.peers[99] = "10.1.1.1:99"
    refused = produce(world, -1, client=99)
    assert refused.code == NotEnoughReplicas.code
    release(world)
    assert produce(world, -1, client=99).code == 0


@pytest.mark.parametrize("refused", [0, 1])
def test_a_refusal_dooms_no_transaction(refused: int) -> None:
    """``refused``: how many batches of the transaction were stored before."""
    world = world_of()
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    opened = world.request(1, request, 4).parsed(InitProducerIdResponse)

    def send(sequence: int) -> Reply:
        data = batch([(key_at(0), b"t")], opened.producer_id, opened.producer_epoch, sequence, transactional=True)
        return world.produce(1, {PLACE: data}, transactional_id="tx", version=12)

    for sequence in range(refused):
        assert send(sequence).code == 0
    others = [world.producer_id(1) for _ in range(AT_LEAST)]
    world.slow = True
    for each in others:
        produce(world, each)
    assert send(refused).code == NotEnoughReplicas.code
    release(world)
    assert send(refused).code == 0
    producer = world.core.admission.producers.known(opened.producer_id)
    assert producer.transaction is not None and producer.transaction.failure is None


def test_records_from_the_journal_are_of_no_host() -> None:
    world = world_of(journal=True)
    producers = [world.producer_id(1) for _ in range(AT_LEAST)]
    world.slow = True
    for each in producers:
        produce(world, each)
    world.restart()
    make_known(world)
    assert "10.0.0.1" not in world.core.at_work._batches
    assert held(world) == AT_LEAST
    again = [produce(world, each) for each in producers]
    world.peers[2] = "10.0.0.1:2"
    new = produce(world, world.producer_id(2), client=2)
    release(world)
    assert {reply.code for reply in (*again, new)} == {0}
    assert held(world) == 0


def test_connections_count_until_everything_of_theirs_was_handled() -> None:
    world = world_of()
    world.core.handle(Requested(50, 0, 10_000, b"", "10.9.9.9:1"), world.now)  # no request: its connection is closed
    for client in (1, 2):
        world.peers[client] = f"10.1.1.1:{client}"
        assert world.produce(client, {PLACE: batch(pairs())}).code == 0
    at_work = world.core.at_work
    assert at_work._clients["10.1.1.1"] == 2
    for client in (1, 2):
        world.leave(client)
    world.settle()
    assert "10.1.1.1" not in at_work._clients and not {1, 2} & {*at_work._host_of}


def test_nothing_grows() -> None:
    at_work = ProducersAtWork()
    for number in range(1000):
        producer, host = UpstreamProducer(number), f"host {number}"
        at_work.arrived(number, host)
        for _ in range(2):
            at_work.check(producer, host)
            at_work.begun(producer, host)
        for _ in range(2):
            at_work.settled(producer, host)
        at_work.left(number)
        at_work.left(number)
    assert not at_work._host_of and not at_work._clients and not at_work._batches


def test_many_connections_may_have_more_producers_at_work() -> None:
    at_work = ProducersAtWork()
    for number in range(AT_LEAST):
        at_work.arrived(number, "host")
    for number in range(AT_LEAST * OF_A_CONNECTION):
        producer = UpstreamProducer(number)
        at_work.check(producer, "host")
        at_work.begun(producer, "host")
    with pytest.raises(NotEnoughReplicas, match="use fewer producers"):
        at_work.check(UpstreamProducer(-2), "host")
    at_work.check(UpstreamProducer(-2), "other host")
    at_work.check(producer, "host")

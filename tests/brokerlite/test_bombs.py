"""A batch that takes long to validate delays no other client.

In every test here, `tests.steps` checks that no step of the broker takes long.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trio

from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.brokerlite.machines.requests import request_work
from ottla.brokerlite.serve import run_broker
from ottla.codec.apis.produce import ProduceRequest
from ottla.codec.compression import Compression
from ottla.codec.records import parse_batch
from ottla.testing import Broker
from tests.brokerlite.machine import a_batch, fetching, idempotent, producing, values_of
from tests.brokerlite.peer import Peer
from tests.brokerlite.test_log import changed
from tests.patience import HUNG

pytestmark = pytest.mark.slow

MB = 2**20
BOMBS = pytest.mark.parametrize(
    ("compression", "size"),
    [(each, 20 * MB if each is Compression.SNAPPY else 60 * MB) for each in Compression if each],
    ids=["gzip", "snappy", "lz4", "zstd"],
)


@contextmanager
def a_broker(path: Path, **config: str) -> Iterator[tuple[Broker, Callable[[], Peer]]]:
    broker = Broker(BrokerConfig(port=0, data=path / "data", sync=Sync.NEVER))
    try:
        broker.create_topic("t", partitions=8, configs={"message.timestamp.after.max.ms": str(2**62)} | config)
        port = int(broker.bootstrap.rpartition(":")[2])
        yield broker, lambda: Peer(port, timeout=HUNG)
    finally:
        broker.stop()


def codes(peer: Peer, request: ProduceRequest) -> list[int]:
    return [each.error_code for topic in peer.ask(request).responses for each in topic.partition_responses]


@BOMBS
def test_a_bomb_delays_no_other_client(tmp_path: Path, compression: Compression, size: int) -> None:
    bomb = a_batch(bytes(size), compression=compression)
    with a_broker(tmp_path) as (_, connect), connect() as peer, connect() as other:
        peer.send(producing(bomb))
        assert codes(other, producing(a_batch(b"v"), partition=1)) == [0]
        peer.frame()
        assert codes(peer, producing(a_batch(b"v"))) == [0]
        assert values_of(other.ask(fetching(1)).responses[0].partitions[0].records) == [b"v"]


@BOMBS
def test_a_bomb_that_is_damaged_or_lies_about_its_size_is_refused(
    tmp_path: Path, compression: Compression, size: int
) -> None:
    bomb = a_batch(bytes(size), compression=compression)
    if compression is Compression.SNAPPY:
        lying = changed(bomb, len(bomb) // 2, b"\xff" * 4)
    else:
        lying = changed(bomb, len(bomb) - 4, (100).to_bytes(4, "little"))
    with a_broker(tmp_path) as (_, connect), connect() as peer:
        assert codes(peer, producing(lying)) == [87]


def test_many_small_bombs_in_one_request_are_as_one(tmp_path: Path) -> None:
    bomb = a_batch(bytes(MB // 4), compression=Compression.GZIP)
    with a_broker(tmp_path) as (_, connect), connect() as peer:
        assert codes(peer, producing(*[bomb] * 8)) == [0] * 8
        for _ in range(50):
            peer.send(producing(bomb))
        for _ in range(50):
            peer.frame()


@pytest.mark.parametrize(("kind", "level"), [("gzip", {}), ("zstd", {"compression.zstd.level": "19"})])
def test_the_compression_of_a_topic_delays_no_other_client(tmp_path: Path, kind: str, level: dict[str, str]) -> None:
    words = b" ".join(b"%d" % (i * 7919 % 100_003) for i in range(170_000))[: MB - 1000]
    with a_broker(tmp_path, **{"compression.type": kind} | level) as (_, connect), connect() as peer:
        assert codes(peer, producing(a_batch(words))) == [0]
        stored = parse_batch(peer.ask(fetching(max_bytes=2 * MB)).responses[0].partitions[0].records)
        assert stored.compression == Compression.named(kind) and stored.records()[0].value == words


def test_pipelined_requests_stay_in_order_whether_a_thread_works_for_them_or_not(tmp_path: Path) -> None:
    def numbered(sequence: int) -> bytes:
        large = sequence % 3 == 0
        value = b"%d" % sequence + bytes(2 * MB if large else 0)
        return a_batch(
            value,
            compression=Compression.ZSTD if large else Compression.NONE,
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
        )

    with a_broker(tmp_path) as (_, connect), connect() as peer:
        sent = [peer.send(producing(numbered(i))) for i in range(30)]
        assert [int.from_bytes(peer.frame()[:4], "big") for _ in range(30)] == sent
        assert codes(peer, producing(idempotent(30))) == [0], "no earlier one was refused"


def test_an_idle_thread_takes_the_batch_of_a_client_that_waits_for_no_answer_and_leaves(tmp_path: Path) -> None:
    with a_broker(tmp_path) as (_, connect), connect() as other:
        with connect() as peer:
            peer.send(producing(a_batch(bytes(20 * MB), compression=Compression.ZSTD), acks=0))
        assert other.ask(fetching(wait=10)).responses[0].partitions[0].high_watermark == 1


def test_all_records_of_clients_that_leave_without_waiting_are_stored(tmp_path: Path) -> None:
    bomb = a_batch(bytes(20 * MB), compression=Compression.ZSTD)
    peers = 6
    with a_broker(tmp_path) as (_, connect), connect() as other:
        for _ in range(peers):
            with connect() as peer:
                for batch in (bomb, a_batch(b"v"), bomb):
                    peer.send(producing(batch, acks=0))
        stored = 0
        while stored < 3 * peers:  # if the broker stays empty, the timeout of the response ends this loop
            before, answer = stored, other.ask(fetching(stored, wait=10, partition_max_bytes=1))
            stored = answer.responses[0].partitions[0].high_watermark
            assert stored > before


@pytest.mark.parametrize("end", ["drain", "kill"])
async def test_requests_of_many_bombs_keep_neither_others_nor_the_end_waiting(tmp_path: Path, end: str) -> None:
    bomb = a_batch(bytes(60 * MB), compression=Compression.ZSTD)
    request = producing(*[bomb] * 500)
    async with trio.open_nursery() as nursery:
        running = await nursery.start(run_broker, BrokerConfig(port=0, data=tmp_path / "data", sync=Sync.NEVER))
        running.create_topic("t", 500, {})
        peers = [await trio.to_thread.run_sync(Peer, running.port) for _ in range(request_work.AT_ONCE + 1)]
        *hostile, other = peers
        for peer in hostile:
            await trio.to_thread.run_sync(peer.send, request)
        while running._core._request_work._under_way < request_work.AT_ONCE:
            await trio.lowlevel.checkpoint()
        with trio.fail_after(HUNG):
            large = producing(a_batch(bytes(2 * MB), compression=Compression.ZSTD))
            await trio.to_thread.run_sync(other.ask, large)
        assert running._core._request_work._under_way == request_work.AT_ONCE
        began = time.process_time()
        getattr(running, end)()
    assert time.process_time() - began < 8, "processor time: waiting bombs are not decompressed"
    for peer in peers:
        peer.close()


@pytest.mark.parametrize("end", ["drain", "kill", "cancel"])
async def test_a_broker_ends_while_threads_work_for_requests(tmp_path: Path, end: str) -> None:
    bomb = a_batch(bytes(4 * MB), compression=Compression.GZIP)
    answered: list[bytes] = []
    with trio.fail_after(HUNG):
        async with trio.open_nursery() as nursery:
            config = BrokerConfig(port=0, data=tmp_path / "data", sync=Sync.NEVER)
            running = await nursery.start(run_broker, config)
            running.create_topic("t", 1, {})
            peers = [await trio.to_thread.run_sync(Peer, running.port) for _ in range(request_work.AT_ONCE + 2)]
            for peer in peers:
                peer.send(producing(bomb))
            while running._core._request_work._under_way < request_work.AT_ONCE:
                await trio.lowlevel.checkpoint()
            if end == "cancel":
                nursery.cancel_scope.cancel()
            else:
                getattr(running, end)()
        for peer in peers:
            with suppress(EOFError, ConnectionResetError):
                answered.append(peer.frame())
            peer.close()
    assert len(answered) >= (0 if end == "kill" else 1)
    async with trio.open_nursery() as nursery:
        running = await nursery.start(run_broker, config)
        assert running._core.topics.by_name["t"].partitions[0].end_offset >= len(answered), "these were acknowledged"
        nursery.cancel_scope.cancel()

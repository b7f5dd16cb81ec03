"""Commits and seeks beside a transaction that commits offsets of the same partition."""

from collections.abc import Callable
from typing import Any

import pytest

import ottla
from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.codec.apis.describe_transactions import DescribeTransactionsRequest
from ottla.codec.apis.end_txn import EndTxnRequest
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.codec.apis.txn_offset_commit import TxnOffsetCommitRequest
from ottla.errors import (
    CommitFailed,
    GroupAuthorizationFailed,
    LocalProtocolError,
    OttlaError,
    TransactionOutcomeUnknown,
)
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.group.commit_queue import Holder
from ottla.testing import Broker
from tests.sdk.test_transaction_machine import P0, P1, Transacting, self_committed
from tests.sdk.test_transforms import VALUES, committed, fill, group_stands_at


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def both(request: pytest.FixtureRequest) -> Transacting:
    return Transacting(request.param)


def commit(teller: Transacting, place: tuple[str, int], offset: int) -> None:
    teller.commits.commit({teller.assignments[place]: CommittedOffset(offset)}, teller.world.now)
    teller.world.run()


def sent(teller: Transacting) -> list[dict[tuple[str, int], int]]:
    """The offsets of each pending OffsetCommit."""
    return [
        {(t.name, p.partition_index): p.committed_offset for t in each.topics for p in t.partitions}
        for each in teller.world.pending(OffsetCommitRequest)
    ]


def answer_commit(teller: Transacting, code: int = 0) -> None:
    request = teller.asked(OffsetCommitRequest)
    topics = tuple(
        OffsetCommitResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    )
    teller.answer(request, OffsetCommitResponse(topics=topics))


def send_offsets(teller: Transacting) -> None:
    """End the block, and let the group join."""
    teller.leave()
    if teller.pending(AddOffsetsToTxnRequest):
        teller.answer_group()


def ended(teller: Transacting) -> None:
    send_offsets(teller)
    teller.answer_offsets()
    assert teller.answer_end() and teller.error is None


# -- other commits -----------------------------------------------------------------------------------------------------


def test_a_commit_is_refused_until_the_transaction_has_ended(both: Transacting) -> None:
    both.add(P0, 10)
    for when in (lambda: None, lambda: send_offsets(both), both.answer_offsets):
        when()
        for offset in (5, 10, 20):
            with pytest.raises(LocalProtocolError, match="a transaction of 't-1' commits an offset of in-0"):
                commit(both, P0, offset)
    commit(both, P1, 3)
    assert both.pending(EndTxnRequest) and sent(both) == [{P1: 3}]
    assert both.answer_end() and both.error is None
    answer_commit(both)
    commit(both, P0, 20)
    assert sent(both) == [{P0: 20}]


def test_of_several_offsets_none_is_committed_if_a_transaction_commits_one_of_them(both: Transacting) -> None:
    both.add(P0, 10)
    offsets = {both.assignments[P1]: CommittedOffset(3), both.assignments[P0]: CommittedOffset(20)}
    with pytest.raises(LocalProtocolError):
        both.commits.commit(offsets, both.world.now)
    both.world.run()
    assert not sent(both) and both.assignments[P1].asked == -1


def test_an_offset_that_is_committed_already_is_no_error_beside_a_transaction(both: Transacting) -> None:
    commit(both, P0, 10)
    answer_commit(both)
    both.add(P0, 20)
    commit(both, P0, 5)
    assert not sent(both)


def test_a_partition_is_part_of_one_transaction_at_a_time(both: Transacting) -> None:
    both.add(P0, 10)
    other = Holder("t-2")
    with pytest.raises(LocalProtocolError, match="in the same transaction, or after its end"):
        both.assignments[P0].refuse_held(other)
    both.assignments[P1].refuse_held(other)
    ended(both)
    both.assignments[P0].refuse_held(other)


def test_after_an_abort_others_may_commit(both: Transacting) -> None:
    both.add(P0, 10)
    both.call(both.transaction.leave(ZeroDivisionError()))
    commit(both, P0, 5)
    assert sent(both) == [{P0: 5}]


def test_a_failure_frees_the_partition_only_at_the_end_of_the_block(both: Transacting) -> None:
    both.add(P0, 10)
    assert both.producer.transactions is not None
    both.producer.transactions.give_up(GroupAuthorizationFailed("for a test"))
    both.world.run()
    with pytest.raises(LocalProtocolError, match="commits an offset of in-0"):
        commit(both, P0, 20)
    both.leave()
    assert isinstance(both.error, OttlaError)
    commit(both, P0, 20)
    assert sent(both) == [{P0: 20}]


@pytest.mark.parametrize("code", [0, GroupAuthorizationFailed.code])
def test_the_offsets_of_a_transaction_follow_an_offset_commit_in_flight(both: Transacting, code: int) -> None:
    both.add(P1, 7)
    if both.pending(AddOffsetsToTxnRequest):
        both.answer_group()
    commit(both, P0, 10)
    both.add(P0, 20)
    both.leave()
    both.world.later(1.0)
    assert sent(both) == [{P0: 10}] and not both.pending(TxnOffsetCommitRequest)
    answer_commit(both, code)
    both.answer_offsets()
    assert both.answer_end() and both.error is None
    assert both.assignments[P0].committed == 20
    if code:  # the user still gets the error, because the transaction does not report it
        failure = both.commits.take_failure()
        assert isinstance(failure, CommitFailed) and failure.offsets == {P0: 10}


def test_the_second_sending_of_a_commit_waits_for_the_transaction(both: Transacting) -> None:
    commit(both, P0, 10)
    both.world.break_connections()  # the outcome of the commit is unknown, so it is sent again, and later repeated
    both.world.later(5.0)
    answer_commit(both)
    both.add(P0, 20)
    both.world.later(31.0)
    assert not sent(both)
    ended(both)
    both.world.later(31.0)
    assert sent(both) == [{P0: 20}]


# -- seeks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["in the block", "while the offsets are sent", "while the transaction ends"])
def test_a_seek_counts_although_the_transaction_is_committed_later(both: Transacting, when: str) -> None:
    def seek_if(now: str) -> None:
        if now == when:
            both.commits.rewind(P0)

    both.add(P0, 20)
    both.add(P1, 5)
    seek_if("in the block")
    send_offsets(both)
    seek_if("while the offsets are sent")
    both.answer_offsets()
    seek_if("while the transaction ends")
    with pytest.raises(LocalProtocolError, match="commits an offset"):
        commit(both, P0, 10)
    assert both.answer_end() and both.error is None
    assert self_committed(both) == (-1, 5)
    commit(both, P0, 10)
    assert sent(both) == [{P0: 10}]


def test_after_a_seek_a_lower_offset_replaces_the_one_of_before(both: Transacting) -> None:
    both.add(P0, 20)
    both.commits.rewind(P0)
    both.add(P0, 10)
    both.add(P0, 5)
    send_offsets(both)
    request = both.answer_offsets()
    assert [p.committed_offset for t in request.topics for p in t.partitions] == [10]
    assert both.answer_end() and both.error is None
    assert both.assignments[P0].committed == 10


# -- unknown outcomes --------------------------------------------------------------------------------------------------


def lose_the_end(teller: Transacting) -> None:
    """Break the connection of every EndTxn until the caller gets an error."""
    assert teller.end is not None
    while not teller.end.go_on().over:
        if teller.pending(EndTxnRequest):
            teller.world.break_connections()
        teller.world.later(1.0)
    assert isinstance(teller.error, TransactionOutcomeUnknown)


def test_a_partition_stays_held_until_a_late_outcome_is_known(both: Transacting) -> None:
    both.add(P0, 10)
    send_offsets(both)
    both.answer_offsets()
    lose_the_end(both)
    with pytest.raises(LocalProtocolError, match="commits an offset"):
        commit(both, P0, 20)
    both.world.later(1.0)
    assert both.answer_end()
    assert both.assignments[P0].committed == 10
    commit(both, P0, 20)


@pytest.mark.parametrize("sought", [False, True], ids=["no seek", "a seek before"])
def test_an_outcome_that_stays_unknown_needs_a_seek(both: Transacting, *, sought: bool) -> None:
    both.add(P0, 10)
    send_offsets(both)
    both.answer_offsets()
    lose_the_end(both)
    if sought:
        both.commits.rewind(P0)
    assert both.producer.transactions is not None
    both.producer.transactions.give_up(GroupAuthorizationFailed("for a test"))
    both.world.run()
    assert not both.pending(DescribeTransactionsRequest)
    if not sought:
        with pytest.raises(LocalProtocolError, match=r"not known whether .* seek to the offset"):
            commit(both, P0, 20)
        both.commits.rewind(P0)
    commit(both, P0, 20)
    assert sent(both) == [{P0: 20}]


# -- with a broker -----------------------------------------------------------------------------------------------------


async def test_two_transactions_and_a_commit_do_not_take_the_group_back(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:3], partitions=1)
        async with (
            client.producer(transactional_id="t-1") as one,
            client.producer(transactional_id="t-2") as two,
            client.consumer("in", group="g", max_records=1) as consumer,
        ):
            older, newer = await anext(consumer), await anext(consumer)
            async with one.transaction() as first:
                first.commit_offsets(older)
                with pytest.raises(LocalProtocolError, match="a transaction of 't-1' commits an offset of in-0"):
                    async with two.transaction() as second:
                        second.commit_offsets(newer)
                assert second.committed is False
                calls: tuple[Callable[[], Any], ...] = (
                    newer.commit_soon,
                    consumer.commit_soon,
                    lambda: consumer.commit_soon({("in", 0): 2}),
                )
                for call in calls:
                    with pytest.raises(LocalProtocolError, match="a transaction of 't-1' commits an offset of in-0"):
                        call()
                for wait in (newer.commit, consumer.commit):
                    with pytest.raises(LocalProtocolError, match="a transaction of 't-1' commits an offset of in-0"):
                        await wait()
            assert await group_stands_at(client, "g", "in", 1) == [1]
            async with two.transaction() as second:
                second.commit_offsets(newer)
            assert await group_stands_at(client, "g", "in", 1) == [2]


async def test_of_several_batches_all_offsets_are_added_or_none(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:1], partitions=1)
        async with (
            client.producer(transactional_id="t-1") as producer,
            client.consumer("in", group="g") as grouped,
            client.consumer("in") as alone,
        ):
            good, bad = await anext(grouped), await anext(alone)
            async with producer.transaction() as txn:
                with pytest.raises(LocalProtocolError, match="without a group"):
                    txn.commit_offsets(good, bad)
            assert txn.committed
            assert await grouped.committed() == {("in", 0): None}


async def test_a_seek_within_a_transaction_is_not_forgotten(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:2], partitions=1)
        async with (
            client.producer(transactional_id="t-1") as producer,
            client.consumer("in", group="g", max_records=1) as consumer,
        ):
            await anext(consumer)
            newer = await anext(consumer)
            async with producer.transaction() as txn:
                txn.commit_offsets(newer)
                await consumer.seek({("in", 0): 0})
            assert await group_stands_at(client, "g", "in", 1) == [2]
            again = await anext(consumer)
            await again.commit()
            assert await group_stands_at(client, "g", "in", 1) == [1]


async def test_a_transform_goes_on_after_a_seek_within_a_block(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:2], partitions=1)
        await client.create_topic("out", partitions=1)
        async with client.transform("in", group="g", transactional_id="t-1", max_records=1) as transform:
            for turn in range(4):
                async with transform.transaction(await anext(transform)) as txn:
                    await txn.send_soon("out", b"%d" % turn)
                    if turn == 1:
                        await transform.consumer.seek({("in", 0): 0})
                assert txn.committed
        assert await committed(client, "out") == [b"0", b"1", b"2", b"3"]
        assert await group_stands_at(client, "g", "in", 1) == [2]


async def test_a_transform_whose_transaction_is_refused_gets_its_batches_again(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:1], partitions=1)
        async with (
            client.producer(transactional_id="t-2") as producer,
            client.transform("in", group="g", transactional_id="t-1") as transform,
        ):
            batches = await anext(transform)
            with pytest.raises(LocalProtocolError, match="a transaction of 't-2' commits an offset"):
                async with producer.transaction() as other:
                    other.commit_offsets(*batches.batches)
                    async with transform.transaction(batches):
                        raise AssertionError("the block does not begin")
            assert other.committed is False
            again = await anext(transform)
            assert [record.value for record in again] == VALUES[:1]
            async with transform.transaction(again) as txn:
                pass
            assert txn.committed
        assert await group_stands_at(client, "g", "in", 1) == [1]

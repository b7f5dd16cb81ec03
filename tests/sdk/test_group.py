"""A consumer in a group, over real sockets against brokerlite."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

import ottla
from ottla.errors import (
    Closed,
    CommitFailed,
    ConfigurationError,
    InconsistentGroupProtocol,
    LocalProtocolError,
    NoCommittedOffset,
    TimeoutExpired,
)
from ottla.sdk.consume.assignment import leaving, subscription
from ottla.sdk.consumer import Batch, Consumer
from ottla.testing import Broker
from tests.patience import FAR, HUNG
from tests.sdk.loops import LOOPS, CancelScope, Loop, Nursery

Place = tuple[str, int]


class Diary(ottla.RebalanceListener):
    """A listener that writes its notifications down."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.entries: list[tuple[str, tuple[Place, ...]]] = []
        self.changed = self._loop.event()

    async def assigned(self, consumer: Consumer, places: Sequence[Place]) -> None:
        self._write("assigned", places)

    async def revoked(self, consumer: Consumer, places: Sequence[Place]) -> None:
        self._write("revoked", places)

    async def lost(self, consumer: Consumer, places: Sequence[Place]) -> None:
        self._write("lost", places)

    def _write(self, what: str, places: Sequence[Place]) -> None:
        self.entries.append((what, tuple(sorted(places))))
        self.changed.set()
        self.changed = self._loop.event()

    async def until(self, what: str, *places: Place) -> None:
        with self._loop.fail_after(HUNG):
            while (what, tuple(sorted(places))) not in self.entries:
                await self.changed.wait()


async def fill(client: ottla.Client, count: int, topic: str = "t", first: int = 0) -> None:
    async with client.producer() as producer:
        for i in range(first, first + count):
            await producer.send_soon(topic, b"%d" % i, key=b"%d" % i)


async def one(loop: Loop, consumer: Consumer) -> Batch:
    with loop.fail_after(HUNG):
        return await anext(consumer)


async def read(loop: Loop, consumer: Consumer, count: int, *, commit: bool = True) -> list[int]:
    """The values of the next ``count`` records, or a few more, because batches are not split."""
    values: list[int] = []
    while len(values) < count:
        batch = await one(loop, consumer)
        values += [int(record.value or b"") for record in batch]
        if commit:
            batch.commit_soon()
    return values


async def test_a_group_goes_on_where_it_stood_also_after_a_restart_of_the_broker(
    loop: Loop, ottla_broker: Broker
) -> None:
    ottla_broker.create_topic("t", partitions=3)
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 100)
        async with client.consumer("t", group="g") as consumer:
            assert sorted(await read(loop, consumer, 100)) == list(range(100))
    ottla_broker.restart()
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 50, first=100)
        async with client.consumer("t", group="g") as consumer:
            assert sorted(await read(loop, consumer, 50)) == list(range(100, 150))
        async with client.consumer("t", group="another") as consumer:
            assert sorted(await read(loop, consumer, 150)) == list(range(150))


@pytest.mark.parametrize(
    "at",
    [
        -1,
        2**63,
        True,
        ottla.CommittedOffset(1, leader_epoch=2**31),
        ottla.CommittedOffset(1, metadata="\ud800"),
        ottla.CommittedOffset(1, metadata="m" * 40_000),
    ],
    ids=str,
)
async def test_a_commit_that_no_request_can_hold_is_refused_and_takes_no_other_with_it(
    loop: Loop, ottla_broker: Broker, at: Any
) -> None:
    ottla_broker.create_topic("t", partitions=2)
    whole: dict[tuple[str, int], int] = {("t", 0): 0, ("t", 1): 0}
    async with loop.connect(ottla_broker.bootstrap) as client, client.consumer(assign=whole, group="g") as consumer:
        consumer.commit_soon({("t", 0): 0})
        with pytest.raises(LocalProtocolError):
            await consumer.commit({("t", 1): at})
        await consumer.commit({})
        committed = await consumer.committed()
        assert committed["t", 0] == ottla.CommittedOffset(0) and committed["t", 1] is None


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_members_of_one_process_share_the_partitions_and_nothing_is_read_twice(
    loop: Loop, ottla_broker: Broker, assignor: str
) -> None:
    ottla_broker.create_topic("t", partitions=4)
    seen: Counter[int] = Counter()

    async def member(consumer: Consumer) -> None:
        async with consumer:
            async for batch in consumer:
                seen.update(int(record.value or b"") for record in batch)
                batch.commit_soon()

    async with loop.connect(ottla_broker.bootstrap) as client, loop.open_nursery() as nursery:
        await fill(client, 200)
        for _ in range(3):
            options: dict[str, Any] = {"group": "g", "assignors": [assignor], "heartbeat_interval": 0.05}
            diary = Diary(loop)
            nursery.start_soon(member, client.consumer("t", listener=diary, **options))
            with loop.fail_after(HUNG):
                await diary.changed.wait()
        await fill(client, 200, first=200)
        with loop.fail_after(HUNG):
            while len(seen) < 400:
                await loop.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert sorted(seen) == list(range(400)) and set(seen.values()) == {1}


@pytest.mark.usefixtures("long_goodbyes")
async def test_the_listener_hears_what_comes_and_goes_in_order(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=2)
    diary, another = Diary(loop), Diary(loop)
    options: dict[str, Any] = {"group": "g", "heartbeat_interval": 0.05, "session_timeout": FAR}

    scopes: list[CancelScope] = []

    async def reads(consumer: Consumer) -> None:
        with loop.cancel_scope() as scope:
            scopes.append(scope)
            async with consumer:
                async for _ in consumer:
                    pass

    async with loop.connect(ottla_broker.bootstrap) as client, loop.open_nursery() as nursery:
        nursery.start_soon(reads, client.consumer("t", listener=diary, **options))
        await diary.until("assigned", ("t", 0), ("t", 1))
        nursery.start_soon(reads, client.consumer("t", listener=another, **options))
        await diary.until("revoked", ("t", 0), ("t", 1))
        with loop.fail_after(HUNG):
            while len(diary.entries) < 3 or not another.entries:
                await loop.sleep(0.01)
        shares = [diary.entries[2], another.entries[0]]
        assert sorted(places for _, places in shares) == [(("t", 0),), (("t", 1),)]
        scopes[1].cancel()
        with loop.fail_after(HUNG):  # a cancelled member leaves the group: the session timeout is much longer
            while diary.entries[-1] != ("assigned", (("t", 0), ("t", 1))):
                await loop.sleep(0.01)
        assert another.entries[-1] == ("lost", another.entries[0][1])
        nursery.cancel_scope.cancel()


async def test_leaving_normally_revokes_and_commits_what_was_asked_for(loop: Loop, ottla_broker: Broker) -> None:
    diary = Diary(loop)
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        async with client.consumer("t", group="g", listener=diary) as consumer:
            (await one(loop, consumer)).commit_soon()
        assert [what for what, _ in diary.entries] == ["assigned", "revoked"]
        async with client.consumer(group="g", assign={("t", 0): "committed"}) as consumer:
            found = await consumer.committed()
            assert {place: at.offset for place, at in found.items() if at} == {("t", 0): 10}


@pytest.mark.usefixtures("long_goodbyes")
async def test_auto_commit_commits_batches_whose_successor_was_asked_for_and_not_the_one_in_hand(
    loop: Loop,
    ottla_broker: Broker,
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        with pytest.raises(RuntimeError, match="handler"):
            async with client.consumer("t", group="g", auto_commit=5.0) as consumer:
                await one(loop, consumer)
                await fill(client, 10, first=10)
                await one(loop, consumer)
                raise RuntimeError("handler")
        async with client.consumer("t", group="g") as consumer:
            assert await read(loop, consumer, 1) == list(range(10, 20))


async def test_an_error_in_the_loop_commits_nothing_of_the_batch_in_hand(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        with pytest.raises(RuntimeError):
            async with client.consumer("t", group="g") as consumer:
                await one(loop, consumer)
                raise RuntimeError
        async with client.consumer("t", group="g") as consumer:
            assert await read(loop, consumer, 10) == list(range(10))


async def test_a_slow_handler_is_named_then_loses_its_partitions_and_comes_back(
    loop: Loop, ottla_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    diary = Diary(loop)

    async def slow_handler() -> None:
        with loop.fail_after(HUNG):
            while consumer.assignment:
                await loop.sleep(0.01)

    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        async with client.consumer("t", group="g", max_poll_interval=0.5, listener=diary) as consumer:
            batch = await one(loop, consumer)
            await slow_handler()
            with pytest.raises(CommitFailed, match="max_poll_interval"):
                await batch.commit()
            batch.commit_soon()
            assert await read(loop, consumer, 10) == list(range(10))
    # On a busy machine the test is too slow in other places, too.
    assert [what for what, _ in diary.entries][:3] == ["assigned", "lost", "assigned"]
    warnings = [each for each in caplog.records if "takes too long" in each.message]
    assert any("slow_handler" in each.__dict__["handler"] for each in warnings)
    assert {each.levelno for each in warnings} == {logging.WARNING}


async def lose(loop: Loop, consumer: Consumer) -> None:
    """Lose the partitions as if `max_poll_interval` had passed; a short one would also pass elsewhere in the test."""
    core = consumer._core
    consumer._driver.do(lambda: core.polls._absent(core._core.now))
    with loop.fail_after(HUNG):
        while consumer.assignment:
            await loop.sleep(0.01)


async def test_a_commit_of_everything_tells_once_what_was_lost_meanwhile(
    loop: Loop, ottla_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    def dropped() -> list[dict[str, Any]]:
        return [each.__dict__ for each in caplog.records if "commit dropped" in each.message]

    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        async with client.consumer("t", group="g") as consumer:
            await one(loop, consumer)
            await lose(loop, consumer)
            with pytest.raises(CommitFailed, match=r"some batches .*max_poll_interval.*\(t-0 at 10\)"):
                await consumer.commit()
            await consumer.commit()
            await one(loop, consumer)
            await lose(loop, consumer)
            consumer.commit_soon()
            await loop.wait_all_tasks_blocked()  # log lines are written after the events that they report
            assert [(each["topic"], each["partition"], each["offset"]) for each in dropped()] == [("t", 0, 10)]
            consumer.commit_soon()
            await consumer.commit()
            batch = await one(loop, consumer)
            await lose(loop, consumer)
            batch.commit_soon()
            await consumer.commit()  # the error was already reported
            await loop.wait_all_tasks_blocked()
            assert len(dropped()) == 2
            assert not (await consumer.committed([("t", 0)]))["t", 0]
            await one(loop, consumer)
            await consumer.commit()
        async with client.consumer("t", group="g") as consumer:
            await fill(client, 10)
            await (await one(loop, consumer)).commit()
            await lose(loop, consumer)
            await consumer.commit()  # no partition was lost


async def rebalanced(loop: Loop, client: ottla.Client, consumer: Consumer, nursery: Nursery, **options: Any) -> None:
    """Another member joins, and gets a share of the partitions."""

    async def other() -> None:
        async with client.consumer("t", group="g", **options) as second:
            async for _ in second:
                pass

    had = len(consumer.assignment)
    nursery.start_soon(other)
    with loop.fail_after(HUNG):
        while len(consumer.assignment) not in range(1, had):
            with loop.move_on_after(0.05):
                await anext(consumer)


async def test_a_commit_of_everything_tells_of_what_a_rebalance_took_unless_it_was_committed(
    loop: Loop,
    ottla_broker: Broker,
) -> None:
    class Careful(Diary):
        async def revoked(self, consumer: Consumer, places: Sequence[Place]) -> None:
            await consumer.commit()
            await super().revoked(consumer, places)

    ottla_broker.create_topic("t", partitions=2)
    async with loop.connect(ottla_broker.bootstrap) as client:
        for diary, auto_commit in ((Diary(loop), None), (Careful(loop), None), (Diary(loop), 5.0)):
            await fill(client, 100)
            options: dict[str, Any] = {"heartbeat_interval": 0.05, "auto_commit": auto_commit}
            async with client.consumer("t", group="g", listener=diary, **options) as consumer:
                batches: dict[Place, Batch] = {}
                while len(batches) < 2:
                    batch = await one(loop, consumer)
                    batches[batch.topic, batch.partition] = batch
                async with loop.open_nursery() as nursery:
                    await rebalanced(loop, client, consumer, nursery, heartbeat_interval=0.05)
                    (kept,) = consumer.assignment
                    (gone,) = set(batches) - {kept}
                    if auto_commit or isinstance(diary, Careful):
                        await consumer.commit()
                    else:
                        with pytest.raises(CommitFailed, match="a rebalance revoked the partition") as raised:
                            await consumer.commit()
                        assert raised.value.offsets[gone] == batches[gone].next_offset
                        await consumer.commit()
                        with pytest.raises(CommitFailed, match="perhaps this consumer again"):
                            await batches[kept].commit()
                    nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("long_goodbyes")
async def test_a_listener_that_commits_what_is_lost_hears_that_it_cannot(loop: Loop, ottla_broker: Broker) -> None:
    class Late(Diary):
        async def lost(self, consumer: Consumer, places: Sequence[Place]) -> None:
            with pytest.raises(CommitFailed, match="consumer was closed"):
                await consumer.commit()
            await super().lost(consumer, places)

    diary = Late(loop)
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 1)
        with pytest.raises(ZeroDivisionError):
            async with client.consumer("t", group="g", listener=diary) as consumer:
                await one(loop, consumer)
                raise ZeroDivisionError
    assert diary.entries[-1] == ("lost", (("t", 0),))


@pytest.mark.parametrize(("assignor", "paused"), [("range", []), ("cooperative-sticky", [("t", 0), ("t", 1)])])
async def test_a_rebalance_forgets_a_pause_where_it_revokes_the_partition(
    loop: Loop, ottla_broker: Broker, assignor: str, paused: list[Place]
) -> None:
    ottla_broker.create_topic("t", partitions=2)
    async with loop.connect(ottla_broker.bootstrap) as client, loop.open_nursery() as nursery:
        await fill(client, 10)
        options: dict[str, Any] = {"heartbeat_interval": 0.05, "assignors": [assignor]}
        async with client.consumer("t", group="g", **options) as consumer:
            await one(loop, consumer)
            consumer.pause(consumer.assignment)
            await rebalanced(loop, client, consumer, nursery, **options)
            (kept,) = consumer.assignment
            assert consumer.paused == [each for each in paused if each == kept]
            nursery.cancel_scope.cancel()


async def test_code_that_blocks_the_loop_is_named_before_the_group_misses_the_member(
    loop: Loop, ottla_broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.sdk.consume.poll_watch.BLOCKED", 0.2 / 10)

    def computes_for_long() -> None:
        end = time.monotonic() + HUNG
        while time.monotonic() < end and not any("computes_for_long" in each for each in reported()):
            pass

    def reported() -> list[str]:
        """The code in each report. On a busy machine other code blocks the loop, too."""
        return [each.__dict__["handler"] for each in caplog.records if "keeps the event loop" in each.message]

    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 1)
        async with client.consumer("t", group="g", session_timeout=10.0) as consumer:
            await one(loop, consumer)
            computes_for_long()
    assert len([each for each in reported() if "computes_for_long" in each]) == 1


async def test_topics_are_found_by_pattern_also_when_they_come_later(
    loop: Loop, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "PATTERN_AGE", 0.05)
    for name in ("orders-a", "orders-test", "payments"):
        ottla_broker.create_topic(name)
    for group in (None, "g"):
        later = f"orders-{group}"
        async with loop.connect(ottla_broker.bootstrap) as client:
            consumer = client.consumer(pattern="orders-.*", deny=[".*-test"], group=group, start="end")
            async with consumer:
                with loop.fail_after(HUNG):
                    while not consumer.assignment:
                        with loop.move_on_after(0.1):
                            await anext(consumer)
                assert ("orders-a", 0) in consumer.assignment and ("orders-test", 0) not in consumer.assignment
                ottla_broker.create_topic(later)
                await fill(client, 5, later)
                assert await read(loop, consumer, 5, commit=False) == list(range(5))


async def test_a_pattern_that_matches_nothing_is_told_once(
    loop: Loop, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subscription, "PATTERN_AGE", 0.02)
    ottla_broker.create_topic("orders")
    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.consumer(pattern="ord*", deny="x") as consumer,
    ):
        said = "none of 1 topic(s) matches the pattern 'ord*' without 'x', a regular expression for the whole name"
        with loop.fail_after(HUNG):
            while client.explain() != said:
                with loop.move_on_after(0.1):
                    await anext(consumer)
        ottla_broker.create_topic("ordd")
        await fill(client, 1, "ordd")
        assert await read(loop, consumer, 1, commit=False) == [0]
        assert "matches the pattern" not in client.explain()
    (warning,) = [each for each in caplog.records if "no topic matches" in each.message]
    assert (warning.__dict__["pattern"], warning.__dict__["topic_count"]) == ("'ord*' without 'x'", 1)


async def test_paused_partitions_are_not_handed_out_until_they_are_resumed(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=2)
    async with loop.connect(ottla_broker.bootstrap) as client:
        async with client.producer() as producer:
            for partition in (0, 1):
                await producer.send("t", b"%d" % partition, partition=partition)
        async with client.consumer("t") as consumer:
            consumer.pause([("t", 0)])
            assert consumer.paused == [("t", 0)]
            assert await read(loop, consumer, 1, commit=False) == [1]
            with loop.move_on_after(0.1) as nothing:
                await anext(consumer)
            assert nothing.cancelled_caught
            consumer.resume([("t", 0)])
            assert await read(loop, consumer, 1, commit=False) == [0]
            with pytest.raises(LocalProtocolError, match="not assigned"):
                consumer.pause([("t", 9)])


async def test_what_is_wished_of_a_partition_that_is_not_here_is_refused_with_what_to_do(
    loop: Loop, ottla_broker: Broker
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 1)
        for group, advice in (
            (None, r"name the partitions to read in client\.consumer"),
            ("g", "once `assigned` of a Reb"),
        ):
            async with client.consumer("t", group=group) as consumer:
                wishes: dict[str, Callable[[], object]] = {
                    "pause": partial(consumer.pause, [("t", 9)]),
                    "resume": partial(consumer.resume, [("t", 9)]),
                    "ask for its position": partial(consumer.position, "t", 9),
                }
                if group is not None:
                    wishes["commit"] = partial(consumer.commit_soon, {("t", 9): 1})
                for wish, call in wishes.items():
                    words = rf"\('t', 9\) is not assigned to this consumer, which has \[.*\]: .*{advice}"
                    with pytest.raises(LocalProtocolError, match=words) as told:
                        call()
                    assert group is None or wish in str(told.value)


async def test_a_seek_back_is_meant_and_commits_follow_it(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        async with client.consumer("t", group="g") as consumer:
            await (await one(loop, consumer)).commit()
            assert consumer.lag == {("t", 0): 0} and consumer.position("t", 0) == 10
            await consumer.seek({("t", 0): 4})
            await consumer.commit({("t", 0): 4})
            found = (await consumer.committed())["t", 0]
            assert found is not None and found.offset == 4
            assert await read(loop, consumer, 6) == list(range(4, 10))
            with pytest.raises(LocalProtocolError, match="not assigned"):
                await consumer.seek({("t", 7): 0})


async def test_by_hand_assigned_partitions_go_on_where_the_group_stands(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        for expected in (list(range(10)), list(range(10, 20))):
            async with client.consumer(group="g", assign={("t", 0): "committed"}) as consumer:
                assert await read(loop, consumer, 10) == expected
            await fill(client, 10, first=10)


async def test_who_wants_to_be_asked_where_to_begin_is_asked_once_and_goes_on_where_he_says(
    loop: Loop,
    ottla_broker: Broker,
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await client.create_topic("t", partitions=1)
        await fill(client, 5)
        with pytest.raises(ConfigurationError, match="start='error' is for a group"):
            client.consumer("t", start="error")
        async with client.consumer("t", group="g", start="error") as consumer:
            for _ in range(2):
                with pytest.raises(
                    NoCommittedOffset, match=r"t-0: group 'g' has committed no offset here.*: seek, set"
                ):
                    await anext(consumer)
            with pytest.raises(LocalProtocolError, match="await seek first"):
                consumer.position("t", 0)
            await consumer.seek({("t", 0): 2})
            batch = await anext(consumer)
            assert [each.value for each in batch] == [b"2", b"3", b"4"]
            await batch.commit()
        await fill(client, 1, first=5)
        async with client.consumer("t", group="g", start="error") as consumer:
            assert [each.value for each in await anext(consumer)] == [b"5"]
        with pytest.raises(NoCommittedOffset, match="group 'h'"):
            async with client.consumer(assign={("t", 0): "committed"}, group="h", start="error"):
                pass


@pytest.mark.usefixtures("long_goodbyes")
async def test_more_members_than_partitions_wait_and_take_over(loop: Loop, ottla_broker: Broker) -> None:
    got: dict[str, list[int]] = {"a": [], "b": []}

    scopes: dict[str, CancelScope] = {}
    joined = {name: loop.event() for name in got}

    async def member(client: ottla.Client, name: str) -> None:
        with loop.cancel_scope() as scopes[name]:
            async with client.consumer("t", group="g", heartbeat_interval=0.05) as consumer:
                joined[name].set()
                while True:
                    got[name] += await read(loop, consumer, 1)

    async with loop.connect(ottla_broker.bootstrap) as client, loop.open_nursery() as nursery:
        await fill(client, 5)
        for name in got:
            nursery.start_soon(member, client, name)
            await joined[name].wait()
        with loop.fail_after(HUNG):
            while not any(got.values()):
                await loop.sleep(0.01)
        busy, idle = ("a", "b") if got["a"] else ("b", "a")
        assert got == {busy: list(range(5)), idle: []}
        scopes[busy].cancel()
        await fill(client, 5, first=5)
        with loop.fail_after(HUNG):
            while len(got[idle]) < 5:
                await loop.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert got == {busy: list(range(5)), idle: list(range(5, 10))}


async def test_a_static_member_returns_to_its_partitions_without_a_rebalance(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=2)
    diary, options = Diary(loop), dict[str, Any](group="g", heartbeat_interval=0.05)

    async def other(consumer: Consumer) -> None:
        async with consumer:
            async for _ in consumer:
                pass

    async with loop.connect(ottla_broker.bootstrap) as client, loop.open_nursery() as nursery:
        nursery.start_soon(other, client.consumer("t", listener=diary, instance_id="a", **options))
        await diary.until("assigned", ("t", 0), ("t", 1))
        for turn in range(2):
            mine = Diary(loop)
            async with client.consumer("t", instance_id="b", listener=mine, **options) as consumer:
                with loop.fail_after(HUNG):
                    while not mine.entries:
                        with loop.move_on_after(0.05):
                            await anext(consumer)
                assert mine.entries == [("assigned", (("t", 1),))], turn
        told = list(diary.entries)
        nursery.cancel_scope.cancel()
    assert told == [
        ("assigned", (("t", 0), ("t", 1))),
        ("revoked", (("t", 0), ("t", 1))),
        ("assigned", (("t", 0),)),
    ]


async def test_members_without_a_common_assignor_are_refused_by_name(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.consumer("t", group="g", assignors=["range"]) as first,
    ):
        with loop.fail_after(HUNG):
            while not first.assignment:
                with loop.move_on_after(0.1):
                    await anext(first)
        with pytest.raises(InconsistentGroupProtocol):
            async with client.consumer("t", group="g", assignors=["sticky"]) as second:
                await one(loop, second)


async def test_interceptors_see_every_batch_and_every_commit_and_their_errors_stop_nothing(
    loop: Loop, ottla_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[object] = []

    class Watching(ottla.ConsumerInterceptor):
        def on_consume(self, batch: Batch) -> None:
            seen.append(len(batch))
            raise ZeroDivisionError

        def on_commit(self, offsets: Mapping[Place, ottla.CommittedOffset]) -> None:
            seen.append({place: at.offset for place, at in offsets.items()})

    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 3)
        async with client.consumer("t", group="g", interceptors=[Watching()]) as consumer:
            await (await one(loop, consumer)).commit()
    assert seen == [3, {("t", 0): 3}]
    # On a busy machine ottla.sdk.connection warns about slow answers.
    warned = [
        each.message for each in caplog.records if each.name == "ottla.sdk.consumer" and each.levelno > logging.INFO
    ]
    assert warned == ["interceptor's on_consume raised; the batch is handed out unchanged"]


async def test_a_listener_that_fails_ends_the_loop_with_its_error(loop: Loop, ottla_broker: Broker) -> None:
    class Broken(Diary):
        async def assigned(self, consumer: Consumer, places: Sequence[Place]) -> None:
            raise ZeroDivisionError

    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 1)
        with pytest.raises(ZeroDivisionError):
            async with client.consumer("t", group="g", listener=Broken(loop)) as consumer:
                await one(loop, consumer)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "topics, a pattern, or an assignment"),
        ({"pattern": "("}, "not a regular expression"),
        ({"assign": {("t", 0): "committed"}}, "needs a group"),
        ({"pattern": "t", "auto_commit": 1.0}, "needs a group"),
        ({"pattern": "t", "instance_id": "a"}, "need a group"),
        ({"assign": {("t", 0): 0}, "group": "g", "instance_id": "a"}, "need a group .* without assign"),
        (
            {"assign": {("t", 0): 0}, "group": "g", "listener": Diary(LOOPS["trio"])},
            "need a group .* without assign",
        ),
        ({"assign": {("t", 0): 0}, "deny": "t"}, "deny goes with a pattern"),
        ({"pattern": "t", "group": ""}, "group must be a string"),
        ({"pattern": "t", "group": "g", "instance_id": ""}, "instance_id must not be empty"),
        ({"pattern": "t", "group": "g", "auto_commit": 0.0}, "positive number of seconds"),
        ({"pattern": "t", "group": "g", "assignors": ["rang"]}, "unknown: choose range"),
        ({"pattern": "t", "group": "g", "assignors": []}, "needs an assignor"),
        ({"pattern": "t", "group": "g", "heartbeat_interval": 50.0}, "below session_timeout"),
        ({"pattern": "t", "group": "g", "max_poll_interval": 0.0}, "max_poll_interval"),
        ({"pattern": "(" * 2000 + ")" * 2000}, "nested too deeply"),
    ],
)
async def test_options_that_contradict_each_other_are_refused(
    loop: Loop, ottla_broker: Broker, options: dict[str, Any], error: str
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        with pytest.raises(ConfigurationError, match=error):
            client.consumer(**options)


async def test_options_of_a_member_that_nobody_is_are_left_out_and_told(
    loop: Loop, ottla_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"session_timeout": 9.0, "assignors": "sticky", "max_poll_interval": 300.0}
    async with loop.connect(ottla_broker.bootstrap) as client:
        client.consumer("t", group="g", **options)
        client.consumer(assign={("t", 0): "committed"}, group="g")
        assert not caplog.records
        client.consumer("t", **options)
        client.consumer(assign={("t", 0): "committed"}, group="g", **options)
    told: list[Any] = caplog.records
    assert [each.msg.event for each in told] == ["options ignored: they need a group that assigns partitions"] * 2
    assert [each.options for each in told] == [["assignors", "session_timeout"]] * 2


async def test_leaving_does_not_wait_long_for_a_dead_broker_and_says_what_is_not_committed(
    loop: Loop, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the 30 seconds that Java's consumer allows, shorter here; `api_timeout` is twice as long."""
    monkeypatch.setattr(leaving, "LEAVE_TIMEOUT", 0.5)
    ottla_broker.create_topic("t")
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 3)
        with loop.fail_after(HUNG), pytest.raises(TimeoutExpired, match=r"within 0\.5 s: not committed.*: t-0 at 3;"):
            async with client.consumer("t", group="calm") as consumer:
                batch = await one(loop, consumer)
                ottla_broker.kill()
                batch.commit_soon()


async def test_who_is_thrown_out_of_the_block_hears_what_is_not_committed(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 3)
        with loop.fail_after(HUNG), pytest.raises(ValueError, match="mine") as raised:
            async with client.consumer("t", group="hasty") as consumer:
                batch = await one(loop, consumer)
                ottla_broker.kill()
                batch.commit_soon()
                raise ValueError("mine")
    assert raised.value.__notes__ == ["ottla: not committed, so to be read again: t-0 at 3"]


async def test_a_consumer_that_was_not_opened_says_so(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    async with loop.connect(ottla_broker.bootstrap) as client:
        for group in (None, "g"):
            with pytest.raises(LocalProtocolError, match="async with"):
                await one(loop, client.consumer("t", group=group))


async def test_a_loop_ends_when_its_client_closes(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    client = loop.connect(ottla_broker.bootstrap)
    await client.__aenter__()
    consumer = client.consumer("t")
    await consumer.__aenter__()
    await client.__aexit__(None, None, None)
    with pytest.raises(Closed):
        await one(loop, consumer)


async def test_two_tasks_cannot_read_one_member_as_one_would_end_what_the_other_has_in_hand(
    loop: Loop,
    ottla_broker: Broker,
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 1)
        async with client.consumer("t", group="g", auto_commit=0.01) as consumer, loop.open_nursery() as nursery:
            await one(loop, consumer)

            async def another() -> None:
                with pytest.raises(LocalProtocolError, match=r"in hand, .* commit it .* or end; .* of the group"):
                    await one(loop, consumer)

            nursery.start_soon(another)


@pytest.mark.parametrize("how", ["without a group", "batch", "consumer", "offset", "ended"])
async def test_another_task_reads_on_where_nobody_has_anything_in_hand_that_is_not_committed(
    loop: Loop, ottla_broker: Broker, how: str
) -> None:
    offsets: list[int] = []

    async def take() -> None:
        batch = await one(loop, consumer)
        offsets.extend(record.offset for record in batch)
        if how == "batch":
            batch.commit_soon()
        elif how == "consumer":
            await consumer.commit()
        elif how == "offset":
            consumer.commit_soon({("t", 0): batch.next_offset})

    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 1)
        group = None if how == "without a group" else "g"
        async with client.consumer("t", group=group) as consumer:
            for turn in range(1, 4):
                async with loop.open_nursery() as nursery:
                    if turn == 2 and how != "ended":
                        await take()
                    else:
                        nursery.start_soon(take)
                await fill(client, 1, first=turn)
    assert offsets == [0, 1, 2]


async def test_a_batch_that_is_not_committed_to_its_end_stays_in_hand(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 1)
        async with client.consumer("t", group="g") as consumer, loop.open_nursery() as nursery:
            await one(loop, consumer)
            consumer.commit_soon({("t", 0): 0})

            async def another() -> None:
                with pytest.raises(LocalProtocolError, match="in hand"):
                    await one(loop, consumer)

            nursery.start_soon(another)


@pytest.mark.parametrize(("group", "instead"), [("g", "consumers of the group"), (None, "assign=")])
async def test_two_tasks_cannot_wait_for_batches_of_one_consumer(
    loop: Loop, ottla_broker: Broker, group: str | None, instead: str
) -> None:
    ottla_broker.create_topic("t")
    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.consumer("t", group=group) as consumer,
        loop.open_nursery() as nursery,
    ):
        nursery.start_soon(anext, consumer)
        await loop.sleep(0.01)
        with pytest.raises(LocalProtocolError, match=f"waits for a batch.*several .*{instead}"):
            await one(loop, consumer)
        nursery.cancel_scope.cancel()


async def test_a_listener_that_asks_for_batches_hears_that_it_cannot(loop: Loop, ottla_broker: Broker) -> None:
    class Greedy(ottla.RebalanceListener):
        async def assigned(self, consumer: Consumer, places: Sequence[Place]) -> None:
            await anext(consumer)

    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 1)
        with pytest.raises(LocalProtocolError, match="must not ask its consumer for a batch"):
            async with client.consumer("t", group="g", listener=Greedy()) as consumer:
                await one(loop, consumer)


async def test_a_listener_that_keeps_the_consumer_from_leaving_is_named(
    loop: Loop, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stuck(ottla.RebalanceListener):
        async def revoked(self, consumer: Consumer, places: Sequence[Place]) -> None:
            await loop.sleep_forever()

    monkeypatch.setattr(leaving, "LEAVE_TIMEOUT", 0.2)
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 1)
        with pytest.raises(TimeoutExpired, match=r"your listener's Stuck\.revoked has not returned") as raised:
            async with client.consumer("t", group="g", listener=Stuck()) as consumer:
                await one(loop, consumer)
        assert "not committed" not in str(raised.value) and "your loop" not in str(raised.value)


async def test_what_was_to_be_committed_before_a_seek_is_or_is_told(
    loop: Loop, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        async with client.consumer("t", group="g") as consumer:
            (await one(loop, consumer)).commit_soon()
            await consumer.seek({("t", 0): 2})
            await consumer.commit({})
            found = (await consumer.committed())["t", 0]
            assert found is not None and found.offset == 10
        monkeypatch.setattr(leaving, "LEAVE_TIMEOUT", 0.5)
        with loop.fail_after(HUNG), pytest.raises(TimeoutExpired, match=r"not committed.*: t-0 at 10;"):
            async with client.consumer("t", group="other") as consumer:
                batch = await one(loop, consumer)
                ottla_broker.kill()
                batch.commit_soon()
                await consumer.seek({("t", 0): 2})


async def test_a_consumer_whose_block_was_left_says_that_it_is_closed(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 1)
        async with client.consumer("t", group="g") as consumer:
            await one(loop, consumer)
        with pytest.raises(Closed):
            await consumer.committed()
        with pytest.raises(Closed):
            await consumer.seek({("t", 0): 0})
        for attempt in (consumer.pause, consumer.resume):
            with pytest.raises(Closed):
                attempt([("t", 0)])
        with pytest.raises(Closed):
            consumer.position("t", 0)


async def test_after_the_block_nothing_is_committed_and_every_way_to_commit_says_so(
    loop: Loop, ottla_broker: Broker
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        for consumer in (client.consumer("t", group="g"), client.consumer(assign={("t", 0): 0}, group="g")):
            async with consumer:
                batch = await one(loop, consumer)
            for soon in (batch.commit_soon, consumer.commit_soon, partial(consumer.commit_soon, {("t", 0): 1})):
                with pytest.raises(Closed):
                    soon()
            for commit in (batch.commit, consumer.commit):
                with pytest.raises(Closed):
                    await commit()
        assert not await client.committed("g")


async def test_what_is_to_be_committed_when_the_client_is_closed_is_refused(loop: Loop, ottla_broker: Broker) -> None:
    client = loop.connect(ottla_broker.bootstrap)
    await client.__aenter__()
    await fill(client, 10)
    consumer = client.consumer("t", group="g")
    await consumer.__aenter__()
    batch = await one(loop, consumer)
    await client.__aexit__(None, None, None)
    for soon in (batch.commit_soon, consumer.commit_soon):
        with pytest.raises(Closed):
            soon()


async def test_calls_of_a_consumer_in_another_thread_are_refused_before_they_touch_anything(
    loop: Loop,
    ottla_broker: Broker,
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        async with client.consumer("t", group="g") as consumer:
            batch = await one(loop, consumer)

            async def commit_soon() -> None:
                batch.commit_soon()

            def work() -> None:
                for call in (batch.commit_soon, consumer.commit_soon, partial(consumer.pause, [("t", 0)])):
                    with pytest.raises(LocalProtocolError, match=r"belongs to the .*, or call it by"):
                        call()
                for ask in (batch.commit, consumer.commit):
                    with pytest.raises(LocalProtocolError, match=r"belongs to the .* loop"):
                        loop.run(ask)
                run_in_loop(commit_soon)

            assert consumer._core.commits is not None and not consumer._core.commits.pending
            run_in_loop = loop.from_threads()
            await loop.in_thread(work)
            await consumer.commit({})
            assert {at.offset for at in (await consumer.committed()).values() if at} == {10}


async def test_auto_commit_works_for_partitions_assigned_by_hand(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        options: dict[str, Any] = {"group": "g", "assign": {("t", 0): "committed"}}
        async with client.consumer(auto_commit=0.05, **options) as consumer:
            await one(loop, consumer)
            with loop.move_on_after(0.05):
                await anext(consumer)
            with loop.fail_after(HUNG):
                while not (await consumer.committed())["t", 0]:
                    await loop.sleep(0.01)


async def test_an_assignment_whose_telling_was_cancelled_is_told_again_before_anything_is_handed_out(
    loop: Loop,
    ottla_broker: Broker,
) -> None:
    class Slow(ottla.RebalanceListener):
        turns = 0

        async def assigned(self, consumer: Consumer, places: Sequence[Place]) -> None:
            self.turns += 1
            if self.turns == 1:
                scope.cancel()
                await loop.sleep_forever()
            await consumer.seek(dict.fromkeys(places, 5))

    listener = Slow()
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        async with client.consumer("t", group="g", listener=listener) as consumer:
            with loop.cancel_scope() as scope:
                await anext(consumer)
            assert await read(loop, consumer, 5) == list(range(5, 10))
    assert listener.turns == 2


async def test_a_listener_is_given_the_consumer_to_seek_pause_and_commit(loop: Loop, ottla_broker: Broker) -> None:
    given: list[Consumer] = []

    class Seeking(ottla.RebalanceListener):
        async def assigned(self, consumer: Consumer, places: Sequence[Place]) -> None:
            given.append(consumer)
            await consumer.seek(dict.fromkeys(places, 7))
            consumer.pause(places)
            consumer.resume(places)

        async def revoked(self, consumer: Consumer, places: Sequence[Place]) -> None:
            given.append(consumer)
            await consumer.commit()

    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        async with client.consumer("t", group="g", listener=Seeking()) as consumer:
            assert await read(loop, consumer, 3) == [7, 8, 9]
        assert given == [consumer, consumer]
        assert (await client.committed("g"))["t", 0].offset == 10


async def test_a_listener_that_fails_on_leaving_leaves_no_ghost_in_the_group(loop: Loop, ottla_broker: Broker) -> None:
    class Broken(ottla.RebalanceListener):
        async def revoked(self, consumer: Consumer, places: Sequence[Place]) -> None:
            raise ZeroDivisionError

    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 1)
        with pytest.raises(ZeroDivisionError):
            async with client.consumer("t", group="g", session_timeout=FAR, listener=Broken()) as consumer:
                await one(loop, consumer)
        async with client.consumer("t", group="g") as consumer:
            with loop.fail_after(HUNG):  # long before the previous session ends
                assert await read(loop, consumer, 1) == [0]


async def test_going_back_needs_a_seek_and_a_batch_from_before_it_commits_nothing(
    loop: Loop, ottla_broker: Broker
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 10)
        async with client.consumer("t", group="g") as consumer:
            batch = await one(loop, consumer)
            await batch.commit()
            with pytest.raises(LocalProtocolError, match="seek first to commit a lower offset"):
                await consumer.commit({("t", 0): 4})
            await consumer.seek({("t", 0): 2})
            batch.commit_soon()
            with pytest.raises(CommitFailed, match="sought to another offset"):
                await batch.commit()
            await consumer.commit({("t", 0): 4})
            found = (await consumer.committed())["t", 0]
            assert found is not None and found.offset == 4


async def test_without_a_group_nothing_can_be_committed(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 1)
        async with client.consumer("t") as consumer:
            batch = await one(loop, consumer)
            for attempt in (batch.commit_soon, consumer.commit_soon):
                with pytest.raises(LocalProtocolError, match="group='billing'"):
                    attempt()


@pytest.mark.usefixtures("long_goodbyes")
async def test_a_cancellation_around_the_client_leaves_the_consumer_its_moment_to_leave(
    loop: Loop, ottla_broker: Broker
) -> None:
    ottla_broker.create_topic("t")
    async with loop.connect(ottla_broker.bootstrap) as other, other.producer() as producer:
        await producer.send("t", b"v")
        with loop.cancel_scope() as around:
            async with (
                loop.connect(ottla_broker.bootstrap) as client,
                client.consumer("t", group="g", start="beginning") as consumer,
            ):
                async for batch in consumer:
                    batch.commit_soon()
                    around.cancel()
        assert around.cancelled_caught
        described = (await other.describe_groups(["g"]))["g"]
        assert not described.members
        assert (await other.committed("g"))["t", 0].offset == 1

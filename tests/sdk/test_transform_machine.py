"""Transforms in virtual time: slow blocks, and requests without an answer."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ottla.codec import frames
from ottla.codec.apis.end_txn import EndTxnRequest
from ottla.codec.apis.offset_fetch import OffsetFetchRequest
from ottla.errors import OttlaError, TransactionOutcomeUnknown
from tests.sdk.test_cancellations import VirtualRun
from tests.sdk.virtual import Virtual

TIMEOUT = 2.0
"""`api_timeout` in seconds."""


class Scene(VirtualRun):
    """A broker that stops answering for some seconds when a request of the next kind in ``silences`` arrives."""

    def __init__(self, *silences: type, seconds: float = 3 * TIMEOUT) -> None:
        super().__init__(Virtual())
        self._silences, self._seconds = list(silences), seconds
        self._begun: Callable[[Iterable[bytes]], None] = self.virtual.begun
        self.virtual.begun = self._look  # type: ignore[method-assign] # to watch requests

    def _look(self, requests: Iterable[bytes]) -> None:
        requests = list(requests)
        self._begun(requests)
        kinds = {type(frames.parse_request(each).message) for each in requests}
        if self._silences and self._silences[0] in kinds:
            self._silences.pop(0)
            self.hold()
            self.answer_in(self._seconds)

    def play(self, scenario: Any) -> None:
        with self.virtual:
            self.virtual.run(scenario)


def test_a_block_that_takes_longer_than_its_transaction_may_is_repeated() -> None:
    run = Scene()

    async def scenario() -> None:
        await run.topic("in", [b"0"])
        await run.topic("out")
        committed: list[bool | None] = []
        async with (
            run.connect() as client,
            client.transform("in", group="g", transactional_id="t", transaction_timeout=1.0) as transform,
        ):
            async for batches in transform:
                async with transform.transaction(batches) as txn:
                    await txn.send("out", b"%d" % len(committed))
                    if not committed:
                        await run.sleep(60.0)
                    await txn.send("out", b"%d" % len(committed))
                committed.append(txn.committed)
                if txn.committed:
                    break
            assert committed == [False, True]
            assert (await client.committed("g"))["in", 0].offset == 1

    run.play(scenario())


def test_a_handler_that_is_always_slower_than_the_group_waits_is_an_error_after_so_many_attempts() -> None:
    run = Scene()

    async def scenario() -> None:
        await run.topic("in", [b"0"])
        await run.topic("out")
        seen: list[bytes | None] = []
        with pytest.raises(OttlaError) as raised:
            async with (
                run.connect() as client,
                client.transform("in", group="g", transactional_id="t", max_poll_interval=5.0, attempts=3) as transform,
            ):
                async for batches in transform:
                    async with transform.transaction(batches) as txn:
                        seen += [each.value for each in batches]
                        await run.sleep(7.0)
                        await txn.send("out", b"made")
        assert seen == [b"0"] * 3
        told = "\n".join([str(raised.value), *raised.value.__notes__])
        assert "failed 3 times" in told and "max_poll_interval, 5 s" in told, told

    run.play(scenario())


@pytest.mark.parametrize(("timeout", "first"), [(60.0, [b"2"]), (1.0, [b"0", b"1"])], ids=["committed", "aborted"])
def test_after_an_unknown_outcome_the_loop_waits_until_it_is_known_where_the_group_stands(
    timeout: float, first: list[bytes]
) -> None:
    run = Scene(EndTxnRequest, OffsetFetchRequest)

    async def scenario() -> None:
        await run.topic("in", [b"0", b"1"], [b"2"])
        await run.topic("out")
        async with (
            run.connect(api_timeout=TIMEOUT, request_timeout=TIMEOUT) as client,
            client.transform(
                "in", group="g", transactional_id="t", max_records=2, transaction_timeout=timeout
            ) as transform,
        ):
            batches = await anext(transform)
            with pytest.raises(TransactionOutcomeUnknown):
                async with transform.transaction(batches) as txn:
                    await txn.send("out", b"made")
            assert txn.committed is None
            following = await anext(transform)
            assert [record.value for record in following] == first
            async with transform.transaction(following):
                pass

    run.play(scenario())

"""A power cut during transactions; each log keeps any prefix of the data that the disk was not asked to hold.

A producer runs two transactions. The power is cut at every moment at which the producer waits for a response, once for
each combination of prefixes that the logs may keep: the coordinator's log and the partitions' logs. Then the producer
continues.
"""

import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.brokerlite.machines.core import Answer
from ottla.brokerlite.machines.topics.topics import TRANSACTION_STATE, TopicPartition
from ottla.brokerlite.machines.transactions import transaction_coordinator, transaction_ends, transaction_metadata
from ottla.errors import ConcurrentTransactions
from tests.brokerlite.machine import Machine
from tests.brokerlite.model_disk import ModelDisk
from tests.brokerlite.test_transactions import V1, V2, Producing, seen

DATA = Path("/data")
LOGS: tuple[TopicPartition, ...] = ((TRANSACTION_STATE, 0), ("t", 0), ("t", 1))
PARTITIONS = 2
TIMEOUT = 10.0
"""The transaction timeout in seconds."""

Kept = tuple[int, ...]
"""The number of batches that each of the `LOGS` keeps."""


class PowerLost(Exception):
    """The producer does not send its request again."""


class World:
    """A broker that loses power once.

    until: the number of moments before the power cut.
    gives_up: the producer does not repeat the request that the power cut interrupted.
    keeps: the batches that the logs keep; ``None``: all.
    choices: the possible values of ``keeps`` at the power cut; empty if there was none.
    """

    def __init__(self, *, sync: bool, until: int, keeps: Kept | None) -> None:
        self.sync, self.until, self.keeps = sync, until, keeps
        self.choices: list[Kept] = []
        self.gives_up = False
        self.disk = ModelDisk()
        self.machine = self._start()
        self.machine.core.create_topic("t", PARTITIONS, {})
        self.machine.core.transactions_log.topic()
        self.machine.folder.begin_flush()()

    def _start(self) -> Machine:
        return Machine(DATA, disk=self.disk, sync=self.sync)

    def ask(self, message: Any, version: int | None = None) -> Any:
        """Send a request until the response arrives; a producer without one sends it again when the power is back."""
        ticket = self.machine.send(message, version)
        while True:
            if self._loses_power():
                if self.gives_up:
                    raise PowerLost
                ticket = self.machine.send(message, version)
            for action in self.machine.poll():
                if action.ticket == ticket:
                    assert isinstance(action, Answer)
                    return action.message
            self.hold()

    def hold(self) -> None:
        """Sync everything that requests wait for."""
        if (writes := self.machine.core.unsynced) is not None:
            self.machine.folder.begin_flush()()
            self.machine.core.synced(writes, self.machine.now)

    def _loses_power(self) -> bool:
        self.until -= 1
        if self.until != 0:
            return False
        logs = [self.machine.log(*place) for place in LOGS]
        sizes = [list(itertools.accumulate((len(each.data) for each in log.batches()), initial=0)) for log in logs]
        held = [sum(each.base_offset < log.segments.synced_offset for each in log.batches()) for log in logs]
        ranges = [range(first, len(of_log)) for first, of_log in zip(held, sizes, strict=True)]
        self.choices = list(itertools.product(*ranges))
        keeps = self.keeps or self.choices[-1]
        self.disk.crash()
        for (topic, partition), of_log, kept in zip(LOGS, sizes, keeps, strict=True):
            if of_log[kept] < of_log[-1]:
                self.disk.truncate(DATA / f"{topic}-{partition}" / f"{0:020}.log", of_log[kept])
        self.machine = self._start()
        return True

    @property
    def has_lost_power(self) -> bool:
        return bool(self.choices)

    def settle(self) -> None:
        """Sync everything, and wait until no transaction is open."""
        while self.machine.core.unsynced is not None:
            self.hold()
        self.machine.pass_time(TIMEOUT + 2)
        while self.machine.core.unsynced is not None:
            self.hold()
        self.machine.poll()


def until_done(world: World, ask: Callable[[], int]) -> int:
    """Repeat a request while another transaction is being ended; return its error code."""
    for _ in range(10):
        if (code := ask()) != ConcurrentTransactions.code:
            return code
        world.hold()
    raise AssertionError("the last transaction never ends")


class Told:
    """The responses to a producer.

    Attributes:
        committed, aborted: the values of committed and aborted transactions. Where the disk may lose acknowledged
            records, only values that were acknowledged after the power cut, in transactions that ended after it.
        refused: the error that ended the producer.
    """

    def __init__(self) -> None:
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.refused = 0


def transact(world: World, version: int, outcomes: tuple[bool, ...], attempt: int = 0) -> Told:
    """A producer's transactions: each writes a value to each partition, then commits or aborts."""
    told = Told()
    producer = Producing(cast("Machine", world), version=version, timeout_ms=round(TIMEOUT * 1000))
    for number, commit in enumerate(outcomes):
        sure = set()
        for partition in range(PARTITIONS):
            value = b"%d, %d in %d" % (attempt, number, partition)
            if version < V2:
                told.refused = until_done(world, partial(producer.add, partition))
            told.refused |= until_done(world, partial(producer.write, value, partition=partition))
            if told.refused:
                return told
            if world.sync or world.has_lost_power:
                sure.add(value)
        told.refused = until_done(world, partial(producer.end, commit=commit))
        if told.refused:
            return told
        if world.sync or world.has_lost_power:
            (told.committed if commit else told.aborted).update(sure)
    return told


OUTCOMES = list(itertools.product([True, False], repeat=2))
VERSIONS = pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])


def quick(*numbers: int) -> pytest.MarkDecorator:
    """All outcomes; quick runs try only the ones with these numbers."""
    marks = [() if number in numbers else pytest.mark.deep for number in range(len(OUTCOMES))]
    given = [pytest.param(each, marks=mark) for each, mark in zip(OUTCOMES, marks, strict=True)]
    return pytest.mark.parametrize("outcomes", given, ids=str)


@pytest.mark.slow
@quick(0, 2)
@VERSIONS
def test_after_a_power_cut_a_producer_goes_on_as_if_nothing_had_been_where_answers_wait_for_the_disk(
    version: int, outcomes: tuple[bool, ...]
) -> None:
    def play(until: int, keeps: Kept | None) -> World:
        world = World(sync=True, until=until, keeps=keeps)
        told = transact(world, version, outcomes)
        assert told.refused == 0
        check(world, told)
        return world

    each_loss(play)


@pytest.mark.parametrize("commits", [True, False])
def test_what_a_producer_has_given_up_stays_aborted_when_its_next_transaction_comes_to_the_partition(
    commits: bool,
) -> None:
    """The disk may have the batch, but not the record that adds its partition to the transaction."""

    def play(until: int, keeps: Kept | None) -> World:
        world, told = World(sync=True, until=until, keeps=keeps), Told()
        producer = Producing(cast("Machine", world))
        world.gives_up = True
        with suppress(PowerLost):
            assert producer.write(b"first") == producer.write(b"second", partition=1) == 0
        world.gives_up = False
        told.aborted = {b"first", b"second"}
        assert until_done(world, partial(producer.end, commit=False)) == 0
        for partition in range(PARTITIONS):
            value = b"next in %d" % partition
            assert until_done(world, partial(producer.write, value, partition=partition)) == 0
            (told.committed if commits else told.aborted).add(value)
        assert until_done(world, partial(producer.end, commit=commits)) == 0
        check(world, told)
        return world

    each_loss(play)


@pytest.mark.slow
def test_it_does_so_too_where_the_next_transaction_has_another_producer_id(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (transaction_metadata, transaction_coordinator, transaction_ends):
        monkeypatch.setattr(module, "LAST_EPOCH", 0)
    for outcomes in OUTCOMES:
        test_after_a_power_cut_a_producer_goes_on_as_if_nothing_had_been_where_answers_wait_for_the_disk(V2, outcomes)


@pytest.mark.slow
@quick(0)
@pytest.mark.parametrize("version", [pytest.param(V1, marks=pytest.mark.deep), V2], ids=["v1", "v2"])
def test_what_is_told_after_a_power_cut_is_true_where_no_answer_waits_for_the_disk(
    version: int, outcomes: tuple[bool, ...]
) -> None:
    """Records acknowledged before may be lost. But the producer is refused or continues, and no transaction stays open.
    A new producer may be refused until its epoch is higher than the lost ones."""

    def play(until: int, keeps: Kept | None) -> World:
        world = World(sync=False, until=until, keeps=keeps)
        check(world, transact(world, version, outcomes))
        another = next(told for n in range(1, 5) if not (told := transact(world, version, (True,), n)).refused)
        check(world, another)
        return world

    each_loss(play)


def test_a_batch_of_the_next_transaction_waits_for_the_one_before_whose_marker_the_disk_refuses() -> None:
    """The coordinator's log ends with the outcome of the previous transaction; after the next start the disk is full
    for a while."""
    world = World(sync=False, until=5, keeps=(4, 3, 1))
    producer = Producing(cast("Machine", world))
    assert producer.write(b"aborted") == producer.write(b"too", partition=1) == producer.end(commit=False) == 0
    log = DATA / "t-1" / f"{0:020}.log"
    world.disk.fails = lambda operation, path: operation == "write" and path == log
    assert producer.write(b"next") == 0, "a repeat of the stored batch"
    assert world.machine.core.transactions.by_id["t-1"].is_decided
    world.disk.fails = lambda operation, path: False
    world.machine.pass_time(3)
    assert producer.end(commit=True) == 0
    assert seen(world.machine) == [b"next"] and world.machine.log("t", 0).last_stable_offset == 4
    assert seen(world.machine, 1) == [] and world.machine.log("t", 1).last_stable_offset == 2


def each_loss(play: Callable[[int, Kept | None], World]) -> None:
    """Cut the power at each moment, once for each combination of batches that the logs may keep."""
    for until in itertools.count(1):
        world = play(until, None)
        if not world.has_lost_power:
            return
        for keeps in world.choices:
            try:
                play(until, keeps)
            except BaseException as error:
                error.add_note(f"the power goes at moment {until}, and of {LOGS} {keeps} batches are kept")
                raise


def check(world: World, told: Told) -> None:
    world.until = 0  # no further power cut
    world.settle()
    values = {value for partition in range(PARTITIONS) for value in seen(cast("Machine", world), partition)}
    assert told.committed <= values, "committed records are lost"
    assert not told.aborted & values, "aborted records are read"
    for partition in range(PARTITIONS):
        log = world.machine.log("t", partition)
        assert log.last_stable_offset == log.end_offset, "a transaction is left open"

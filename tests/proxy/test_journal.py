"""The journal: its files, and a machine that restarts with it."""

import os
import resource
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import UUID

import pytest
from typer.testing import CliRunner

from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.produce import ProduceRequest
from ottla.codec.compression import Compression
from ottla.codec.messages import build
from ottla.codec.wire import Buffer
from ottla.errors import ConfigurationError, DecodeError, MessageTooLarge, OutOfOrderSequenceNumber, ProducerFenced
from ottla.proxy.descriptors import fitting, needed
from ottla.proxy.events import Store
from ottla.proxy.journal import journal as journal_module
from ottla.proxy.journal import state_directory
from ottla.proxy.journal.journal import Journal, framed
from ottla.proxy.journal.journaled import Journaled
from ottla.proxy.journal.notes import JournalEntry, NotedProducer, NotedRules
from ottla.proxy.journal.state_directory import StateDirectory, read, segments
from ottla.proxy.routing import Destination
from ottla.testing import Broker
from tests.brokerlite.peer import Peer
from tests.brokerlite.running import BrokerProcess
from tests.patience import HUNG, WHOLE
from tests.proxy.kills import Kills
from tests.proxy.running import ProxyThread, proxied
from tests.proxy.simulated import ANSWERED, CUT_AFTER, CUT_BEFORE, Pair, Upstream, World, batch, naming
from tests.proxy.test_rewriting import key_at, make_known, world_of
from tests.scraping import scrape
from tests.sim.proxy import transfers
from tests.sim.proxy.world import play


def entry(*producers: int) -> tuple[Buffer, ...]:
    known = tuple(NotedProducer(producer_id=each, since=0, host="") for each in producers)
    return framed([build(JournalEntry(rules=(NotedRules(rules=()),), producers=known), 0)])


def producers(path: Path) -> list[int]:
    return list(read(path).producers)


def port_of(proxy: ProxyThread) -> int:
    return int(proxy.bootstrap.rpartition(":")[2])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of two segments, as a killed process left it."""
    state = StateDirectory(tmp_path / "state")
    state.store(Store(1, entry(7)))
    state.store(Store(1, entry(8)))
    state.store(Store(2, entry(9)))
    os.close(state._lock)
    return state.path


def test_what_was_written_is_there_after_a_kill(path: Path) -> None:
    assert producers(path) == [7, 8, 9]


def test_an_entry_that_is_cut_off_at_the_end_was_never_acted_upon(path: Path) -> None:
    last = segments(path)[-1]
    whole = last.read_bytes()
    for size in range(len(whole)):
        last.write_bytes(whole[:size])
        assert producers(path) == [7, 8]


def test_what_is_cut_off_does_not_stand_before_what_comes_next(path: Path) -> None:
    last = segments(path)[-1]
    whole = last.read_bytes()
    for size in (3, len(whole) - 1):
        last.write_bytes(whole[:size])
        state = StateDirectory(path)
        _, first = state.recover()
        state.store(Store(first, entry(10)))
        os.close(state._lock)  # the process is killed before it has copied the entries
        assert producers(path) == [7, 8, 10]
        for each in segments(path)[1:]:
            each.unlink()


def test_a_tail_of_nothing_is_no_orderly_end(path: Path) -> None:
    last = segments(path)[-1]
    last.write_bytes(last.read_bytes() + bytes(4096))
    with pytest.raises(DecodeError, match="damaged"):
        read(path)


def test_the_orderly_end_of_one_process_says_nothing_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = StateDirectory(tmp_path)
    first.store(Store(1, entry(7)))
    first.close()
    second = StateDirectory(tmp_path)
    second.store(Store(2, entry(8)))
    os.close(second._lock)
    begun = segments(tmp_path)[1]
    begun.write_bytes(begun.read_bytes().partition(b"\n")[0] + b"\n")  # all that was forced to the disk
    monkeypatch.setattr(state_directory, "boot_id", lambda: "another")
    with pytest.raises(DecodeError, match="machine was restarted"):
        read(tmp_path)


def test_damage_is_not_guessed_about(path: Path) -> None:
    first = segments(path)[0]
    whole = first.read_bytes()
    for at in (whole.index(b"\n") + 9, len(whole) - 1):
        first.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DecodeError):
            read(path)
    first.write_bytes(whole[:-1])
    with pytest.raises(DecodeError, match="cut off"):
        read(path)


def test_a_damaged_journal_is_set_aside_and_the_log_says_what_that_means(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for following in (3, 4):
        segments(path)[0].write_bytes(b"something else\n")
        state = StateDirectory(path)
        found, first = state.recover()
        assert not found.producers and first == following and not segments(path)
        assert "open idempotent producers will be fenced" in caplog.text
        state.store(Store(first, entry(7)))
        os.close(state._lock)
    assert producers(path) == [7]
    assert [each.name for each in path.glob("*.damaged")] == ["00000003.damaged"]


def test_the_journal_of_an_earlier_life_of_the_machine_is_worth_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_directory, "boot_id", lambda: "another")
    with pytest.raises(DecodeError, match="machine was restarted"):
        read(path)


def test_unless_the_proxy_had_ended_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateDirectory(tmp_path)
    state.store(Store(1, entry(7)))
    state.store(Store(2, entry(8)))
    state.close()
    monkeypatch.setattr(state_directory, "boot_id", lambda: "another")
    assert producers(tmp_path) == [7, 8]
    state = StateDirectory(tmp_path)
    state.store(Store(3, entry(9)))
    assert producers(tmp_path) == [7, 8, 9]
    monkeypatch.setattr(state_directory, "boot_id", lambda: "a third")
    with pytest.raises(DecodeError, match="machine was restarted"):
        read(tmp_path)
    state.close()


def test_segments_that_are_of_no_use_any_more_go(path: Path) -> None:
    state = StateDirectory(path)
    state.store(Store(3, entry(10), obsolete=3))
    assert [each.name for each in segments(path)] == ["00000003.journal"]
    state.close()


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_state_that_is_a_file_is_refused_by_name(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="that path, or a part of it, is a file"):
        StateDirectory(tmp_path / "file" / below)


def test_a_state_is_for_one_proxy(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    with pytest.raises(ConfigurationError, match="another proxy keeps its state"):
        StateDirectory(tmp_path)
    state.close()
    StateDirectory(tmp_path).close()


def refused(*_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied")


def full(descriptor: int, parts: object) -> int:
    raise OSError(28, "No space left on device")


def fail(state: StateDirectory, action: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store an entry on a disk that is full."""
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "writev", full)
        state.store(action)


def test_where_nothing_can_be_written_the_journal_is_abandoned(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state = StateDirectory(path)
    fail(state, Store(3, entry(10)), monkeypatch)
    assert not segments(path)
    state.close()
    for _ in range(2):
        state = StateDirectory(path)
        state.recover()
        assert caplog.text.count("journal abandoned") == 1, "only the first start after it logs it"
        state.close()


def test_an_abandoned_journal_is_trusted_again_once_it_is_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateDirectory(path)
    fail(state, Store(3, entry(10)), monkeypatch)
    state.store(Store(4, entry(11)))
    os.close(state._lock)
    state = StateDirectory(path)
    assert not state.recover()[0].producers, "not everything was copied"
    fail(state, Store(5, entry(12)), monkeypatch)
    state.store(Store(6, entry(13)))
    state.store(Store(6, entry(14), obsolete=6))
    state.store(Store(6, entry(15)))
    os.close(state._lock)
    assert list(StateDirectory(path).recover()[0].producers) == [13, 14, 15]


def test_the_end_of_an_earlier_process_is_not_taken_for_that_of_a_journal_that_is_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    state = StateDirectory(tmp_path)
    state.store(Store(1, entry(7), obsolete=1))
    assert synced, "the first segment of a process"
    fail(state, Store(1, entry(8)), monkeypatch)
    synced.clear()
    state.store(Store(2, entry(9), obsolete=2))
    assert synced, "the first segment after a failure"
    state.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors by /proc")
def test_a_running_journal_needs_no_further_descriptor(path: Path) -> None:
    state = StateDirectory(path)
    state.recover()
    state.store(Store(3, entry(10)))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = 1 + max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    holes = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                holes.append(os.open(os.devnull, os.O_RDONLY))
        state.store(Store(4, entry(11)))
        state.store(Store(4, entry(12), obsolete=4))
        state.abandon()
        state.store(Store(5, entry(13), obsolete=5))
    finally:
        for each in holes:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert producers(path) == [13]
    state.close()


def test_where_an_abandoned_journal_cannot_be_removed_it_is_not_believed(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state = StateDirectory(path)
    with monkeypatch.context() as patch:
        for where, name in ((os, "truncate"), (Path, "unlink"), (os, "writev")):
            patch.setattr(where, name, refused)
        with pytest.raises(OSError, match="Permission denied"):
            state.store(Store(3, entry(10)))
    assert segments(path)
    os.close(state._lock)
    state = StateDirectory(path)
    found, _ = state.recover()
    assert not found.producers
    assert "journal abandoned" in caplog.text
    assert not segments(path)
    state.store(Store(4, entry(11)))
    os.close(state._lock)
    assert list(StateDirectory(path).recover()[0].producers) == [11]


def test_a_segment_that_cannot_be_written_is_removed_all_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateDirectory(path)
    for name in ("truncate", "writev"):
        monkeypatch.setattr(os, name, refused)
    with pytest.raises(OSError, match="Permission denied"):
        state.store(Store(3, entry(10)))
    assert not segments(path)


# -- the machine


@pytest.fixture
def world() -> World:
    world = world_of(journal=True)
    world.producer_id(1)
    return world


def code(world: World, data: bytes) -> int:
    """The client's error code, after the proxy has learned of the topic."""
    reply = world.produce(1, {("flights", 0): data})
    world.settle(0.5)
    return reply.code


def test_a_restart_fences_nobody(world: World) -> None:
    producer = world.producer_id(1)
    assert code(world, batch([(key_at(1), b"1")], producer, 0, 0)) == 0
    world.restart()
    assert code(world, batch([(key_at(1), b"2")], producer, 0, 1)) == 0
    assert world.upstream.values("flights") == [b"1", b"2"]


def test_a_retry_after_a_restart_is_answered_from_the_journal(world: World) -> None:
    producer = world.producer_id(1)
    data = batch([(key_at(n), b"%d" % n) for n in range(6)], producer, 0, 0)
    assert code(world, data) == 0
    world.restart()
    assert code(world, data) == 0
    assert len(world.upstream.values("flights")) == 6


def test_what_was_on_its_way_is_sent_again_by_the_proxy_itself(world: World) -> None:
    producer = world.producer_id(1)
    world.slow = True  # upstream stores it, but the response does not arrive
    data = batch([(key_at(n), b"%d" % n) for n in range(6)], producer, 0, 0)
    assert world.produce(1, {("flights", 0): data}).frame is None
    world.upstream.cluster.logs["flights", 3].batches.clear()
    world.slow = False
    world.restart()
    world.settle(2)
    assert len(world.upstream.values("flights")) == 5, "the others are stored once each"
    assert world.core.idle
    assert world.core.buffered.total == world.core.refused_memory.total, "the client may send them in its next epoch"


def test_the_outcome_of_a_failure_is_known_after_a_restart(world: World) -> None:
    producer = world.producer_id(1)
    fates = iter([CUT_AFTER])
    world.upstream.fate = lambda request: next(fates, "answered")
    world.upstream.errors["flights", 1] += [7, 45]
    data = batch([(key_at(1), b"1")], producer, 0, 0)
    reply = world.produce(1, {("flights", 0): data})
    world.settle(5)
    assert reply.code == 90
    world.restart()
    assert code(world, data) == 90


def test_records_of_refused_batches_are_known_after_a_restart(world: World) -> None:
    producer = world.producer_id(1)
    world.slow = True
    data = [batch([(key_at(n), b"%d" % n), (key_at(n + 3), b"x%d" % n)], producer, 0, 2 * n) for n in range(2)]
    world.upstream.errors["flights", 0] += [MessageTooLarge.code]
    replies = [world.produce(1, {("flights", 0): each}) for each in data]
    world.release()
    world.slow = False
    world.settle(1)
    assert [reply.code for reply in replies] == [MessageTooLarge.code, OutOfOrderSequenceNumber.code]
    world.restart()
    for n, values in enumerate(([b"0", b"x0"], [b"1", b"x1"])):
        assert code(world, batch([(key_at(n), values[0]), (key_at(n + 3), values[1])], producer, 1, 2 * n)) == 0
    assert sorted(world.upstream.values("flights"), key=repr) == [b"0", b"1", b"x0", b"x1"]


def test_the_number_of_partitions_stays_pinned(world: World) -> None:
    producer = world.producer_id(1)
    assert code(world, batch([(key_at(1), b"1")], producer, 0, 0)) == 0
    world.upstream.lead("flights", 6, 0)
    world.restart()
    assert code(world, batch([(key_at(1), b"2")], producer, 0, 1)) == 0
    assert world.core.topics.pins["flights"].partitions == 6


def test_the_journal_is_bounded(world: World) -> None:
    producer = world.producer_id(1)
    world.journal_bytes = 5_000
    world.restart()
    for sequence in range(500):
        data = batch([(key_at(1), b"x" * 100)], producer, 0, sequence)
        assert code(world, data) == 0
    assert sum(len(store.data) for store in world.stored) < 20_000
    assert world.stored[0].segment > 3


# -- the program


def test_the_journal_can_be_looked_at(path: Path) -> None:
    from ottla.cli.commands import app

    shown = CliRunner().invoke(app, ["proxy", "journal", str(path)])
    assert shown.exit_code == 0 and shown.output.startswith("3 producers, 0 batches in flight")
    nothing = CliRunner().invoke(app, ["proxy", "journal", str(path / "none")])
    assert nothing.exit_code == 2 and "has no state of a proxy" in nothing.output


def test_the_pin_of_a_topic_that_no_rule_rewrites_is_shown_as_idle(tmp_path: Path) -> None:
    from ottla.cli.commands import app

    world = world_of(journal=True)
    assert code(world, batch([(key_at(1), b"1")], world.producer_id(1), 0, 0)) == 0
    pinned = "flights: pinned to 6 partitions by murmur2"
    for rules, ends in (
        (("flights=rewrite",), ""),
        (("flights=observe",), "; used again if a rule rewrites the topic"),
    ):
        world.use(*rules)
        directory = tmp_path / str(len(ends))
        state = StateDirectory(directory)
        for each in world.stored:
            state.store(each)
        state.close()
        shown = CliRunner().invoke(app, ["proxy", "journal", str(directory)])
        assert f"{pinned}{ends}\n" in shown.output


def test_a_late_answer_to_the_earlier_holder_of_a_producer_id_is_not_noted_for_the_next() -> None:
    world = world_of(journal=True)
    own, key = world.producer_id(1), key_at(0)
    world.slow = True
    world.produce(1, {("flights", 0): batch([(key, b"old")], own, 0, 0)})
    late, world._late = world._late, []
    world.upstream.lose_everything()
    world.slow = False
    assert world.producer_id(2) == own
    assert world.produce(2, {("flights", 0): batch([(key, b"1")], own, 0, 0)}).code == 0
    world._late = late
    world.release()
    world.settle()
    world.restart()
    make_known(world)
    assert world.produce(3, {("flights", 0): batch([(key, b"2")], own, 0, 1)}).code == 0
    assert world.upstream.values("flights") == [b"1", b"2"]


def test_the_end_of_an_earlier_holders_batch_is_not_noted_in_the_windows_of_the_next() -> None:
    world = world_of(journal=True)
    own, key = world.producer_id(1), key_at(3)
    for sequence in range(2):
        world.produce(1, {("flights", 0): batch([(key, b"old")], own, 0, sequence)})
    world.busy = True
    large: list[Pair] = [(key, bytes(1000)) for _ in range(5000)]
    world.produce(1, {("flights", 0): batch(large, own, 0, 2, Compression.GZIP)})
    assert world.work, "a thread opens it"
    world.upstream.lose_everything()
    assert world.producer_id(2) == own
    assert world.produce(2, {("flights", 0): batch([(key, b"1")], own, 0, 0)}).code == 0
    world.busy = False
    while world.work:
        world.finish(world.work[0])
    world.settle(1)
    world.restart()
    make_known(world)
    assert world.produce(3, {("flights", 0): batch([(key, b"2")], own, 0, 1)}).code == 0
    assert world.upstream.values("flights") == [b"1", b"2"]


def test_the_journal_keeps_nothing_of_a_producer_that_is_forgotten() -> None:
    world = world_of(journal=True)
    own = world.producer_id(1)
    world.produce(1, {("flights", 0): batch([(key_at(3), b"v")], own, 0, 0)})
    kept = world.core._journal
    assert kept is not None
    window = world.core.admission.producers.known(own).window(Destination("flights", 0))
    kept._windows[window] = own, Destination("flights", 0)  # the journal has an entry about it from this very step
    kept.forgotten(own)
    assert not kept._windows and not kept._streams and not kept._transactions


@pytest.mark.parametrize("restarts", [False, True])
def test_records_that_several_topics_may_have_are_not_stored_twice(restarts: bool) -> None:
    world = world_of(journal=True)
    own, true = world.producer_id(1), world.upstream.cluster.ids["flights"]

    def named(topic_id: UUID, seconds: float) -> None:
        world.upstream.bend = naming("flights", topic_id)
        world.core.control.request_topics("flights")
        world.settle(seconds)

    world.upstream.fate = lambda request: CUT_AFTER
    world.produce(1, {("flights", 0): batch([(key_at(3), b"x")], own, 0, 0)})
    world.upstream.fate = lambda request: CUT_BEFORE
    for other in (500, 501):  # from nodes with stale metadata
        named(UUID(int=other), 40)
    if restarts:
        world.restart()
    named(true, 40)
    world.upstream.fate = lambda request: ANSWERED
    named(true, 40)
    world.produce(1, {("flights", 0): batch([(key_at(3), b"x")], own, 0, 0)})
    world.settle(10)
    assert world.upstream.values("flights") == [b"x"]


def test_a_state_is_for_one_cluster(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(journal=True)
    own = world.producer_id(1)
    world.slow = True
    world.produce(1, {("flights", 0): batch([(key_at(0), b"for the first")], own, 0, 0)})
    world.upstream = Upstream({"flights": 6, "plain": 2})
    world.upstream.cluster.cluster_id = "other"
    world.slow = False
    world.restart()
    world.settle(100)
    assert not world.core.ready
    assert str(world.core.refused) == (
        "upstream broker:9000 is cluster other, but this proxy's records are for cluster cluster: use another --state"
    )
    assert caplog.text.count("use another --state") == 0, "the error of the start says it"
    assert world.upstream.values("flights") == []


def test_a_rule_that_is_taken_away_is_told_once_and_finds_the_pin_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = world_of(journal=True)
    world.produce(1, {("flights", 0): batch([(key_at(0), b"x")])})
    world.upstream = Upstream({"flights": 9, "plain": 2})
    for _ in range(2):
        world.use("fligths=rewrite")
    [line] = [each for each in caplog.records if "no longer" in each.message]
    assert (line.levelname, vars(line)["before"], vars(line)["now"]) == (
        "WARNING",
        "flights=rewrite:murmur2:6",
        "flights: no rule",
    )
    world.use("flights=rewrite")
    make_known(world)
    assert world.core.topics.pins["flights"].partitions == 6


def test_the_rule_that_the_log_names_brings_keys_back(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(journal=True)
    world.produce(1, {("flights", 0): batch([(key_at(0), b"x")])})
    world.use("flights=rewrite:murmur2:3")
    make_known(world)
    world.produce(1, {("flights", 0): batch([(key_at(0), b"x")])})
    assert world.core.topics.pins["flights"].partitions == 3
    [told] = [vars(each)["before"] for each in caplog.records if "topic rule changed" in each.message]
    world.use(f"flights={told}")
    make_known(world)
    world.produce(1, {("flights", 0): batch([(key_at(0), b"x")])})
    assert world.core.topics.pins["flights"].partitions == 6


@pytest.mark.parametrize("stolen", [0, 1], ids=["that of the bootstrap address", "another"])
@pytest.mark.parametrize("journal", [True, False])
def test_nothing_goes_to_another_cluster_that_has_a_nodes_address(
    journal: bool, stolen: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of(nodes=2, journal=journal, request_timeout=5.0, delivery_timeout=1000.0)
    own, right = world.producer_id(1), world.upstream
    partition = next(index for index in range(6) if right.cluster.leaders["flights", index].node == stolen)
    other = Upstream({"flights": 6, "plain": 2}, nodes=2)
    other.cluster.cluster_id = "other"
    world.kill(stolen)
    world.settle(1)
    right.down.clear()
    answer = right.answer
    right.answer = lambda node, frame: (other.answer if node == stolen else answer)(node, frame)  # type: ignore[method-assign] # a thief
    rewritten = [
        world.produce(1, {("flights", partition): batch([(key_at(partition), b"x")], own, 0, 0)}),
        world.produce(3, {("flights", partition): batch([(key_at(partition), b"y")])}),
    ]
    world.produce(2, {("plain", stolen): batch([(b"k", b"z")])}, node=stolen)
    world.settle(20)
    assert world.core.ready, "the other node still answers"
    assert not other.asked(ProduceRequest, InitProducerIdRequest)
    assert "is cluster other, but this proxy's records are for cluster cluster" in caplog.text
    assert "is cluster other" in world.closed[2]
    right.answer = answer  # type: ignore[method-assign]
    world.settle(10)
    assert [each.code for each in rewritten] == [0, 0]
    assert sorted(right.values("flights"), key=repr) == [b"x", b"y"]


def test_a_topic_that_is_gone_after_a_restart_harms_no_other() -> None:
    world = World(Upstream({"flights": 6, "other": 6}), "flights=rewrite", "other=rewrite", journal=True)
    make_known(world)
    own = world.producer_id(1)
    assert world.produce(1, {("flights", 0): batch([(b"k", b"1")], own, 0, 0)}).code == 0
    world.upstream.cluster.delete("flights")
    world.restart()
    world.settle(1)
    world.produce(2, {("flights", 0): batch([(b"k", b"2")], own, 0, 1)})
    other = world.produce(3, {("other", 0): batch([(b"k", b"3")])})
    world.settle(2)
    assert other.code == 0


@pytest.mark.slow
def test_no_producer_notices_that_the_proxy_is_killed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    try:
        with Kills(tmp_path, broker.bootstrap, seed=1) as storm:
            storm.run(strikes=10, seconds=WHOLE)
            storm.proxy.end(signal.SIGTERM)
            storm.check()
    finally:
        broker.kill()


def test_a_producer_that_was_open_when_a_rule_changed_is_to_be_opened_again() -> None:
    world = world_of(journal=True)
    old = world.producer_id(1)
    assert world.produce(1, {("flights", 0): batch([(key_at(0), b"x")], old, 0, 0)}).code == 0
    assert world.produce(1, {("plain", 0): batch([(key_at(0), b"x")], old, 0, 0)}).code == 0
    for rules in (("plain=rewrite",), ("plain=rewrite", "other=rewrite")):  # the second change concerns neither rule
        world.use(*rules)
        make_known(world)
        for topic in ("flights", "plain"):
            answer = world.produce(2, {(topic, 1): batch([(key_at(1), b"y")], old, 0, 0)})
            assert answer.code == ProducerFenced.code
            new = world.producer_id(2)
            assert world.produce(2, {(topic, 1): batch([(key_at(1), b"y")], new, 0, 0)}).code == 0
    assert world.upstream.values("flights") == [b"x", b"y", b"y"]


# -- a full disk


def test_a_full_disk_is_told_once_and_the_journal_comes_back(world: World, caplog: pytest.LogCaptureFixture) -> None:
    producer = world.producer_id(1)
    assert code(world, batch([(key_at(1), b"0")], producer, 0, 0)) == 0
    world.disk_is_full = True
    for sequence in range(1, 9):
        assert code(world, batch([(key_at(1), b"%d" % sequence)], producer, 0, sequence)) == 0
        world.settle(10)
    assert world.core.journal_works is False and world.core.journal_outage == "No space left on device"
    assert caplog.text.count("journal write failed, retrying") == 1
    young = world.producer_id(1)
    world.disk_is_full = False
    world.settle(40)
    assert world.core.journal_works and world.core.journal_outage is None
    assert caplog.text.count("journal recovered") == 1
    world.restart()
    assert code(world, batch([(key_at(1), b"9")], producer, 0, 9)) == 0
    assert code(world, batch([(key_at(1), b"0")], young, 0, 0)) == 0
    assert world.upstream.values("flights") == [*(b"%d" % each for each in range(10)), b"0"]


def test_batches_under_way_are_in_a_journal_that_is_rebuilt(world: World) -> None:
    producer = world.producer_id(1)
    world.disk_is_full = True
    world.upstream.fate = lambda request: CUT_BEFORE
    world.produce(1, {("flights", 0): batch([(key_at(1), b"x")], producer, 0, 0)})
    world.disk_is_full = False
    world.settle(5)
    world.upstream.fate = lambda request: ANSWERED
    world.restart()
    world.settle(2)
    assert world.upstream.values("flights") == [b"x"]


def test_a_restart_before_the_journal_is_whole_fences(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "COPIED_AT_ONCE", 1)
    known = [world.producer_id(1) for _ in range(5)]
    world.disk_is_full = True
    assert code(world, batch([(key_at(1), b"x")], known[0], 0, 0)) == 0
    world.disk_is_full = False
    world.now += 5
    for _ in range(3):  # the rebuilding begins, and some producers are copied
        for action in world.core.poll(world.now):
            world._act(action)
    assert world.stored and world.core.journal_works is False
    world.restart()
    assert code(world, batch([(key_at(1), b"y")], known[0], 0, 1)) == ProducerFenced.code


def test_a_disk_that_fills_again_and_again_is_tried_ever_less(world: World) -> None:
    producer, failed = world.producer_id(1), []
    for sequence in range(300):
        world.disk_is_full = True
        before = world.core.journal_works
        code(world, batch([(key_at(1), b"x")], producer, 0, sequence))
        failed.append(bool(before and not world.core.journal_works))
        world.disk_is_full = False
        world.settle(1)
    assert sum(failed) < 20


def test_an_entry_that_cannot_be_made_abandons_the_journal_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    producer = world.producer_id(1)

    def broken(journal: Journal) -> None:
        raise ValueError("an entry")

    monkeypatch.setattr(Journal, "_take", broken)
    assert world.produce(1, {("flights", 0): batch([(key_at(0), b"x")], producer, 0, 0)}).code == 0
    assert "a bug in the proxy, please report it: an entry of the journal" in caplog.text
    assert not world.stored and world.abandoned and world.core.journal_works is False
    monkeypatch.undo()
    world.settle(40)
    assert world.core.journal_works
    world.restart()
    assert code(world, batch([(key_at(0), b"y")], producer, 0, 1)) == 0


def test_the_proxy_tells_the_outage_and_ends_with_a_whole_journal(
    ottla_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ottla_broker.create_topic("flights", 6)
    options: dict[str, Any] = {"state": str(tmp_path), "health": "127.0.0.1:0"}
    with proxied(ottla_broker.bootstrap, "flights=rewrite", **options) as proxy, Peer(port_of(proxy)) as peer:
        health = proxy.running.health
        with monkeypatch.context() as patch:
            patch.setattr(state_directory, "_write", full)
            peer.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
            page = scrape(health)
            with urlopen(f"http://{health}/ready", timeout=HUNG) as response:
                told = response.read().decode()
    assert page.value("ottla_proxy_journal_works") == 0
    why = f"a restart now fences idempotent producers: {tmp_path}: no space left on device"
    assert told == f"ok\njournal not written, {why}\n"
    assert len(producers(tmp_path)) == 1
    assert not (tmp_path / "ottla-proxy.lock").read_bytes()


def test_connections_leave_descriptors_for_the_rest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (needed(2000), needed(2000)))
    assert fitting(2000) == 2000 and not caplog.text
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (150, 150))
    assert fitting(2000) == 28 and fitting(10) == 10
    assert caplog.text.count("limit of open files is too low for max-connections") == 1


@pytest.mark.slow
def test_what_the_journal_has_kept_of_a_part_is_what_it_would_write_now(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: Counter[str] = Counter()

    entry = Journaled.entry

    def compared(self: Journaled, build: Callable[[Any], Any]) -> Any:
        kept[build.__name__] += self._entry is not None
        found = entry(self, build)
        assert build(self) == found
        return found

    monkeypatch.setattr(Journaled, "entry", compared)
    for seed in range(12):
        result = play(seed)
        assert not result.violation, result.cause
    for seed in range(4):
        result = transfers.play(seed)
        assert not result.violation, result.cause
    assert len(kept) == 4 and min(kept.values()) > 100, kept

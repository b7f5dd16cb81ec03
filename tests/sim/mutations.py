"""Mutations of the client: they break it on purpose, to prove that the simulator notices.

Each mutation replaces attributes of the real classes or modules. If an attribute is gone, entering the mutation raises
`LookupError`: whoever renames code has to adapt the mutations that break it.
"""

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.codec.records import BatchBuilder
from ottla.errors import (
    ConnectionLost,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OttlaError,
    TimeoutExpired,
    UnknownTopicOrPartition,
)
from ottla.sdk import calls
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.calls import task
from ottla.sdk.calls.task import Task
from ottla.sdk.cluster.cluster import Cluster
from ottla.sdk.cluster.coordinators import Coordinators
from ottla.sdk.cluster.metadata import Metadata
from ottla.sdk.cluster.questions import Questions
from ottla.sdk.connection import peer
from ottla.sdk.connection.connection import Connection
from ottla.sdk.connection.connections import Connections
from ottla.sdk.connection.outages import Outages
from ottla.sdk.connection.pipeline import Pipeline
from ottla.sdk.connection.session import Session
from ottla.sdk.connection.versions import FETCH_BY_ID
from ottla.sdk.consume.ahead import Ahead
from ottla.sdk.consume.asking import Asking
from ottla.sdk.consume.assignment.committing import Committing
from ottla.sdk.consume.assignment.leaving import Leaving
from ottla.sdk.consume.assignment.notices import Notices
from ottla.sdk.consume.assignment.subscription import Subscription
from ottla.sdk.consume.core import ConsumerCore
from ottla.sdk.consume.fetching import fetch_session
from ottla.sdk.consume.fetching.fetch_scheduler import FetchScheduler
from ottla.sdk.consume.fetching.fetch_session import FetchSession, RequestedPartition
from ottla.sdk.consume.partitions.fetched import Fetched
from ottla.sdk.consume.partitions.position import NO_NODE, Time
from ottla.sdk.consume.partitions.record_sets import cut
from ottla.sdk.consume.positions import position_lookups
from ottla.sdk.consume.positions.assigned_positions import AssignedPositions
from ottla.sdk.consume.positions.position_lookups import PositionLookups
from ottla.sdk.consume.positions.retries import Retries
from ottla.sdk.consume.positions.review import Review
from ottla.sdk.consume.reading.fetch_answers import FetchAnswers
from ottla.sdk.consume.reading.fetcher import Fetcher
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.pump import Pump
from ottla.sdk.events import GENERAL, Written
from ottla.sdk.flow import Flow
from ottla.sdk.gate import Gate
from ottla.sdk.group import goodbye, leader
from ottla.sdk.group.classic_member import ClassicMember
from ottla.sdk.group.commit_queue import CommitQueue
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.heartbeats import Heartbeats
from ottla.sdk.group.member_states import MemberInput
from ottla.sdk.group.offset_commits import OffsetCommits
from ottla.sdk.logs import HELD
from ottla.sdk.outcome import Outcome, all_of
from ottla.sdk.produce import accumulator, batches, deliveries, node_queue, results, room
from ottla.sdk.produce import requests as produce_requests
from ottla.sdk.produce.batches import PartitionQueue, ProducerBatch
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.deliveries import Deliveries
from ottla.sdk.produce.node_queue import NodeQueue
from ottla.sdk.produce.producer_queues import ProducerQueues
from ottla.sdk.produce.records import Acknowledgement, PendingRecord
from ottla.sdk.produce.results import Results
from ottla.sdk.produce.room import Room
from ottla.sdk.produce.sender import Sender
from ottla.sdk.steps import TURN

Change = Callable[[Any], Any]
"""Makes the broken attribute from the original one."""


@contextmanager
def changed(*changes: tuple[Any, str, Change]) -> Iterator[None]:
    """Replace attributes of classes and modules, each given as (owner, name, change), and restore them at the end."""
    originals = []
    for owner, name, _ in changes:
        if name not in vars(owner):
            raise LookupError(f"{owner.__name__} has no {name!r} any more: adapt the mutation to the new code")
        originals.append((owner, name, vars(owner)[name]))
    try:
        for (owner, name, change), (_, _, original) in zip(changes, originals, strict=True):
            broken = change(original)
            _check_fit(original, broken, f"{owner.__name__}.{name}")
            setattr(owner, name, broken)
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _check_fit(original: Any, broken: Any, name: str) -> None:
    """Check that what takes the place of a function can be called like it.

    Raises:
        LookupError: it cannot.
    """
    if not (isinstance(original, FunctionType) and isinstance(broken, FunctionType)):
        return
    wanted = inspect.signature(original).parameters.values()
    named = {each.name: None for each in wanted if each.kind is each.KEYWORD_ONLY}
    placed = [each for each in wanted if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = [each for each in placed if each.default is each.empty]
    optional = {each.name: None for each in placed if each.default is not each.empty}
    try:
        inspect.signature(broken).bind(*placed, **named)
        inspect.signature(broken).bind(*needed, **named, **optional)
    except TypeError as error:
        raise LookupError(f"{name} is called in another way by now ({error}): adapt the mutation") from None


CAUGHT = Path(__file__).with_name("caught.json")
"""Mutation -> a seed that has caught it. It is tried first, because most seeds do not catch a given mutation.

``python -m tests.sim mutations`` writes the file. If a seed no longer catches its mutation the others are tried, which
takes longer.
"""


class Mutations:
    """The mutations of one kind of world.

    Args:
        kind: the kind of world, by its option of ``python -m tests.sim``.
        within: the number of seeds that are tried for each mutation.

    Attributes:
        known: name -> the mutation; a name says what goes wrong.
        seeds: name -> the seeds to try, in order.
    """

    def __init__(self, kind: str, within: int) -> None:
        self.kind = kind
        self.known: dict[str, Callable[[], AbstractContextManager[None]]] = {}
        self.seeds: dict[str, list[int]] = {}
        self._within = within
        self._caught = json.loads(CAUGHT.read_text()).get(kind, {})

    def add(self, name: str, *changes: tuple[Any, str, Change]) -> None:
        self.known[name] = lambda: changed(*changes)
        first = [self._caught[name]] if name in self._caught else []
        self.seeds[name] = [*first, *range(self._within)]

    def note(self, caught: Mapping[str, int]) -> None:
        """Store the seeds to be tried first from now on."""
        told = json.loads(CAUGHT.read_text())
        told[self.kind] = {name: seed for name in self.known if (seed := caught.get(name)) is not None}
        CAUGHT.write_text(json.dumps(told, indent=1) + "\n")


OF_CLIENT = Mutations("client", within=300)
MUTATIONS, SEEDS, _mutation = OF_CLIENT.known, OF_CLIENT.seeds, OF_CLIENT.add


# -- the producer ------------------------------------------------------------------------------------------------------


def _first_epoch_for_ever(build: Any) -> Any:
    def broken(self: Any, **given: Any) -> bytes:
        if given.get("producer_id", -1) >= 0:
            given["producer_epoch"] = 0
        return bytes(build(self, **given))

    return broken


def _new_number_for_each_attempt(send: Any) -> Any:
    def broken(self: PartitionQueue, batch: Any, *given: Any, **named: Any) -> None:
        batch.sequence = None
        send(self, batch, *given, **named)

    return broken


def _first_need_not_be_alone(sendable: Any) -> Any:
    def broken(self: PartitionQueue, now: float) -> Any:
        self.acknowledged = True
        return sendable(self, now)

    return broken


def _silence_is_an_ack(judge: Any) -> Any:
    def broken(self: Any, queue: Any, batch: Any, error: OttlaError, now: float, **given: Any) -> None:
        if isinstance(error, ConnectionLost):
            self.stored(queue, batch, -1, -1, now)
        else:
            judge(self, queue, batch, error, now, **given)

    return broken


def _refused_unless_it_says_otherwise(maybe_stored: Any) -> Any:
    def broken(error: OttlaError) -> bool:
        return maybe_stored(error) and not isinstance(error, (NotLeaderOrFollower, UnknownTopicOrPartition))

    return broken


def _the_oldest_is_acknowledged(stored: Any) -> Any:
    def broken(self: Any, queue: Any, batch: Any, *given: Any) -> None:
        stored(self, queue, queue.batches[0], *given)

    return broken


def _as_acknowledged_as_before(adopt: Any) -> Any:
    def broken(self: PartitionQueue, identity: Any) -> bool:
        acknowledged = self.acknowledged
        adopted = adopt(self, identity)
        self.acknowledged |= acknowledged
        return bool(adopted)

    return broken


def _the_old_epoch_goes_on(_: Any) -> Any:
    def broken(self: PartitionQueue, incarnation: int) -> None:
        self.incarnation, self.acknowledged = incarnation, False

    return broken


def _sequences_go_on(adopt: Any) -> Any:
    def broken(self: PartitionQueue, identity: Any) -> bool:
        following, old = self.next_sequence, self.identity
        adopted = adopt(self, identity)
        if self.identity is not old:
            self.next_sequence = following
        return bool(adopted)

    return broken


def _flushes_wait_for_the_newest(placed: Any) -> Any:
    def broken(self: Deliveries, *given: Any) -> Any:
        self._flushes = [(self._numbers, outcome) for _, outcome in self._flushes]
        return placed(self, *given)

    return broken


def _nothing(_: Any) -> Any:
    return lambda *_: None


_mutation("the producer forgets to raise its epoch", (BatchBuilder, "build_in_place", _first_epoch_for_ever))
_mutation("a batch gets another sequence with each attempt", (PartitionQueue, "send", _new_number_for_each_attempt))
_mutation("two batches go first under a new id", (PartitionQueue, "sendable", _first_need_not_be_alone))
_mutation("a lost connection passes for an acknowledgement", (Results, "refused", _silence_is_an_ack))
_mutation(
    "more than five batches are in flight",
    (batches, "MAX_IN_FLIGHT", lambda _: 50),
    (node_queue, "MAX_REQUESTS", lambda _: 50),
)
_mutation(
    "a leader that steps down passes for one that never appended",
    (results, "_maybe_stored", _refused_unless_it_says_otherwise),
)
_mutation("what an old log acknowledged counts in a new epoch", (PartitionQueue, "adopt", _as_acknowledged_as_before))
_mutation("the epoch goes on where a topic is recreated", (PartitionQueue, "recreate", _the_old_epoch_goes_on))
_mutation("sequences go on in a new epoch", (PartitionQueue, "adopt", _sequences_go_on))
_mutation("acknowledgements go to the oldest batch", (Results, "stored", _the_oldest_is_acknowledged))
_mutation("failed records are dropped without a word", (Deliveries, "count", _nothing))
_mutation(
    "a flush waits for what comes once a topic is known",
    (Deliveries, "placed", _flushes_wait_for_the_newest),
)
_mutation("delivery has no deadline", (Results, "expire", _nothing))
_mutation("what was reported as failed is sent when its connection is there", (ProducerBatch, "withdraw", _nothing))


# -- the fetcher and the leaders ---------------------------------------------------------------------------------------


def _from_the_next_batch_on(buffer: Any) -> Any:
    def broken(self: Any, position: Any, batches: Any, result: Any) -> Any:
        later = [each for each in batches if each.base_offset >= position.fetch_offset]
        return buffer(self, position, later or batches, result)

    return broken


def _what_is_cut_is_damaged(torn: Any) -> Any:
    def broken(self: Any, position: Any, session: Any, records: Any, now: float) -> None:
        self._positions.damaged(position, cut(records), now)

    return broken


def _from_the_beginning(retry: Any) -> Any:
    def broken(self: Any, positions: Any, error: OttlaError, now: float) -> None:
        retry(self, positions, error, now)
        for each in positions:
            self.seek(each, Time(EARLIEST))

    return broken


def _the_first_leader_for_ever(merged: Any) -> Any:
    def broken(self: Cluster, name: str, answer: Any) -> Any:
        return self.topics.get(name) or merged(self, name, answer)

    return broken


def _whatever_comes(merged: Any) -> Any:
    def broken(self: Cluster, name: str, answer: Any) -> Any:
        self.topics.pop(name, None)
        return merged(self, name, answer)

    return broken


_mutation("the batch that holds the offset is skipped", (FetchAnswers, "_buffer", _from_the_next_batch_on))
_mutation("a batch that comes cut is taken for damage", (FetchAnswers, "_torn", _what_is_cut_is_damaged))
_mutation(
    "an answer that a seek has overtaken is delivered",
    (RequestedPartition, "matters", lambda _: property(lambda self: True)),
)
_mutation("any error resets to the beginning", (AssignedPositions, "retry", _from_the_beginning))


def _nothing_is_throttled(results: Any) -> Any:
    def broken(self: FetchSession, answer: Any) -> Any:
        answer.throttle_time_ms = 0
        return results(self, answer)

    return broken


def _by_id_in_all_versions(asked: Any) -> Any:
    def broken(position: Any, limits: Any, version: int) -> Any:
        return asked(position, limits, FETCH_BY_ID)

    return broken


def _the_highest_epoch_for_ever(schedule: Any) -> Any:
    def broken(self: Review, position: Any, leader: Any, led: Any, now: float) -> None:
        epoch = max(led.epoch, position.leader_epoch)
        schedule(self, position, leader, led._replace(epoch=epoch, incarnation=position.incarnation), now)

    return broken


_mutation(
    "what is asked for by name is forgotten in the same request", (fetch_session, "_asked", _by_id_in_all_versions)
)
_mutation("a leader epoch that falls is never adopted", (Review, "_schedule", _the_highest_epoch_for_ever))
_mutation("an answer that is over a quota passes for a broken broker", (FetchSession, "results", _nothing_is_throttled))
_mutation("a client over its quota does not wait", (peer, "throttles_clients", lambda _: lambda theirs: False))
_mutation(
    "the old leader is asked for ever",
    (Cluster, "_merged", _the_first_leader_for_ever),
    (Cluster, "moved", lambda _: lambda *_: False),
)
_mutation("an older leader epoch is taken over", (Cluster, "_merged", _whatever_comes))


# -- the group ---------------------------------------------------------------------------------------------------------


def _once_more_later(judge: Any) -> Any:
    def broken(self: Any, error: Any, commits: Mapping[Any, Any], now: float) -> None:
        judge(self, error, commits, now)
        old = dict(commits)

        def again(now: float) -> None:
            self._queue.pending.update(old)
            self.wake()

        self._core.later(now + 0.5, again)

    return broken


def _commits_stay(_: Any) -> Any:
    return lambda self, place, why, *, quiet=True: None


def _what_is_in_hand_is_done(hand_out: Any) -> Any:
    def broken(self: Committing, fetched: Any) -> Any:
        assignment = hand_out(self, fetched)
        self.finish()
        return assignment

    return broken


def _nobody_committed(_: Any) -> Any:
    def broken(core: Any, groups: Mapping[str, Any], *_: Any, **__: Any) -> Outcome[Any]:
        outcome: Outcome[Any] = Outcome()
        outcome.succeed({group: {} for group in groups})
        return outcome

    return broken


def _no_word_of_lost_commits(fail: Any) -> Any:
    def broken(self: Any, commits: Any, why: str, *, cause: Any = None, quiet: bool = False) -> None:
        if not quiet:
            fail(self, commits, why, cause=cause)

    return broken


def _eager_ones_keep_all(rejoin: Any) -> Any:
    def broken(self: ClassicMember, why: str, now: float) -> None:
        if self._enter(MemberInput.REBALANCE, now):
            self._begin(now)

    return broken


def _told_once_it_has_returned(gone: Any) -> Any:
    def broken(self: Notices, method: str, places: Any, *args: Any, **options: Any) -> Any:
        known, steps = dict(self._known), gone(self, method, places, *args, **options)
        sent: Any = None
        while True:
            try:
                wait = steps.send(sent)
            except StopIteration as end:
                return end.value
            self._known.update(known)  # a cancellation leaves this as it is
            sent = yield wait
            for place in places:
                self._known.pop(place, None)

    return broken


def _taken_before_the_turn(next_batch: Any) -> Any:
    def broken(self: ConsumerCore, *given: Any, **named: Any) -> Any:
        taken = yield from next_batch(self, *given, **named)
        yield TURN
        return taken

    return broken


def _left_where_it_is(settle: Any) -> Any:
    def broken(self: Ahead[Any]) -> Any:
        left = list(self._left)
        taken = settle(self)
        self._left.clear()
        self._left.extend(left)
        return taken

    return broken


def _no_news(_: Any) -> Any:
    return lambda self: False


_mutation("what was offered stays on offer when the core goes on", (Ahead, "settle", _left_where_it_is))
_mutation("what did not reach its caller counts as handed out", (Fetcher, "put_back", _nothing))
_mutation("batches are offered whatever else is to be told", (ConsumerCore, "_has_news", _no_news))
_mutation("an old commit is repeated after a newer one", (OffsetCommits, "_retry_or_fail", _once_more_later))
_mutation("commits outlive the ownership of their partition", (Commits, "disown", _commits_stay))
_mutation("a refused commit passes for a success", (Commits, "_fail", _no_word_of_lost_commits))
_mutation("what is in hand is committed", (Committing, "hand_out", _what_is_in_hand_is_done))
_LOADED = (calls.committed,)  # in the package, where its users look it up: it loads its functions at their first use
_mutation("a member begins without asking where the group stands", (calls, "committed", _nobody_committed))
_mutation(
    "revoked partitions are read on",
    (AssignedPositions, "unassign", _nothing),
    (ConsumerCore, "_readable", _nothing),
)
_mutation("a member joins again without giving anything up", (ClassicMember, "rejoin", _eager_ones_keep_all))
_mutation("a member sends no heartbeats", (Heartbeats, "_begin", _nothing))
_mutation("a going counts as told when the listener has returned", (Notices, "_gone", _told_once_it_has_returned))
_mutation("a batch is lost where its caller is cancelled", (ConsumerCore, "next_batch", _taken_before_the_turn))


# -- the core ----------------------------------------------------------------------------------------------------------

_never_writing = property(lambda self: False)

_mutation("requests have no deadline", (Connections, "_watch", _nothing))
_mutation("a request does not wait for the one before to be written", (Pipeline, "writing", lambda _: _never_writing))
_mutation("nobody pauses before trying again", (ClientCore, "backoff", lambda _: lambda self, failures: 0.0))


# -- past bugs, and users' code outside of the machines ----------------------------------------------------------------


def _kept_when_cancelled(wait: Any) -> Any:
    def broken(self: Room, record: Any) -> Outcome[None]:
        inner = wait(self, record)
        outer: Outcome[None] = Outcome()
        inner.when_done(lambda: outer.settle(inner.error) if inner.error else outer.succeed(None))
        return outer

    return broken


def _accepted_before_the_turn(send: Any) -> Any:
    def broken(self: ProducerCore, record: Any) -> Any:
        yield from self._enter(record)
        yield TURN

    return broken


def _callbacks_at_once(_: Any) -> Any:
    def broken(self: ClientCore, call: Any, *place: Any, **how: Any) -> None:
        call()

    return broken


def _until_nothing_is_left(_: Any) -> Any:
    def broken(self: Pump[Any]) -> None:
        if self._pumping:
            return
        self._pumping = True
        while (actions := self.core.poll(self.now())) or self._runs:
            for each in self._carry_out(actions):
                self.core.handle(Written(each.key), self.now())
            while self._runs:
                self._run_one()
        self._pumping = False
        self._look_ahead()

    return broken


def _settled_before_the_callbacks(_: Any) -> Any:
    def broken(self: Deliveries) -> None:
        oldest = next(iter(self._unsettled), self._numbers + 1)
        for each in [each for each in self._flushes if each[0] < oldest]:
            self._flushes.remove(each)
            each[1].succeed(None)

    return broken


def _errors_of_callbacks_are_swallowed(_: Any) -> Any:
    return lambda self, error, result: None


def _cancelled_callers_see_it_anyway(_: Any) -> Any:
    return lambda callback: False


def _any_error_counts(retry: Any) -> Any:
    def broken(self: Retries, positions: Any, error: OttlaError, now: float) -> None:
        for each in positions:
            if isinstance(error, UnknownTopicOrPartition):
                each.unknown_since = each.failing_since
        retry(self, positions, error, now)

    return broken


def _waiters_are_forgotten(_: Any) -> Any:
    return lambda self, now: None


def _memory_is_never_given_back(_: Any) -> Any:
    return lambda self, size: None


def _released_at_once(send: Any) -> Any:
    def broken(self: Sender, node: Any, batches: Any, now: float) -> None:
        send(self, node, batches, now)
        if not self._options.acks:
            for batch in batches:
                self.results._deliveries._room.give_back(batch.charged)
                batch.charged = 0

    return broken


def _settled_at_once(send: Any) -> Any:
    def broken(self: Sender, node: Any, batches: Any, now: float) -> None:
        send(self, node, batches, now)
        if not self._options.acks:
            for batch in batches:
                self.results._deliveries.settled(batch.number)

    return broken


def _brokers_are_not_waited_for(_: Any) -> Any:
    def broken(self: ClientCore, channel: str) -> Outcome[None]:
        finished: Outcome[None] = Outcome()
        finished.succeed(None)
        return finished

    return broken


def _a_timer_keeps_the_batch(add: Any) -> Any:
    def broken(self: Sender, queue: PartitionQueue, batch: Any) -> None:
        add(self, queue, batch)
        self._core.later(batch.opened + 0.5, lambda now: batch.cancel_timers())

    return broken


def _a_pause_for_each_batch(_: Any) -> Any:
    def broken(self: NodeQueue, queue: PartitionQueue, batch: Any, error: OttlaError, now: float) -> None:
        batch.retry_at = now + self._core.options.retry_backoff / 4
        self._core.later(batch.retry_at, lambda now: self._wake(queue))

    return broken


def _whenever_somebody_asks(_: Any) -> Any:
    return lambda self, now, delay=0.0: self._ask_at(now + delay)


def _asked_within_the_pause(_: Any) -> Any:
    def broken(self: Metadata, now: float) -> None:
        self._timer = None
        if not any(each.hedge.call for each in self._requests._asked.values()):
            self._requests._ask_another(now)

    return broken


def _all_for_one(next_question: Any) -> Any:
    def broken(self: Questions, now: float, **options: Any) -> Any:
        self.all_at = -math.inf
        return next_question(self, now, **options)

    return broken


def _only_waits_beside(next_question: Any) -> Any:
    def broken(self: Questions, now: float, **options: Any) -> Any:
        return next_question(self, now, **options | ({"waits_alone": True} if self._all_asked is not None else {}))

    return broken


def _some_put_off_all(answered: Any) -> Any:
    def broken(self: Questions, question: Any, *given: float) -> Any:
        if not question.about_all:
            self.all_at = math.inf
        return answered(self, question, *given)

    return broken


def _sends_within_a_renewal(renew: Any) -> Any:
    def broken(self: Connection, now: float) -> None:
        renew(self, now)
        self._send_next(now)

    return broken


def _one_connection_for_all(submit: Any) -> Any:
    def broken(self: ClientCore, node: Any, exchange: Any, now: float, channel: str = GENERAL) -> None:
        submit(self, node, exchange, now, GENERAL)

    return broken


def _torn_twice_is_damaged(torn: Any) -> Any:
    def broken(self: FetchAnswers, position: Any, session: Any, records: Any, now: float) -> None:
        if position.needs:
            self._positions.damaged(position, cut(records), now)
        else:
            torn(self, position, session, records, now)

    return broken


def _lingering_goes_on(init: Any) -> Any:
    def broken(self: Room, *given: Any, **options: Any) -> None:
        init(self, *given, **options | {"full": lambda: None})

    return broken


def _as_given(_: Any) -> Any:
    return lambda self: None


def _not_counted_once_cancelled(next_batch: Any) -> Any:
    def broken(self: ConsumerCore, *given: Any, **named: Any) -> Any:
        try:
            return (yield from next_batch(self, *given, **named))
        except BaseException as error:
            if not isinstance(error, Exception):
                self.polls.stop()
            raise

    return broken


def _silent_if_it_has_to_ask(leave: Any) -> Any:
    def broken(core: ClientCore, said: goodbye.Goodbye, until: float) -> Any:
        if core.coordinators.known(said.group) is not None:
            yield from leave(core, said, until)

    return broken


def _raises_before_the_commits(normally: Any) -> Any:
    def broken(self: Leaving, *, within_listener: bool) -> Any:
        yield from self._notices.revoked(self._notices.known)
        yield from normally(self, within_listener=within_listener)

    return broken


def _all_positions_each_time(_: Any) -> Any:
    def broken(self: Committing, now: float) -> None:
        commits = self.commits
        found = {place: commits.assignment(place) for place in self._fetcher.assignment}
        at = {place: self._fetcher.position(place) for place in found}
        epoch = self._fetcher.position_epoch
        commits.commit(
            {
                each: CommittedOffset(where, epoch(p))
                for p, each in found.items()
                if each and (where := at[p]) is not None
            },
            now,
        )

    return broken


def _leaves_and_may_come_back(_: Any) -> Any:
    def broken(self: ClassicMember, why: str, now: float, until: float | None = None) -> Any:
        self._enter(MemberInput.LEAVE, now)
        self._depart(why, now, until)
        return self._leaving

    return broken


def _last_goodbye_only(say_good_bye: Any) -> Any:
    def broken(self: ClassicMember, why: str, now: float, until: float | None = None) -> None:
        self._leaving = goodbye.nothing_to_say()
        say_good_bye(self, why, now, until)

    return broken


def _counted_on(_: Any) -> Any:
    def broken(self: ConsumerCore, why: str, now: float, until: float) -> Any:
        return Flow(self._core, self._leaving.with_client(why, until)).outcome

    return broken


_mutation(
    "a block does not wait for the goodbye that comes after max_poll_interval",
    (ClassicMember, "_say_good_bye", _last_goodbye_only),
)
_mutation("max_poll_interval is counted on while a client is left", (ConsumerCore, "_leave_with_client", _counted_on))
_mutation("a group misses the topics of its pattern that are deleted", (Fetcher, "let_go", _nothing))
_mutation("what is lost is revoked where a block is left", (Notices, "gone", lambda _: property(lambda self: False)))
_mutation(
    "a consumer joins its group again while its block is being left",
    (Asking, "refuse_left", _nothing),
    (ClassicMember, "close", _leaves_and_may_come_back),
)
_mutation(
    "a cancelled wait ends the counting of max_poll_interval", (ConsumerCore, "next_batch", _not_counted_once_cancelled)
)
_mutation("a member leaves silently if its coordinator is not known", (goodbye, "_leave", _silent_if_it_has_to_ask))
_mutation("a revoked that raises drops what was to be committed", (Leaving, "_normally", _raises_before_the_commits))
_mutation("what is committed is committed again", (Committing, "commit_all", _all_positions_each_time))


def _once_all_are_known(_: Any) -> Any:
    def broken(self: Subscription, topics: Any) -> Any:
        yield all_of([self._core.metadata.topic(name, self._core.now) for name in topics])
        self._known(self._core.now)

    return broken


def _any_that_failed(_: Any) -> Any:
    return lambda self, only: self._error(only)


def _ends_by_itself_only(init: Any) -> Any:
    def broken(self: ConsumerCore, *given: Any, **options: Any) -> None:
        init(self, *given, **options)
        self._forget_end()

    return broken


def _no_good_byes(_: Any) -> Any:
    def broken(self: ClientCore) -> Any:
        yield from ()

    return broken


_mutation("a topic that is gone holds up the others of a pattern", (Subscription, "_learn", _once_all_are_known))
_mutation("a partition in trouble stops the others", (Fetcher, "_all_failed", _any_that_failed))
_mutation("a consumer that was never left outlives its client", (ConsumerCore, "__init__", _ends_by_itself_only))
_mutation("members say no good-bye where their client is left", (ClientCore, "leave_groups", _no_good_byes))


def _told_at_once(_: Any) -> Any:
    return lambda self, offsets: self._on_commit(offsets)


_mutation("on_commit runs within the machines", (ConsumerCore, "_taken", _told_at_once))
_mutation(
    "a broker is given all of the client's own deadline",
    (produce_requests, "broker_timeout_ms", lambda _: lambda seconds: int(seconds * 1000)),
)


def _enters_all_the_same(enter: Any) -> Any:
    def broken(self: Gate) -> None:
        self.entered[0] = 0
        enter(self)

    return broken


def _lines_at_once(enter: Any) -> Any:
    def broken(self: Gate) -> None:
        enter(self)
        HELD.lines = None

    return broken


def _intercepted_at_once(_: Any) -> Any:
    def broken(self: ProducerCore, record: PendingRecord, error: OttlaError) -> None:
        if isinstance(record.callback, Acknowledgement):
            record.callback.intercept(error)

    return broken


def _assigned_at_once(_: Any) -> Any:
    def broken(name: str, call: Any) -> Any:
        yield from ()
        return call()

    return broken


def _still_waits(_: Any) -> Any:
    def broken(self: Task[Any]) -> None:
        for each in self._sent:
            each.cancel()

    return broken


_mutation("what is called from within is not refused", (Gate, "__enter__", _enters_all_the_same))
_mutation("log lines are written within the machines", (Gate, "__enter__", _lines_at_once))
_mutation("interceptors run within the machines", (ProducerCore, "_refused", _intercepted_at_once))
_mutation("assignors run within the machines", (leader, "run_assignor", _assigned_at_once))
_mutation("topics are waited for on behalf of calls that ended", (Task, "_end", _still_waits))
_mutation("what the broker times out counts as not done", (task, "UNSURE", lambda _: (ConnectionLost, TimeoutExpired)))
_mutation("what a cancelled call asks for is sent all the same", (Task, "_end", _nothing))
_mutation("with acks=0 memory is given back before anything is written", (Sender, "_send", _released_at_once))
_mutation("with acks=0 a flush does not wait until all is written", (Sender, "_send", _settled_at_once))
_mutation(
    "with acks=0 a block is left before the brokers have read all", (ClientCore, "finish", _brokers_are_not_waited_for)
)
_mutation("a timer keeps batches that are acknowledged", (Sender, "add", _a_timer_keeps_the_batch))
_mutation("each batch that a node refuses has a pause of its own", (NodeQueue, "pause", _a_pause_for_each_batch))
_mutation(
    "metadata are asked for at each refusal",
    (Metadata, "refresh", _whenever_somebody_asks),
    (Metadata, "_ask", _asked_within_the_pause),
)
_mutation("metadata are asked for within the pause after failures", (Metadata, "_ask", _asked_within_the_pause))
_mutation("for a new topic all that are held are asked for", (Questions, "next", _all_for_one))
_mutation("an answer about a new topic puts off the question about all", (Questions, "answered", _some_put_off_all))
_mutation("beside a slow answer about all no other node is asked about all", (Questions, "next", _only_waits_beside))
_mutation("a question about all that failed is not asked again", (Questions, "failed", _nothing))
_mutation(
    "sessions are not renewed",
    (Session, "renewable", lambda _: lambda self, now: False),
    (Connection, "_hold", lambda _: lambda self, now: self._send_next(now)),
)
_mutation("requests are sent while a session is renewed", (Connection, "_renew", _sends_within_a_renewal))
_mutation("all requests to a node share a connection", (ClientCore, "submit", _one_connection_for_all))
_mutation(
    "a batch that comes cut for the second time is taken for damage", (FetchAnswers, "_torn", _torn_twice_is_damaged)
)
_mutation(
    "collected records do not go with the next response",
    (ProducerQueues, "answered", lambda _: lambda self, node: (node.answered(), self.wake_node(node))),
)
_mutation(
    "collected records wait for a node that is no longer their leader",
    (ProducerQueues, "_make_due_if_hurried", _nothing),
)
_mutation("awaited records linger", (ProducerQueues, "hurry", lambda _: lambda self, queue, batch: batch.hurry()))
_mutation("a full buffer waits until its batches have lingered", (Room, "__init__", _lingering_goes_on))
_mutation(
    "batches are not counted in the memory of a producer",
    (room, "BATCH_OVERHEAD", lambda _: 0),
    (accumulator, "BATCH_OVERHEAD", lambda _: 0),
)
_mutation("records that wait for their topic are kept as they were given", (PendingRecord, "freeze", _as_given))
_mutation("a send that is cancelled while it waits for room is carried out", (Room, "wait", _kept_when_cancelled))
_mutation("a send is accepted before it lets others run", (ProducerCore, "send_soon", _accepted_before_the_turn))
_mutation("callbacks run within the machines", (ClientCore, "run", _callbacks_at_once))
_mutation("callbacks go on without a turn of the loop", (Pump, "pump", _until_nothing_is_left))
_mutation("a flush ends before the callbacks", (Deliveries, "_settle_flushes", _settled_before_the_callbacks))
_mutation(
    "a failure that its cancelled caller cannot see is told nobody",
    (deliveries, "unseen", _cancelled_callers_see_it_anyway),
)
_mutation(
    "any outage makes a partition gone",
    (Retries, "retry", _any_error_counts),
    (Metadata, "heard_for", lambda _: lambda self, since, now: now - since),
)
_mutation(
    "a topic that brokers did not know as they started is gone after an outage",
    (Metadata, "heard_for", lambda _: lambda self, since, now: now - since),
)
_mutation("nobody who waits for room is let in", (Room, "_let_in", _waiters_are_forgotten))
_mutation("memory is never given back", (Room, "give_back", _memory_is_never_given_back))


# -- mutations by an engineer who had not seen these tests -------------------------------------------------------------


def _sequences_begin_again(_: Any) -> Any:
    def broken(self: Sender, topic: str) -> None:
        gone = self.queues.forget(topic)
        current = self.identity.current
        if current is not None and any(each.identity == current and each.gap for each in gone):
            self.identity.bump(self._core.now)

    return broken


def _newer_ones_forget_who_waits(retry: Any) -> Any:
    def broken(self: CommitQueue, commits: Any, at: float) -> None:
        numbers = {place: each.number for place, each in self.pending.items()}
        retry(self, commits, at)
        for place, number in numbers.items():
            self.pending[place].number = number

    return broken


def _only_what_was_full(taken: Any) -> Any:
    def broken(self: FetchScheduler, position: Any) -> bool:
        taken(self, position)
        return bool(self.node(position) == NO_NODE)

    return broken


def _what_was_asked_for_is_committed(_: Any) -> Any:
    def broken(self: Committing, now: float) -> None:
        commits, behind = self.commits, {}
        for place in list(self._moved):
            assignment = commits.assignment(place)
            position = self._fetcher.position(place) if assignment and place in self._fetcher.places else None
            if assignment is None or position is None:
                continue
            if assignment.asked >= position:
                del self._moved[place]
            else:
                behind[assignment] = CommittedOffset(position, self._fetcher.position_epoch(place))
        if behind:
            commits.commit(behind, now)

    return broken


def _one_outcome_for_all(ask: Any) -> Any:
    def broken(self: Coordinators, group: str, now: float) -> Any:
        own = ask(self, group, now)
        return self._asked[group].outcome if group in self._asked else own

    return broken


def _appended_or_not(errors: Any) -> Any:
    return (*errors, NotEnoughReplicasAfterAppend)


def _not_at_the_end_of_a_rebalance(rejoin: Any) -> Any:
    def broken(self: ClassicMember, why: str, now: float) -> None:
        if self._rebalancing is None or not self._rebalancing._running:
            rejoin(self, why, now)

    return broken


def _closers_stay(_: Any) -> Any:
    def broken(self: ClientCore, outcome: Outcome[Any]) -> None:
        self.on_close(outcome.fail)

    return broken


def _what_was_said_is_said_again(report: Any) -> Any:
    def broken(self: Outages, late: Any, due: Any, troubles: Any, now: float) -> bool:
        written = report(self, late, due, troubles, now)
        for each in troubles.values():
            if each.node.id in self._needs:
                self._needs[each.node.id].trouble = None
        self._next_line = now
        return bool(written)

    return broken


def _since_it_was_sent(trouble: Any) -> Any:
    def broken(self: Connection, now: float) -> Any:
        self.peer.answered_at = -math.inf
        return trouble(self, now)

    return broken


_mutation(
    "a broker that is not available is reported again and again", (Outages, "_report", _what_was_said_is_said_again)
)
_mutation("a broker that answers slowly passes for one that is away", (Connection, "trouble", _since_it_was_sent))


def _as_the_whole(cut: Any) -> Any:
    def broken(self: Fetched, most: int) -> Any:
        first, *rest = cut(self, most)
        first.next_offset = self.next_offset
        return [first, *rest]

    return broken


def _asked_for_the_end_afterwards(resolved: Any) -> Any:
    def broken(self: PositionLookups, position: Any, result: Any, timestamp: int, version: int, now: float) -> None:
        if result.offset < 0 <= timestamp:
            position.start = Time(LATEST)
            self._changes.review(position)
        else:
            resolved(self, position, result, timestamp, version, now)

    return broken


_mutation(
    "a reader that starts at a time asks for the end afterwards",
    (position_lookups, "_by_time", lambda _: lambda start: False),
    (PositionLookups, "_resolved", _asked_for_the_end_afterwards),
)


def _for_all_partitions(settled: Any) -> Any:
    return lambda self, now, places=None, timeout=math.inf: settled(self, now, None, timeout)


_mutation("a commit waits for those of other partitions", (Commits, "settled", _for_all_partitions))
_mutation("a part of a batch is committed as the whole", (Fetched, "_cut_at", _as_the_whole))
_mutation("an idle topic is forgotten, and its sequences begin again", (Sender, "forget", _sequences_begin_again))
_mutation("a newer commit forgets who waits for the older", (CommitQueue, "retry", _newer_ones_forget_who_waits))
_mutation("a node that had no room is never asked", (FetchScheduler, "taken", _only_what_was_full))
_mutation("what was to be committed counts as committed", (Committing, "commit_all", _what_was_asked_for_is_committed))
_mutation("who looks for a coordinator cancels for all", (Coordinators, "ask", _one_outcome_for_all))
_mutation("what is refused after the append was never appended", (results, "_NOT_APPENDED", _appended_or_not))
_mutation("topics wanted while joining are never told", (ClassicMember, "rejoin", _not_at_the_end_of_a_rebalance))
_mutation("what waits for the end of the client is never forgotten", (ClientCore, "fail_on_close", _closers_stay))

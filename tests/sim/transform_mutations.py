"""Mutations of the client's consume, transform, produce; see `tests.sim.mutations`."""

from functools import partial
from typing import Any

from ottla.codec.apis.list_offsets import LATEST
from ottla.sdk.calls import groups
from ottla.sdk.consume.assignment.committing import BatchAssignment, Committing
from ottla.sdk.consume.core import ConsumerCore, Taken
from ottla.sdk.consume.reading.fetcher import Offset, Start, Time
from ottla.sdk.group.commit_queue import Assignment, CommitQueue, Holder
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.offset_commits import OF_THE_MEMBER, CommittingMember
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled
from ottla.sdk.transaction import offsets, transform
from ottla.sdk.transaction.core import TransactionCore
from ottla.sdk.transaction.explicit_joining import ExplicitJoining
from ottla.sdk.transaction.offsets import TransactionOffsets
from ottla.sdk.transaction.producer_transactions import ProducerTransactions
from ottla.sdk.transaction.transform import TransformCore, TransformTransactionCore
from tests.sim.mutations import Mutations

OF_TRANSFORMS = Mutations("transforms", within=400)
MUTATIONS, SEEDS, _mutation = OF_TRANSFORMS.known, OF_TRANSFORMS.seeds, OF_TRANSFORMS.add


def _done() -> Outcome[Any]:
    outcome: Outcome[Any] = Outcome()
    outcome.succeed(None)
    return outcome


def _nothing(original: Any) -> Any:
    return lambda *given, **named: None


# -- offsets -----------------------------------------------------------------------------------------------------------


def _never_over(claimed: Any) -> Any:
    def broken(self: Committing, claim: BatchAssignment, at: Any) -> tuple[Assignment, str]:
        return claim.assignment, ""

    return broken


def _not_sent(send: Any) -> Any:
    return lambda self, now: _done()


def _not_waited_for(send: Any) -> Any:
    def broken(self: TransactionOffsets, now: float) -> Outcome[Any]:
        send(self, now)
        return _done()

    return broken


def _as_nobody(request: Any) -> Any:
    return lambda self, group, wanted, member: request(self, group, wanted, CommittingMember())


def _behind_the_end(commit: Any) -> Any:
    def broken(self: TransactionCore) -> Any:
        machine = self._transactions.offsets
        wanted, machine._wanted = machine._wanted, {}
        yield from commit(self)
        machine._wanted = wanted
        yield from settled(machine.send(self._core.now))
        machine.committed()

    return broken


def _joined_at_once(group: Any) -> Any:
    return lambda self, name: _done()


def _first_identity_for_ever(identified: Any) -> Any:
    known: dict[Commits, CommittingMember] = {}

    def broken(self: Commits, places: Any) -> Steps[CommittingMember]:
        if self not in known:
            known[self] = yield from identified(self, places)
        return known[self]

    return broken


def _first_offset_counts(add: Any) -> Any:
    def broken(self: TransactionOffsets, commits: Commits, assignment: Assignment, at: Any) -> None:
        if assignment not in self._wanted.get(commits, {}):
            add(self, commits, assignment, at)

    return broken


def _member_is_no_matter(judge: Any) -> Any:
    def broken(wanted: Any, answer: Any) -> Any:
        error = judge(wanted, answer)
        return None if isinstance(error, OF_THE_MEMBER) else error

    return broken


def _first_partition_speaks_for_all(judge: Any) -> Any:
    def broken(wanted: Any, answer: Any) -> Any:
        return judge(dict(list(wanted.items())[:1]), answer)

    return broken


def _unstable(request: Any) -> Any:
    return lambda asked, version, stable, member=None: request(asked, version, False, member)


_mutation(
    "offsets of partitions that are lost are committed",
    (offsets, "_refuse_lost", _nothing),
    (TransactionOffsets, "_lost", _nothing),
    (Committing, "claimed", _never_over),
)
_mutation("a loss is noticed when there is a member again", (TransactionOffsets, "_lost", _nothing))
_mutation("offsets are not sent", (TransactionOffsets, "send", _not_sent))
_mutation("a commit does not wait for its offsets", (TransactionOffsets, "send", _not_waited_for))
_mutation("offsets are sent behind EndTxn", (TransactionCore, "_commit", _behind_the_end))
_mutation("offsets are sent as nobody's", (TransactionOffsets, "_request", _as_nobody))
_mutation("offsets are sent as the member of before the rebalance", (Commits, "identified", _first_identity_for_ever))
_mutation("groups do not join", (ExplicitJoining, "group", _joined_at_once))
_mutation("of several offsets of a partition the first counts", (TransactionOffsets, "add", _first_offset_counts))
_mutation("offsets refused to a member count as taken", (offsets, "_judge", _member_is_no_matter))
_mutation("offsets refused of one partition count as taken", (offsets, "_judge", _first_partition_speaks_for_all))
_mutation("what a transaction is about to commit is not waited for", (groups, "_fetch_request", _unstable))


# -- commits and seeks beside a transaction ----------------------------------------------------------------------------


def _held_for(refuse_held: Any, *, plain: bool) -> Any:
    """A hold is ignored by plain commits, or by other transactions."""

    def broken(self: Assignment, holder: Holder | None = None) -> None:
        if (holder is None) != plain:
            refuse_held(self, holder)

    return broken


def _seek_forgotten(rewind: Any) -> Any:
    def broken(self: Assignment) -> None:
        before = self._sought
        rewind(self)
        self._sought = before

    return broken


def _always_ended(ended: Any) -> Any:
    return lambda self, places: _done()


_mutation(
    "a partition is held by two transactions at once", (Assignment, "refuse_held", partial(_held_for, plain=False))
)
_mutation(
    "a partition is committed while a transaction holds it", (Assignment, "refuse_held", partial(_held_for, plain=True))
)
_mutation("a seek is forgotten when the transaction is committed", (Assignment, "rewind", _seek_forgotten))
_mutation("offsets of a transaction overtake an OffsetCommit", (CommitQueue, "ended", _always_ended))
_mutation("a transaction whose beginning was refused stays open", (TransformTransactionCore, "undo", _nothing))
_mutation(
    "a producer is closed while it asks for its next epoch",
    (ProducerTransactions, "renews", lambda _: property(lambda self: False)),
)


# -- batches -----------------------------------------------------------------------------------------------------------


def _not_rewound(ended: Any) -> Any:
    def broken(self: TransformCore, *given: Any) -> bool:
        self._rewind = lambda *_: None  # type: ignore[method-assign] # for this call
        try:
            return bool(ended(self, *given))
        finally:
            del self._rewind

    return broken


def _to_what_is_committed(rewind: Any) -> Any:
    def broken(self: TransformCore, taken: list[Taken], committed: Any = None) -> None:
        if self.consumer.closed:
            return
        starts: dict[Any, Start] = {}
        for fetched, claim in taken:
            place = (fetched.topic, fetched.partition)
            if claim is not None and not claim.assignment.over:
                at = claim.assignment.committed
                starts[place] = Offset(at) if at >= 0 else Time(LATEST)
        self.consumer.fetcher.assign(starts, self.core.now)

    return broken


def _unknown_is_committed(ended: Any) -> Any:
    def broken(self: TransformCore, *given: Any) -> bool:
        again = ended(self, *given)
        self._unknown = ()
        return bool(again)

    return broken


def _unknown_is_aborted(ended: Any) -> Any:
    def broken(self: TransformCore, *given: Any) -> bool:
        again = ended(self, *given)
        unknown, self._unknown = self._unknown, ()
        self._rewind(unknown)
        return bool(again)

    return broken


def _gathered_elsewhere(gather: Any) -> Any:
    def broken(self: TransformCore, taken: list[Taken], task: object) -> Any:
        own = list(taken)
        yield from gather(self, own, task)
        taken[:] = own

    return broken


def _dropped(give_back: Any) -> Any:
    def broken(self: TransformCore) -> None:
        self._in_hand = ()

    return broken


def _whatever_became_of_it(is_owned: Any) -> Any:
    return lambda taken: taken[1] is not None


_mutation("batches of an aborted transaction do not come again", (TransformCore, "ended", _not_rewound))
_mutation("batches come again from where the group stands", (TransformCore, "_rewind", _to_what_is_committed))
_mutation("an unknown outcome counts as a commit", (TransformCore, "ended", _unknown_is_committed))
_mutation("an unknown outcome counts as an abort", (TransformCore, "ended", _unknown_is_aborted))
_mutation("batches are lost when a call for more is cancelled", (TransformCore, "_gather", _gathered_elsewhere))
_mutation("a batch for which there is no room is lost", (ConsumerCore, "put_back", _nothing))
_mutation("batches that do not reach their caller are lost", (TransformCore, "give_back", _dropped))
_mutation("partitions are rewound that were lost", (transform, "_is_owned", _whatever_became_of_it))

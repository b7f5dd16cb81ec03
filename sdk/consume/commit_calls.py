"""Implements the consumer's commit calls: of a batch, of everything, or of given offsets, with or without waiting.

Rules:
- A caller waits for its own commit and for earlier ones of the same partitions. A cancellation ends the wait, not the
  commit, which may be in flight.
- A listener's `revoked` waits for commits as long as the revocation may: if the member is removed, it loses its other
  partitions, too.
- If a commit has become impossible and no caller waits for it, it is dropped with a line in the log.

Source: KafkaConsumer.java, commitSync and commitAsync.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from ottla.errors import CommitFailed, LocalProtocolError
from ottla.sdk import calls
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.assignment.committing import BatchAssignment, Committing, given, log_dropped, refuse_lower
from ottla.sdk.consume.navigation import Navigation
from ottla.sdk.consume.reading.fetcher import Fetcher
from ottla.sdk.core import ClientCore
from ottla.sdk.group.commit_queue import Assignment, Holder
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.membership import Revoke
from ottla.sdk.steps import TURN, Steps, settled


class CommitCalls:
    """Runs the commit calls of one consumer.

    Args:
        commits: the commits of ``group``; ``None``: there is no group.
        refuse_closed: raises if the consumer is closed.
    """

    def __init__(
        self,
        core: ClientCore,
        group: str | None,
        commits: Commits | None,
        fetcher: Fetcher,
        committing: Committing,
        navigation: Navigation,
        refuse_closed: Callable[[], None],
    ) -> None:
        self._core, self._group, self._commits, self._fetcher = core, group, commits, fetcher
        self._committing, self._navigation, self._refuse_closed = committing, navigation, refuse_closed
        self._only_transactions = False
        """Only the transactions of a transform commit offsets of this consumer."""
        self._revoke: Revoke | None = None
        """The revocation for which the listener is called."""

    def refuse_all_but_transactions(self) -> None:
        """Refuse the user's commits from now on: a transform reads the consumer."""
        self._only_transactions = True

    def commit_soon(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None) -> None:
        """Commit everything that was handed out, or ``offsets``, without waiting; skip lost partitions.

        Raises:
            LocalProtocolError: the consumer has no group, a partition is not assigned to it, an offset is lower than
                one requested before, or a transaction commits an offset of a partition.
        """
        self._commit(offsets)
        if offsets is None and (lost := self._committing.take_lost()):
            log_dropped(lost.offsets, lost.reason)

    def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None) -> Steps[None]:
        """Like `commit_soon`, and wait. A cancellation ends the wait, but not the commit.

        Raises:
            CommitFailed: some offsets could not be committed; raised once all others are.
        """
        self._commit(offsets)
        yield from self.settled(None if offsets is None else list(offsets))
        # Only now: a cancelled wait would lose this error, which is returned once.
        if offsets is None and (lost := self._committing.take_lost()):
            raise lost

    def _commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None) -> None:
        self._refuse_here()
        commits = self._committing.commits
        if offsets is None:
            self._committing.commit_all(self._core.now)
            return
        assignments: dict[Assignment, CommittedOffset] = {}
        for place, each in given(offsets):
            assignment = commits.assignment(place)
            if assignment is None:
                raise self._navigation.not_assigned(place, "commit")
            assignments[assignment] = each
        self._committing.commit(assignments, self._core.now)

    def commit_batch_soon(self, place: TopicPartition, at: CommittedOffset, claim: BatchAssignment | None) -> None:
        """Like `Committing.commit_batch`; an impossible commit is dropped with a line in the log."""
        self._refuse_here()
        if why := self._committing.commit_batch(claim, at, self._core.now):
            log_dropped({place: at.offset}, why)

    def commit_batch(self, place: TopicPartition, at: CommittedOffset, claim: BatchAssignment | None) -> Steps[None]:
        self._refuse_here()
        if why := self._committing.commit_batch(claim, at, self._core.now):
            raise CommitFailed(f"not committed: {why}", {place: at.offset})
        yield from self.settled([place])

    def in_transaction(
        self,
        core: ClientCore,
        holder: Holder,
        place: TopicPartition,
        at: CommittedOffset,
        claim: BatchAssignment | None,
    ) -> tuple[Commits, Assignment]:
        """The group's commits and the batch's assignment; ``holder``, of a producer on ``core``, will commit them.

        Raises:
            CommitFailed: the batch cannot be committed any more.
            LocalProtocolError: the consumer has no group, belongs to another client or uses auto commit; or the commit
                of a later offset was requested, or another transaction commits an offset of the partition.
        """
        self._refuse_closed()
        if core is not self._core:
            raise LocalProtocolError("a transaction needs its producer and consumer to be of the same client")
        if self._committing.by_itself:
            raise LocalProtocolError("auto_commit would commit outside of the transaction: leave it out")
        assignment, why = self._committing.claimed(claim, at)
        if why:
            raise CommitFailed(f"not committed: {why}", {place: at.offset})
        assignment.refuse_held(holder)
        refuse_lower(assignment, at.offset)
        return self._committing.commits, assignment

    def _refuse_here(self) -> None:
        """Raise if calls cannot commit for this consumer."""
        self._refuse_closed()
        if self._only_transactions:
            raise LocalProtocolError("the transactions of a transform commit its offsets: leave out the commit")

    @contextmanager
    def within(self, change: Revoke) -> Iterator[None]:
        """Within the ``with`` block, calls wait for commits no longer than the revocation may."""
        self._revoke = change
        try:
            yield
        finally:
            self._revoke = None

    def settled(self, places: Collection[TopicPartition] | None = None, timeout: float = math.inf) -> Steps[None]:
        """Wait until the commits of these partitions (``None``: of all) have ended; raise their errors."""
        if self._commits is None:
            return
        if self._revoke is not None:
            timeout = min(timeout, self._revoke.commit_timeout(self._core.now))
        waiting = self._commits.settled(self._core.now, places, timeout)
        if waiting.done:
            yield TURN
        yield from settled(waiting)
        self._commits.raise_failures()

    def committed(self, places: Iterable[TopicPartition] | None) -> Steps[dict[TopicPartition, CommittedOffset | None]]:
        """The group's committed offsets of these or of all assigned partitions; ``None``: it never committed one."""
        group = self._group
        if group is None:
            raise LocalProtocolError(
                "a consumer without a group has no committed offsets: name a group, as in group='billing'"
            )
        self._refuse_closed()
        asked = list(self._fetcher.assignment if places is None else places)
        found = yield from settled(calls.committed(self._core, {group: asked}, self._core.now, stable=True))
        return {place: found[group].get(place) for place in asked}

"""Commits the offsets of consumer groups in a transaction, together with its records or not at all (KIP-98, KIP-447).

    add ──► wanted ── the block ends ──► TxnOffsetCommit, one for each group ──► committed with the transaction

Rules:
- Offsets are sent once, while the last records of the transaction are in flight; only the highest of each partition. In
  version 1 the group has to join the transaction first, which starts with its first offset. In version 2 the offsets
  wait for their turn.
- Offsets are sent with the identity of the member that owns the partitions, and its current generation: so the group's
  coordinator refuses partitions that belong to another member by now. During SyncGroup there is no generation, and the
  offsets wait.
- A lost partition dooms the transaction at once: its next owner processes the same records again.

Source: TransactionManager.java (sendOffsetsToTransaction, TxnOffsetCommitHandler).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.errors import CommitFailed, OttlaError, RemoteProtocolError, broker_error
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.calls.task import Task
from ottla.sdk.connection.versions import COMMIT_IN_TRANSACTION, COMMIT_IN_TRANSACTION_2
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import Flow, sleep
from ottla.sdk.group.commit_queue import Assignment
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.offset_commits import OF_THE_MEMBER
from ottla.sdk.outcome import Outcome, all_of
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.steps import Steps, settled
from ottla.sdk.transaction.asking import ask_coordinator
from ottla.sdk.transaction.explicit_joining import ExplicitJoining
from ottla.sdk.transaction.implicit_joining import ImplicitJoining

Offsets = dict[Assignment, CommittedOffset]


class TransactionOffsets:
    """Sends the offsets of one transactional producer.

    Args:
        refused: called, inside the core, with an error that prevents the commit.

    Attributes:
        sent: a request may have reached the coordinator of a group.
        unsure: a request without an answer may still arrive.
    """

    def __init__(
        self,
        core: ClientCore,
        transactional_id: str,
        joining: ExplicitJoining,
        implicit_joining: ImplicitJoining,
        refused: Callable[[OttlaError], None],
    ) -> None:
        self._core, self._transactional_id, self._refused = core, transactional_id, refused
        self._joining, self._implicit_joining = joining, implicit_joining
        self._identity: Identity | None = None
        self._implicit = False
        self._wanted: dict[Commits, Offsets] = {}
        self._joined: dict[Commits, Outcome[None]] = {}
        self._flows: list[Flow[None]] = []
        self._tasks: dict[Commits, Task[None]] = {}
        """The requests in flight."""
        self._watched: dict[Assignment, Callable[[], object]] = {}
        """The callbacks for the end of each assignment."""
        self.sent = self.unsure = False

    def begin(self, identity: Identity | None, *, implicit: bool) -> None:
        """Begin a transaction; ``implicit``: groups join with TxnOffsetCommit (version 2)."""
        self._unwatch()
        self._identity, self._implicit = identity, implicit
        self._wanted, self._joined, self.sent, self.unsure = {}, {}, False, False

    def add(self, commits: Commits, assignment: Assignment, at: CommittedOffset) -> None:
        """Commit ``at`` with the transaction, unless a higher offset of the partition was added."""
        if commits not in self._wanted and not self._implicit:
            self._joined[commits] = self._joining.group(commits.group)
        offsets = self._wanted.setdefault(commits, {})
        before = offsets.get(assignment)
        if before is None or before.offset <= at.offset:
            offsets[assignment] = at
        if assignment not in self._watched:
            self._watched[assignment] = watch = partial(self._core.soon, lambda now: self._lost(offsets))
            assignment.ended.when_done(watch)

    def send(self, now: float) -> Outcome[None]:
        """Send the offsets; settled once all requests have ended. An error dooms the transaction."""
        self._flows = [Flow(self._core, self._send(commits, offsets)) for commits, offsets in self._wanted.items()]
        return all_of([each.outcome for each in self._flows])

    def stop(self) -> None:
        """Send nothing more, because the transaction will be aborted."""
        self._unwatch()
        self.unsure |= bool(self._tasks)
        for flow in self._flows:
            flow.cancel()  # and with it the request in flight

    def committed(self) -> None:
        """Take note that the transaction, and so the offsets, are committed."""
        self._unwatch()
        for commits, offsets in self._wanted.items():
            commits.committed_in_transaction(offsets)

    def explain(self) -> str:
        """A text for people: which offsets the transaction waits for; empty if none."""
        for commits, task in self._tasks.items():
            trouble = f"; last error: {task.trouble}" if task.trouble else ""
            where = self._core.coordinators.where(commits.group)
            return f"waits for the offsets of group {commits.group!r}; {where}{trouble}"
        return ""

    def _unwatch(self) -> None:
        """Stop watching for lost partitions."""
        watched, self._watched = self._watched, {}
        for assignment, watch in watched.items():
            assignment.ended.forget(watch)

    def _lost(self, offsets: Offsets) -> None:
        """Doom the transaction, because an assignment has ended."""
        if any(offsets is each for each in self._wanted.values()):
            try:
                _refuse_lost(offsets)
            except CommitFailed as lost:
                self._refused(lost)

    def _send(self, commits: Commits, offsets: Offsets) -> Steps[None]:
        """Send the offsets of one group."""
        if self._implicit:
            self._joined[commits] = self._implicit_joining.group(commits.group)
        what = f"TxnOffsetCommit of {self._transactional_id!r} for group {commits.group!r}"
        task = Task(self._core, what, self._core.now, lambda task: self._work(task, commits, offsets))
        self._tasks[commits] = task
        try:
            yield task.outcome
        finally:
            del self._tasks[commits]
        if self._implicit:
            self._implicit_joining.answered([commits.group], self._core.now)
        self.unsure |= task.repeated
        if task.outcome.error is not None:
            self._refused(task.outcome.error)

    def _work(self, task: Task[None], commits: Commits, offsets: Offsets) -> Steps[None]:
        yield from settled(self._joined[commits])
        failures = 0
        while True:
            member = yield from commits.identified()
            _refuse_lost(offsets)
            request = self._request(commits.group, offsets, member)
            versions = COMMIT_IN_TRANSACTION_2 if self._implicit else COMMIT_IN_TRANSACTION
            self.sent = True
            judge = partial(_judge, offsets)
            topics, where = [each.name for each in request.topics], self._core.coordinators
            try:
                yield from ask_coordinator(task, where, commits.group, request, judge, versions, topics)
                return
            except OF_THE_MEMBER as error:
                # Either the partitions are lost now, or the member keeps them in a new generation.
                dealt_with = commits.refused(error, member, task.now)
                _refuse_lost(offsets, error)
                if not dealt_with:
                    raise _failed(offsets, str(error), error) from None
                task.attempt_failed(error)
                yield from sleep(task.core, self._core.backoff(failures))
                failures += 1

    def _request(self, group: str, offsets: Offsets, member: Any) -> TxnOffsetCommitRequest:
        assert self._identity is not None
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for assignment, at in offsets.items():
            topic, partition = assignment.place
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=at.offset,
                    committed_leader_epoch=at.leader_epoch,
                    committed_metadata=at.metadata,
                )
            )
        return TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=tuple(
                TxnOffsetCommitRequestTopic(name=name, partitions=tuple(each)) for name, each in topics.items()
            ),
        )


def _judge(offsets: Offsets, answer: TxnOffsetCommitResponse) -> OttlaError | None:
    """The first error in the response, or an error if it leaves out a partition."""
    codes = {
        (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
    }
    for name, index in (each.place for each in offsets):
        code = codes.get((name, index))
        if code is None:
            return RemoteProtocolError(f"TxnOffsetCommit was answered without {name}-{index}")
        if code:
            return broker_error(code, f"offset of {name}-{index}")
    return None


def _refuse_lost(offsets: Offsets, cause: OttlaError | None = None) -> None:
    if why := next((each.over for each in offsets if each.over), ""):
        raise _failed(offsets, why, cause)


def _failed(offsets: Offsets, why: str, cause: OttlaError | None) -> CommitFailed:
    places = {each.place: at.offset for each, at in offsets.items()}
    return CommitFailed(f"offsets cannot be committed with the transaction: {why}", places, cause)

"""Decides which offsets a consumer commits: given offsets, all batches handed out, or all done batches.

Rules:
- A batch is done when the next one is asked for. Auto commit commits done batches, and nothing of the batch in hand.
- Records that the user may not see (aborted transactions, markers) are done once everything before them is. Otherwise,
  if no other record follows, the group's lag would never reach zero, and its offset would fall out of the log.
- Offsets that the coordinator has stored, or that are in flight, are not sent again.
- After the topic was recreated, or the log truncated, nothing of the partition is committed before a seek.
- Batches that cannot be committed any more, because their partition was lost, are reported once.

Source: ConsumerCoordinator.java.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.codec.records import BEYOND
from ottla.errors import CommitFailed, LocalProtocolError
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.reading.fetcher import Fetched, Fetcher
from ottla.sdk.core import ClientCore
from ottla.sdk.group.commit_queue import Assignment
from ottla.sdk.group.commits import Commits
from ottla.sdk.logs import about, logger
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

_NO_GROUP = "a consumer without a group cannot commit: name one, as in group='billing'"
_CHANGED = "the topic was recreated, or its log truncated, after the records were read"


class BatchAssignment(NamedTuple):
    """Identifies the assignment under which a batch was handed out; needed to commit the batch."""

    assignment: Assignment
    seeks: int
    """The assignment's number of seeks when the batch was handed out."""


class Committing:
    """Tracks which batches of a consumer are handed out and done, and has their offsets committed.

    Args:
        commits: the group's commits; ``None``: there is no group.
        every: the auto commit interval in seconds; ``None``: no auto commit.
    """

    def __init__(self, core: ClientCore, fetcher: Fetcher, commits: Commits | None, every: float | None) -> None:
        self._core, self._fetcher, self._commits, self._every = core, fetcher, commits, every
        self._in_hand: Fetched | None = None
        self._done: dict[TopicPartition, CommittedOffset] = {}
        """Per partition, the offset after the last done batch, until auto commit has taken it."""
        self._moved: dict[TopicPartition, None] = {}
        """Partitions whose position may differ from the committed offset; `commit_all` checks them."""
        self._left: dict[TopicPartition, Assignment] = {}
        """Assignments that ended with delivered records still uncommitted."""
        self._timer: Timer | None = None

    # -- batches handed out ------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Start auto commit, if it is configured."""
        if self._every is not None:
            self.commit_done(now)
            self._timer = self._core.later(now + self._every, self.begin)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def hand_out(self, fetched: Fetched) -> BatchAssignment | None:
        """Record that a batch goes to the user; in a group, return its claim."""
        self._in_hand = fetched
        claim = self.claim(fetched)
        if claim is not None:
            claim.assignment.hand_out(fetched.next_offset)
            self._moved[fetched.topic, fetched.partition] = None
        return claim

    def take_back(self, fetched: Fetched) -> None:
        """Undo `hand_out` for the last batch, which has not reached the user."""
        if self._in_hand is fetched and (claim := self.claim(fetched)) is not None:
            claim.assignment.take_back()
        self._in_hand = None

    def claim(self, fetched: Fetched) -> BatchAssignment | None:
        """In a group, the claim of a batch that is handed out now."""
        place = (fetched.topic, fetched.partition)
        assignment = self._commits.assignment(place) if self._commits is not None else None
        return None if assignment is None else BatchAssignment(assignment, assignment.seeks)

    @property
    def in_hand(self) -> Fetched | None:
        """The last batch, unless it is done or committed."""
        fetched = self._in_hand
        if fetched is None or self._commits is None:
            return fetched
        assignment = self._commits.assignment((fetched.topic, fetched.partition))
        return None if assignment is not None and assignment.asked >= fetched.next_offset else fetched

    def finish(self) -> None:
        """Mark the batch in hand as done."""
        fetched, self._in_hand = self._in_hand, None
        if fetched is not None and self._every is not None:
            self._all_done((fetched.topic, fetched.partition))

    def passed(self, place: TopicPartition) -> None:
        """Take note that the position has passed records that the user may not see.

        Unless a batch of the partition is in hand, everything before the position is done.
        """
        if self._commits is None:
            return
        self._moved[place] = None
        fetched = self._in_hand
        if self._every is not None and (fetched is None or (fetched.topic, fetched.partition) != place):
            self._all_done(place)

    def _all_done(self, place: TopicPartition) -> None:
        """Mark everything before the position as done."""
        if (offset := self._reached(place)) >= 0:
            self._done[place] = CommittedOffset(offset, self._fetcher.position_epoch(place))

    def end(self, now: float) -> None:
        """Commit done batches a last time; the batch in hand stays uncommitted."""
        self._in_hand = None
        self.commit_done(now)

    # -- partitions --------------------------------------------------------------------------------------------------

    def own(self, place: TopicPartition) -> None:
        """Begin a new assignment of the partition."""
        if self._commits is not None:
            self._commits.own(place)
            self._moved[place] = None

    def move(self, place: TopicPartition) -> None:
        """Take note of the user's seek: from now on lower offsets may be committed, and the batch in hand is void."""
        if self._commits is not None:
            self._commits.rewind(place)
            self._moved[place] = None
        self._forget(place)

    def reset(self, place: TopicPartition) -> None:
        """Like `move`, but also drop pending commits: the ``reset`` policy has moved the position."""
        if self._commits is not None:
            self._commits.renew(place, "the log has changed since it was read, and the position was reset")
            self._moved[place] = None
        self._forget(place)

    def log_changed(self, place: TopicPartition) -> None:
        """Drop pending commits, and refuse others until `move` or `reset`: the log that was read is gone."""
        if self._commits is not None:
            self._commits.suspend(place, _CHANGED)
            self._moved.pop(place, None)
        self._forget(place)

    def disown(self, place: TopicPartition, why: str) -> None:
        """End the partition's assignment, and drop its pending commits."""
        self._forget(place)
        self._moved.pop(place, None)
        commits = self._commits
        assignment = commits.assignment(place) if commits is not None else None
        if commits is not None and assignment is not None:
            commits.disown(place, why)
            left = max(assignment, self._left.pop(place, assignment), key=lambda each: each.handed)
            if left.handed > assignment.committed:
                self._left[place] = left

    def _forget(self, place: TopicPartition) -> None:
        """Forget done batches of the partition, and the batch in hand."""
        self._done.pop(place, None)
        if self._in_hand is not None and (self._in_hand.topic, self._in_hand.partition) == place:
            self._in_hand = None

    # -- commits -----------------------------------------------------------------------------------------------------

    @property
    def commits(self) -> Commits:
        """Raises:
        LocalProtocolError: the consumer has no group.
        """
        if self._commits is None:
            raise LocalProtocolError(_NO_GROUP)
        return self._commits

    def commit_done(self, now: float) -> None:
        """Commit done batches (auto commit)."""
        if self._commits is not None and self._done:
            done, self._done = self._done, {}
            found = {self._commits.assignment(place): each for place, each in done.items()}
            self._commits.commit({each: at for each, at in found.items() if each is not None and not each.over}, now)

    def commit(self, offsets: Mapping[Assignment, CommittedOffset], now: float) -> None:
        """Commit exactly these offsets.

        Raises:
            LocalProtocolError: an offset is invalid, or lower than one requested before; or a transaction commits one.
        """
        for assignment, each in offsets.items():
            _check(each)
            refuse_lower(assignment, each.offset)
        self.commits.commit(offsets, now)

    def commit_all(self, now: float) -> None:
        """Commit everything that was handed out, the batch in hand included, unless it is committed or in flight.

        Raises:
            LocalProtocolError: the consumer has no group, or a transaction commits an offset of a partition; nothing is
                committed then.
        """
        commits, behind = self.commits, dict[Assignment, CommittedOffset]()
        for place in list(self._moved):
            assignment = commits.assignment(place)
            position = self._fetcher.position(place) if assignment and place in self._fetcher.places else None
            if assignment is None or position is None or assignment.over:
                continue  # it is being looked up, or the log has changed
            if assignment.committed >= position:
                del self._moved[place]
                continue
            assignment.refuse_held()  # `asked` does not have the transaction's offset
            if assignment.asked < position:
                behind[assignment] = CommittedOffset(position, self._fetcher.position_epoch(place))
        if behind:
            commits.commit(behind, now)

    def take_lost(self) -> CommitFailed | None:
        """The error for delivered batches that cannot be committed any more; returned once.

        A partition that was assigned again and has been read as far as before is left out.
        """
        left, self._left = self._left, {}
        lost = {place: each for place, each in left.items() if each.handed > self._reached(place)}
        if not lost:
            return None
        whys = "; ".join(sorted({each.over for each in lost.values()}))
        reason = f"some batches cannot be committed any more: {whys}"
        return CommitFailed(reason, {place: each.handed for place, each in lost.items()})

    def _reached(self, place: TopicPartition) -> int:
        position = self._fetcher.position(place) if place in self._fetcher.places else None
        return -1 if position is None else position

    def commit_batch(self, claim: BatchAssignment | None, at: CommittedOffset, now: float) -> str:
        """Commit the offset after a batch; if that is impossible, return the reason, which the caller reports.

        Raises:
            LocalProtocolError: the consumer has no group, or a transaction commits an offset of the partition.
        """
        assignment, why = self.claimed(claim, at)
        if not why:
            self.commits.commit({assignment: at}, now)
        return why

    def claimed(self, claim: BatchAssignment | None, at: CommittedOffset) -> tuple[Assignment, str]:
        """The assignment under which a batch was handed out, and why it cannot be committed any more (empty: it can).

        Raises:
            LocalProtocolError: the consumer has no group, or ``at`` is invalid.
        """
        if self._commits is None or claim is None:
            raise LocalProtocolError(_NO_GROUP)
        _check(at)
        assignment, seeks = claim
        if assignment.over:
            assignment.report_loss()
            return assignment, assignment.over
        moved = assignment.seeks != seeks
        return assignment, "the consumer sought to another offset after the batch was handed out" if moved else ""

    @property
    def by_itself(self) -> bool:
        """Whether auto commit is on: it would commit offsets regardless of a transaction."""
        return self._every is not None

    @property
    def uncommitted(self) -> str:
        """A text for people: the commits that are not acknowledged."""
        left = self._commits.pending.items() if self._commits is not None else ()
        places = ", ".join(f"{topic}-{partition} at {offset}" for (topic, partition), offset in sorted(left))
        return f"not committed, so to be read again: {places or 'nothing'}"


def log_dropped(offsets: Mapping[TopicPartition, int], why: str) -> None:
    """Log each dropped commit for which no caller waits."""
    for place, offset in offsets.items():
        log.warning("commit dropped", extra=about(place) | {"offset": offset, "why": why})


def refuse_lower(assignment: Assignment, offset: int) -> None:
    """Raise `LocalProtocolError` if a commit of a higher offset was requested before; a seek allows lower ones."""
    if offset < assignment.asked:
        topic, partition = assignment.place
        raise LocalProtocolError(
            f"{topic}-{partition} at {offset}: a commit of {assignment.asked} was requested already: seek first to "
            "commit a lower offset"
        )


def given(
    offsets: Mapping[TopicPartition, int | CommittedOffset],
) -> Iterable[tuple[TopicPartition, CommittedOffset]]:
    """Convert offsets that the user gave as integers."""
    for place, each in offsets.items():
        yield place, each if isinstance(each, CommittedOffset) else CommittedOffset(each)


def _check(at: CommittedOffset) -> None:
    """Raise at the call for a value that no request can hold: in a request, it would fail other partitions' commits."""
    if type(at.offset) is not int or not 0 <= at.offset < BEYOND:
        raise LocalProtocolError(f"an offset to commit must be an integer from 0 to 2**63 - 1, not {at.offset!r}")
    if type(at.leader_epoch) is not int or not -1 <= at.leader_epoch < 2**31:
        raise LocalProtocolError(
            f"a leader epoch must be an integer from 0 to 2**31 - 1, or -1 for none, not {at.leader_epoch!r}"
        )
    try:
        size = len(at.metadata.encode())
    except (AttributeError, UnicodeEncodeError):
        raise LocalProtocolError(
            f"metadata of a commit must be a str that UTF-8 can encode, not {at.metadata!r}"
        ) from None
    if size >= 2**15:
        raise LocalProtocolError(
            f"metadata of a commit has {size} bytes: a request can hold 32,767, and brokers accept 4,096 by default"
        )

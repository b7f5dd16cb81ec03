"""What of a consumer is committed, and when: what the user asks for, everything that was handed out, or what is done.

Rules:
- A batch is done when its successor is asked for. Auto commit commits what is done, and nothing of the batch in hand.
- What the user may not see (aborted transactions, markers) is done where what lies before it is: else a group would
  stay behind where nothing else comes, and its offset would fall out of the log.
- Offsets that the coordinator has, or is being sent, are not sent again.
- What was handed out and cannot be committed any more, because its partition was lost, is reported once.

Source: ConsumerCoordinator.java.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.errors import CommitFailed, LocalProtocolError
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.fetcher import Fetched, Fetcher
from ottla.sdk.core import ClientCore
from ottla.sdk.group.commits import Assignment, Commits
from ottla.sdk.logs import logger
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

_NO_GROUP = "a consumer without a group cannot commit: name one, as in group='billing'"


class Claim(NamedTuple):
    """What lets a batch be committed."""

    assignment: Assignment
    """Under which it was handed out."""
    seeks: int
    """That had been made by then."""


class Committing:
    """The commits of one consumer, as its user means them.

    Args:
        commits: those of the group; ``None``: there is no group.
        every: seconds between two commits of what is done; ``None``: nothing is committed by itself.
    """

    def __init__(self, core: ClientCore, fetcher: Fetcher, commits: Commits | None, every: float | None) -> None:
        self._core, self._fetcher, self._commits, self._every = core, fetcher, commits, every
        self._in_hand: Fetched | None = None
        self._handed_before = -1
        """`Assignment.handed` of its partition, without it."""
        self._done: dict[TopicPartition, CommittedOffset] = {}
        """Per partition, behind the last batch that is done, as far as that is not committed yet."""
        self._moved: dict[TopicPartition, None] = {}
        """Partitions whose position may not be the coordinator's: what `commit_all` has to look at."""
        self._left: dict[TopicPartition, Assignment] = {}
        """Assignments that ended before all was committed that was handed out, nor has it been since."""
        self._due: Timer | None = None

    # -- what is handed out ------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Commit what is done every few seconds, if that is wanted."""
        if self._every is not None:
            self.commit_done(now)
            self._due = self._core.later(now + self._every, self.begin)

    def stop(self) -> None:
        if self._due is not None:
            self._due.cancel()

    def hand_out(self, fetched: Fetched) -> Claim | None:
        """A batch goes to the user; in a group, with what lets it be committed."""
        self._in_hand = fetched
        claim = self.claim(fetched)
        if claim is not None:
            self._handed_before, claim.assignment.handed = claim.assignment.handed, fetched.next_offset
            self._moved[fetched.topic, fetched.partition] = None
        return claim

    def take_back(self, fetched: Fetched) -> None:
        """The batch that was handed out last has not reached the user."""
        if self._in_hand is fetched and (claim := self.claim(fetched)) is not None:
            claim.assignment.handed = self._handed_before
        self._in_hand = None

    def claim(self, fetched: Fetched) -> Claim | None:
        """In a group, what lets a batch be committed that is handed out now."""
        place = (fetched.topic, fetched.partition)
        assignment = self._commits.assignment(place) if self._commits is not None else None
        return None if assignment is None else Claim(assignment, assignment.seeks)

    @property
    def in_hand(self) -> Fetched | None:
        """The batch that may not be done: its successor was not asked for, and it is not committed."""
        fetched = self._in_hand
        if fetched is None or self._commits is None:
            return fetched
        assignment = self._commits.assignment((fetched.topic, fetched.partition))
        return None if assignment is not None and assignment.asked >= fetched.next_offset else fetched

    def finish(self) -> None:
        """The batch in hand is done."""
        fetched, self._in_hand = self._in_hand, None
        if fetched is not None and self._every is not None:
            self._all_done((fetched.topic, fetched.partition))

    def passed(self, place: TopicPartition) -> None:
        """The position has passed what the user may not see: without a batch in hand, all before it is done."""
        if self._commits is None:
            return
        self._moved[place] = None
        fetched = self._in_hand
        if self._every is not None and (fetched is None or (fetched.topic, fetched.partition) != place):
            self._all_done(place)

    def _all_done(self, place: TopicPartition) -> None:
        """All before the position is done."""
        if (offset := self._reached(place)) >= 0:
            self._done[place] = CommittedOffset(offset, self._fetcher.position_epoch(place))

    def end(self, now: float) -> None:
        """No batch will be asked for any more: what is done is committed, the batch in hand is not."""
        self._in_hand = None
        self.commit_done(now)

    # -- partitions --------------------------------------------------------------------------------------------------

    def own(self, place: TopicPartition) -> None:
        """The partition is this consumer's from now on."""
        if self._commits is not None:
            self._commits.own(place)
            self._moved[place] = None

    def move(self, place: TopicPartition) -> None:
        """The user seeks there: what was handed out counts no more, and lower offsets are meant."""
        if self._commits is not None:
            self._commits.rewind(place)
            self._moved[place] = None
        self._forget(place)

    def renew(self, place: TopicPartition, why: str) -> None:
        """The log is not what it was: as `move`, and what was asked for before does not hold any more."""
        if self._commits is not None:
            self._commits.renew(place, why)
            self._moved[place] = None
        self._forget(place)

    def disown(self, place: TopicPartition, why: str) -> None:
        """The partition is not this consumer's any more."""
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
        """What is done there, and a batch in hand, count no more."""
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
        """Have what is done committed (auto commit)."""
        if self._commits is not None and self._done:
            done, self._done = self._done, {}
            found = {self._commits.assignment(place): each for place, each in done.items()}
            self._commits.commit({each: at for each, at in found.items() if each is not None}, now)

    def commit(self, offsets: Mapping[Assignment, CommittedOffset], now: float) -> None:
        """Have exactly these offsets committed.

        Raises:
            LocalProtocolError: one is no offset, or is lower than one that was committed already.
        """
        for assignment, each in offsets.items():
            _check(each)
            if each.offset < assignment.asked:
                where = f"{assignment.place[0]}-{assignment.place[1]} at {each.offset}"
                raise LocalProtocolError(f"{where}: {assignment.asked} is committed; to go back, seek there first")
        self.commits.commit(offsets, now)

    def commit_all(self, now: float) -> None:
        """Have all that was handed out committed, the batch in hand included, as far as the coordinator has it not.

        Raises:
            LocalProtocolError: the consumer has no group.
        """
        commits, behind = self.commits, dict[Assignment, CommittedOffset]()
        for place in list(self._moved):
            assignment = commits.assignment(place)
            position = self._fetcher.position(place) if assignment and place in self._fetcher.places else None
            if assignment is None or position is None:
                continue  # it is being looked up
            if assignment.committed >= position:
                del self._moved[place]
            elif assignment.asked < position:
                behind[assignment] = CommittedOffset(position, self._fetcher.position_epoch(place))
        if behind:
            commits.commit(behind, now)

    def take_lost(self) -> CommitFailed | None:
        """Once, what was handed out and cannot be committed any more.

        What a partition that came back has reached again is well; and a seek says that no more of it is wanted.
        """
        left, self._left = self._left, {}
        lost = {place: each for place, each in left.items() if each.handed > self._reached(place)}
        if not lost:
            return None
        whys = "; ".join(sorted({each.over for each in lost.values()}))
        reason = f"batches were handed out that cannot be committed any more: {whys}"
        return CommitFailed(reason, {place: each.handed for place, each in lost.items()})

    def _reached(self, place: TopicPartition) -> int:
        position = self._fetcher.position(place) if place in self._fetcher.places else None
        return -1 if position is None else position

    def commit_batch(self, claim: Claim | None, at: CommittedOffset, now: float) -> str:
        """Have the group go on behind a batch; why that cannot be any more, which the caller reports, else empty.

        Raises:
            LocalProtocolError: the consumer has no group.
        """
        assignment, why = self.claimed(claim, at)
        if not why:
            self.commits.commit({assignment: at}, now)
        return why

    def claimed(self, claim: Claim | None, at: CommittedOffset) -> tuple[Assignment, str]:
        """The assignment of a batch that is to be committed, and why that cannot be any more; else empty.

        Raises:
            LocalProtocolError: the consumer has no group, or ``at`` is no offset.
        """
        if self._commits is None or claim is None:
            raise LocalProtocolError(_NO_GROUP)
        _check(at)
        assignment, seeks = claim
        if assignment.over:
            assignment.handed = -1
            return assignment, assignment.over
        moved = assignment.seeks != seeks
        return assignment, "the consumer went elsewhere after the batch was handed out" if moved else ""

    @property
    def by_itself(self) -> bool:
        """Offsets are committed every so many seconds, whatever their batches became part of."""
        return self._every is not None

    @property
    def uncommitted(self) -> str:
        """What is not acknowledged of what was to be committed, for people."""
        left = self._commits.pending.items() if self._commits is not None else ()
        places = ", ".join(f"{topic}-{partition} at {offset}" for (topic, partition), offset in sorted(left))
        return f"not committed, so to be read again: {places or 'nothing'}"


def log_dropped(offsets: Mapping[TopicPartition, int], why: str) -> None:
    """A line for each commit that nobody waits for and that cannot be."""
    for (topic, partition), offset in offsets.items():
        log.warning("a commit is dropped", extra={"partition": f"{topic}-{partition}", "offset": offset, "why": why})


def given(
    offsets: Mapping[TopicPartition, int | CommittedOffset],
) -> Iterable[tuple[TopicPartition, CommittedOffset]]:
    """Offsets as the user may give them."""
    for place, each in offsets.items():
        yield place, each if isinstance(each, CommittedOffset) else CommittedOffset(each)


def _check(at: CommittedOffset) -> None:
    """Refuse what no request can hold, at the call: it would take the commits of other partitions with it."""
    if type(at.offset) is not int or not 0 <= at.offset < 2**63:
        raise LocalProtocolError(f"{at.offset!r} is no offset to commit: an integer from 0 to 2**63 - 1")
    if type(at.leader_epoch) is not int or not -1 <= at.leader_epoch < 2**31:
        raise LocalProtocolError(
            f"{at.leader_epoch!r} is no leader epoch: an integer from 0 to 2**31 - 1, or -1 for none"
        )
    try:
        size = len(at.metadata.encode())
    except (AttributeError, UnicodeEncodeError):
        raise LocalProtocolError(f"{at.metadata!r} is no metadata of a commit: a str that UTF-8 can encode") from None
    if size >= 2**15:
        raise LocalProtocolError(
            f"metadata of a commit of {size} bytes: a request holds 32,767, and brokers take 4,096"
        )

"""Fetch sessions (KIP-227): requests name only partitions that change, and answers contain only changed partitions.

    fetch = sessions.begin(request, by_id, now)      # the partitions to fetch: the request's own, or the session's
    session_id, told = fetch.tell(answers)           # the answers to send

Rules:
- Epoch 0 asks for a new session, which begins with the answer. Epoch -1 asks for no session, and ends the session that
  the request names. Otherwise the epochs of a session's requests count up, and wrap from 2**31-1 to 1.
- Within a session the answer contains a partition if it has records, an error, or another high watermark or start
  offset than last time. A partition that had records moves to the end, so that each gets its turn if an answer is full.
- The numbers of sessions and of their partitions are bounded, and so are the topic names in them; a session that is
  unused for two minutes may be dropped for a new one. If there is no room, the answer's session id is 0, and the client
  sends full requests.

Source: FetchSession.scala.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.codec.apis.fetch import FetchPartition, FetchRequest, PartitionData
from ottla.codec.wire import NO_TAGS, UNKNOWN_TAGS, unknown_tags
from ottla.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch

if TYPE_CHECKING:
    from uuid import UUID

FULL, NONE = 0, -1
"""The epochs of requests for a new session and for no session."""
MAX_EPOCH = 2**31 - 1
NO_SESSION = 0

MAX_SESSIONS = 1000
"""`max.incremental.fetch.session.cache.slots`."""
MAX_PARTITIONS = 200_000
"""The most partitions of all sessions together."""
LONGEST_NAME = 249
"""The most characters of a topic's name in a session; no topic can have a longer one."""
PATIENCE = 120.0
"""Seconds without a request after which a session may be dropped."""

Key = tuple["str | UUID", int]
"""The topic's name or id, and the partition."""


class PartitionToFetch(NamedTuple):
    """One partition of a Fetch request."""

    topic: str
    topic_id: "UUID"
    partition: FetchPartition


Answers = Sequence[tuple[PartitionToFetch, PartitionData]]
"""The requested partitions, each with the log's answer."""


@dataclass(slots=True)
class CachedPartition:
    """A partition of a session."""

    asked: PartitionToFetch
    high_watermark: int = -1
    start_offset: int = -1

    def ask(self, asked: PartitionToFetch) -> None:
        """Replace what the client asks for."""
        self.asked = asked

    def changed(self, told: PartitionData) -> bool:
        """Remember the latest answer; return whether the client must get it."""
        news = (
            bool(told.records)
            or told.error_code != 0
            or told.diverging_epoch.end_offset >= 0
            or (told.high_watermark, told.log_start_offset) != (self.high_watermark, self.start_offset)
        )
        self.high_watermark = told.high_watermark if told.error_code == 0 else -1
        self.start_offset = told.log_start_offset
        return news


@dataclass(slots=True, eq=False)
class CachedSession:
    """A fetch session.

    Attributes:
        by_id: whether its topics are named by id.
        epoch: the epoch that its next request must have.
        used: when its last request arrived.
    """

    session_id: int
    by_id: bool
    used: float
    epoch: int = 1
    partitions: dict[Key, CachedPartition] = field(default_factory=dict)

    def key(self, topic: str, topic_id: "UUID", partition: int) -> Key:
        return (topic_id if self.by_id else topic), partition

    def begin(self, answers: Answers) -> None:
        """Remember the partitions of the first request, with their answers."""
        for asked, told in answers:
            kept = CachedPartition(asked)
            kept.changed(told)
            self.partitions[self.key(asked.topic, asked.topic_id, asked.partition.partition)] = kept

    def keep_as(self, session_id: int) -> None:
        """Take the id under which the broker keeps this session."""
        self.session_id = session_id

    def next_request(self, asked: Iterable[PartitionToFetch], request: FetchRequest, now: float) -> None:
        """Adopt the changes that the next request asks for."""
        for each in asked:
            key = self.key(each.topic, each.topic_id, each.partition.partition)
            if (kept := self.partitions.get(key)) is None:
                self.partitions[key] = CachedPartition(each)
            else:
                kept.ask(each)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self.partitions.pop(self.key(topic.topic, topic.topic_id, index), None)
        self.epoch = self.epoch + 1 if self.epoch < MAX_EPOCH else 1
        self.used = now

    def changed(self, answers: Answers) -> Answers:
        """Remember the answers, and return those that the client must get."""
        told = []
        for asked, answer in answers:
            key = self.key(asked.topic, asked.topic_id, asked.partition.partition)
            kept = self.partitions.get(key)
            if kept is not None and kept.changed(answer):
                told.append((asked, answer))
                if answer.records:
                    self.partitions[key] = self.partitions.pop(key)
        return told


class Fetch:
    """Handles one Fetch request, within a session or without."""

    def __init__(
        self, sessions: "FetchSessions", asked: Sequence[PartitionToFetch], session: CachedSession | None
    ) -> None:
        self.asked = asked
        self._sessions = sessions
        self._session = session
        self._epoch = session.epoch if session else FULL

    def tell(self, answers: Answers) -> tuple[int, Answers]:
        """Return the session's id and the answers to send.

        Raises:
            InvalidFetchSessionEpoch: the session has received another request meanwhile.
        """
        session = self._session
        if session is None:
            return NO_SESSION, answers
        if session.session_id == NO_SESSION:
            return self._sessions.keep(session, answers), answers
        if session.epoch != self._epoch:
            raise InvalidFetchSessionEpoch(f"the session is already at epoch {session.epoch}")
        return session.session_id, session.changed(answers)


def _names_too_long(asked: Iterable[PartitionToFetch]) -> bool:
    return any(len(each.topic) > LONGEST_NAME for each in asked)


def _once(request: FetchRequest, by_id: bool) -> list[PartitionToFetch]:
    """Return the partitions of a request. If it has a partition twice, the last entry counts."""
    once: dict[Key, PartitionToFetch] = {}
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        for each in topic.partitions:
            if unknown_tags(each):  # of any size, and a session would keep them
                setattr(each, UNKNOWN_TAGS, NO_TAGS)
            once[name, each.partition] = PartitionToFetch(topic.topic, topic.topic_id, each)
    return list(once.values())


class FetchSessions:
    """Keeps all sessions, in the order of their last use.

    Args:
        new_id: makes ids, from 1 to 2**31-1.
    """

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._new_id = new_id
        self._sessions: dict[int, CachedSession] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, by_id: bool, now: float) -> Fetch:
        """Begin a request: find its session, and the partitions to fetch.

        Raises:
            FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError: the client must begin a new
                session.
        """
        asked = _once(request, by_id)
        if request.session_epoch in (FULL, NONE):
            self._drop(request.session_id)
            wanted = CachedSession(NO_SESSION, by_id, now) if request.session_epoch == FULL else None
            return Fetch(self, asked, wanted)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {request.session_id}")
        if session.by_id != by_id:
            raise FetchSessionTopicIdError("a session must name its topics always by id or always by name")
        if session.epoch != request.session_epoch:
            raise InvalidFetchSessionEpoch(f"session epoch {request.session_epoch}; expected {session.epoch}")
        if _names_too_long(asked):
            self._drop(session.session_id)
            raise FetchSessionIdNotFound(f"no topic has a name of more than {LONGEST_NAME} characters")
        before = len(session.partitions)
        session.next_request(asked, request, now)
        self._partitions += len(session.partitions) - before
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        if not session.partitions:
            self._drop(session.session_id)
            return Fetch(self, (), None)
        if self._partitions > MAX_PARTITIONS:
            self._drop(session.session_id)
            raise FetchSessionIdNotFound("the fetch sessions of this broker have too many partitions")
        return Fetch(self, [kept.asked for kept in session.partitions.values()], session)

    def keep(self, session: CachedSession, answers: Answers) -> int:
        """Begin a session with its first answers; return its id, or `NO_SESSION` if there is no room."""
        session.begin(answers)
        if _names_too_long(asked for asked, _ in answers) or not self._has_room(session):
            return NO_SESSION
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session.keep_as(session_id)
        self._sessions[session_id] = session
        self._partitions += len(session.partitions)
        return session_id

    def _has_room(self, session: CachedSession) -> bool:
        while len(self._sessions) >= MAX_SESSIONS or self._partitions + len(session.partitions) > MAX_PARTITIONS:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or session.used - oldest.used <= PATIENCE:
                return False
            self._drop(oldest.session_id)
        return True

    def _drop(self, session_id: int) -> None:
        if (session := self._sessions.pop(session_id, None)) is not None:
            self._partitions -= len(session.partitions)

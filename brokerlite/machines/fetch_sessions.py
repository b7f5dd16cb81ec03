"""Fetch sessions (KIP-227): a client names its partitions once, then only what changes, and is told only what changed.

    fetch = sessions.begin(request, by_id, now)      # what a Fetch wants: its own partitions, or those of its session
    session_id, told = fetch.tell(answers)           # what it is told of them

Rules:
- Epoch 0 asks for a session, which begins with the answer; -1 does without, and ends the one that is named. Otherwise
  the epochs of a session's requests count up, from 2**31-1 back to 1.
- Within a session a partition is told if there are records, an error, or another high watermark or start offset than
  last time. One that had records goes behind the others, so that each gets its turn when an answer is full.
- There are only so many sessions, and partitions in them; who is not used for two minutes makes room. Without room
  the answer's session id is 0, and the client names everything again.

Source: FetchSession.scala.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.codec.apis.fetch import FetchPartition, FetchRequest, PartitionData
from ottla.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch

if TYPE_CHECKING:
    from uuid import UUID

FULL, NONE = 0, -1
"""Epochs that ask for a session, and that do without."""
MAX_EPOCH = 2**31 - 1
NO_SESSION = 0

MAX_SESSIONS = 1000
"""`max.incremental.fetch.session.cache.slots`."""
MAX_PARTITIONS = 200_000
"""Of all sessions together."""
PATIENCE = 120.0
"""Seconds without a request after which a session may be dropped."""

Key = tuple["str | UUID", int]
"""The topic's name or id, and the partition."""


class Asked(NamedTuple):
    """What a Fetch wants of one partition."""

    topic: str
    topic_id: "UUID"
    partition: FetchPartition


Answers = Sequence[tuple[Asked, PartitionData]]
"""What was asked of each partition, and what the log answers."""


@dataclass(slots=True)
class Kept:
    """A partition of a session."""

    asked: Asked
    high_watermark: int = -1
    start_offset: int = -1

    def changed(self, told: PartitionData) -> bool:
        """Take over what is told; whether it has to be."""
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
class Session:
    """A session.

    Attributes:
        by_id: whether its topics are named by id.
        epoch: the one that its next request must have.
        used: when its last request came.
    """

    session_id: int
    by_id: bool
    used: float
    epoch: int = 1
    partitions: dict[Key, Kept] = field(default_factory=dict)

    def key(self, topic: str, topic_id: "UUID", partition: int) -> Key:
        return (topic_id if self.by_id else topic), partition


class Fetch:
    """One request."""

    def __init__(self, sessions: "FetchSessions", asked: Sequence[Asked], session: Session | None) -> None:
        self.asked = asked
        self._sessions = sessions
        self._session = session
        self._epoch = session.epoch if session else FULL

    def tell(self, answers: Answers) -> tuple[int, Answers]:
        """The session's id, and what the client is told.

        Raises:
            InvalidFetchSessionEpoch: the session has had another request meanwhile.
        """
        session = self._session
        if session is None:
            return NO_SESSION, answers
        if session.session_id == NO_SESSION:
            return self._sessions.keep(session, answers), answers
        if session.epoch != self._epoch:
            raise InvalidFetchSessionEpoch(f"the session is already at epoch {session.epoch}")
        told = []
        for asked, answer in answers:
            key = session.key(asked.topic, asked.topic_id, asked.partition.partition)
            kept = session.partitions.get(key)
            if kept is not None and kept.changed(answer):
                told.append((asked, answer))
                if answer.records:
                    session.partitions[key] = session.partitions.pop(key)
        return session.session_id, told


def _once(request: FetchRequest, by_id: bool) -> list[Asked]:
    """The partitions of a request. If it has a partition twice, the last entry counts."""
    once: dict[Key, Asked] = {}
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        for each in topic.partitions:
            once[name, each.partition] = Asked(topic.topic, topic.topic_id, each)
    return list(once.values())


class FetchSessions:
    """All sessions, those that were used last at the end.

    Args:
        new_id: makes ids, from 1 to 2**31-1.
    """

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._new_id = new_id
        self._sessions: dict[int, Session] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, by_id: bool, now: float) -> Fetch:
        """What a request wants.

        Raises:
            FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError: the client must begin again.
        """
        asked = _once(request, by_id)
        if request.session_epoch in (FULL, NONE):
            self._drop(request.session_id)
            wanted = Session(NO_SESSION, by_id, now) if request.session_epoch == FULL else None
            return Fetch(self, asked, wanted)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {request.session_id}")
        if session.by_id != by_id:
            raise FetchSessionTopicIdError("a session must name its topics always by id or always by name")
        if session.epoch != request.session_epoch:
            raise InvalidFetchSessionEpoch(f"session epoch {request.session_epoch}; expected {session.epoch}")
        self._update(session, asked, request)
        session.epoch = session.epoch + 1 if session.epoch < MAX_EPOCH else 1
        session.used = now
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        if not session.partitions:
            self._drop(session.session_id)
            return Fetch(self, (), None)
        if self._partitions > MAX_PARTITIONS:
            self._drop(session.session_id)
            raise FetchSessionIdNotFound("the fetch sessions of this broker have too many partitions")
        return Fetch(self, [kept.asked for kept in session.partitions.values()], session)

    def keep(self, session: Session, answers: Answers) -> int:
        """Begin a session with what its client is told; its id, or `NO_SESSION` if there is no room."""
        for asked, told in answers:
            kept = Kept(asked)
            kept.changed(told)
            session.partitions[session.key(asked.topic, asked.topic_id, asked.partition.partition)] = kept
        if not self._has_room(session):
            return NO_SESSION
        session.session_id = self._new_id()
        while session.session_id in self._sessions:
            session.session_id = self._new_id()
        self._sessions[session.session_id] = session
        self._partitions += len(session.partitions)
        return session.session_id

    def _has_room(self, session: Session) -> bool:
        while len(self._sessions) >= MAX_SESSIONS or self._partitions + len(session.partitions) > MAX_PARTITIONS:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or session.used - oldest.used <= PATIENCE:
                return False
            self._drop(oldest.session_id)
        return True

    def _update(self, session: Session, asked: Iterable[Asked], request: FetchRequest) -> None:
        before = len(session.partitions)
        for each in asked:
            key = session.key(each.topic, each.topic_id, each.partition.partition)
            if (kept := session.partitions.get(key)) is None:
                session.partitions[key] = Kept(each)
            else:
                kept.asked = each
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.partitions.pop(session.key(topic.topic, topic.topic_id, index), None)
        self._partitions += len(session.partitions) - before

    def _drop(self, session_id: int) -> None:
        if (session := self._sessions.pop(session_id, None)) is not None:
            self._partitions -= len(session.partitions)

"""The sessions of share group members with this broker, which remember the partitions that a member reads.

    turn = sessions.fetch(name, epoch, connection, added, removed, acknowledges=False)
    turn.places                                                                         # the partitions to read now
    turn.check()                                                                        # before the response is built
    turn.tells(place, records=True, error=False)                                        # whether the response has it

Rules:
- Epoch 0 opens a session, and replaces the member's last one, whose records stay locked. Epoch -1 closes it. Otherwise
  the epochs count up from 1, over ShareFetch and ShareAcknowledge together, and wrap from 2**31-1 to 1.
- Within a session the response has a partition if it has records, an error, or acknowledgements, or if this is the
  first response since it was added. A partition that had records moves to the end, so that each gets its turn.
- A session belongs to the connection that opened it, and ends with it.
- Sessions and their partitions are bounded.

Source: SharePartitionManager.java (newContext, acknowledgeSessionUpdate, releaseSession), ShareSession.java,
ShareSessionCache.java, ShareSessionContext.java.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.errors import InvalidRequest, InvalidShareSessionEpoch, ShareSessionLimitReached, ShareSessionNotFound

if TYPE_CHECKING:
    from uuid import UUID

OPEN, CLOSE = 0, -1
"""Epochs that open and close a session."""
MAX_EPOCH = 2**31 - 1
MAX_PARTITIONS = 200_000
"""The most partitions of all sessions together."""

Place = tuple["UUID", int]
"""A topic's id, and a partition."""
A = TypeVar("A")


class SessionName(NamedTuple):
    """The group and the member to which a session belongs."""

    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ServedShareSession:
    """A share session.

    Attributes:
        connection: the connection that opened it.
        epoch: the epoch that its next request must have.
        places: the partitions; ``True``: the next response must have it.
        closed: whether it was closed or replaced.
    """

    name: SessionName
    connection: int
    epoch: int = 1
    places: dict[Place, bool] = field(default_factory=dict)
    closed: bool = False

    def close(self) -> None:
        """Notice that the session was closed or replaced."""
        self.closed = True

    def check_epoch(self, epoch: int) -> None:
        """Check the epoch of a request."""
        if epoch != self.epoch:
            raise InvalidShareSessionEpoch(f"share session epoch {epoch}; expected {self.epoch}")

    def next_epoch(self) -> None:
        """Take a request of this session."""
        self.epoch = self.epoch + 1 if self.epoch < MAX_EPOCH else 1

    def update(self, added: Iterable[Place], removed: Iterable[Place]) -> None:
        """Take over the changes of a request."""
        for place in added:
            self.places.setdefault(place, True)
        for place in removed:
            self.places.pop(place, None)

    def tells(self, place: Place, *, records: bool, error: bool) -> bool:
        """Whether the response must have a partition; notes that it has."""
        told = self.places.get(place, True) or records or error
        if place in self.places:
            if records:
                del self.places[place]
            self.places[place] = error
        return told


class ShareFetchTurn:
    """One ShareFetch request of a session.

    Attributes:
        places: the partitions to read, in the order of this request.
    """

    def __init__(self, session: ServedShareSession, places: Sequence[Place], *, is_first: bool) -> None:
        self.places = places
        self._session = session
        self._epoch = session.epoch
        self._is_first = is_first

    def check(self) -> None:
        """Check that the session is still open, and has had no other request meanwhile.

        Raises:
            ShareSessionNotFound: it was closed or replaced.
            InvalidShareSessionEpoch: it has had another request.
        """
        if self._session.closed:
            raise _not_found(self._session.name)
        self._session.check_epoch(self._epoch)

    def tells(self, place: Place, *, records: bool, error: bool) -> bool:
        """Whether the response must have a partition."""
        return self._session.tells(place, records=records, error=error) or self._is_first


class ShareSessions:
    """Keeps all sessions.

    Args:
        max_sessions: `group.share.max.share.sessions`.
    """

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._sessions: dict[SessionName, ServedShareSession] = {}
        self._by_connection: dict[int, dict[SessionName, None]] = {}
        self._by_group: dict[str, int] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, name: SessionName) -> bool:
        return name in self._sessions

    @property
    def partitions(self) -> int:
        """The number of partitions of all sessions together."""
        return self._partitions

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return group_id in self._by_group

    def fetch(
        self,
        name: SessionName,
        epoch: int,
        connection: int,
        added: Sequence[Place],
        removed: Sequence[Place],
        *,
        acknowledges: bool,
    ) -> ShareFetchTurn | None:
        """Take a ShareFetch request; return the partitions to read, or ``None`` if it closes the session.

        Args:
            added, removed: the partitions in the request.
            acknowledges: it has acknowledgements.

        Raises:
            ShareSessionNotFound, InvalidShareSessionEpoch: the member must open a session.
            ShareSessionLimitReached: there is no room; the caller must close the member's session, if it has one.
            InvalidRequest: acknowledgements in the request that opens the session.
        """
        if epoch == OPEN:
            if acknowledges:
                raise InvalidRequest("acknowledgements need a share session that is open")
            return self._open(name, connection, added)
        session = self._find(name)
        if epoch == CLOSE:
            return None
        session.check_epoch(epoch)
        self._partitions -= len(session.places)
        session.update(added, removed)
        self._partitions += len(session.places)
        session.next_epoch()
        if self._partitions > MAX_PARTITIONS:
            raise ShareSessionLimitReached("the share sessions of this broker have too many partitions")
        return ShareFetchTurn(session, list(_rotated(list(session.places), epoch)), is_first=False)

    def acknowledge(self, name: SessionName, epoch: int) -> bool:
        """Take a ShareAcknowledge request; return whether it closes the session.

        Raises:
            ShareSessionNotFound, InvalidShareSessionEpoch: the member must open a session.
        """
        if epoch == OPEN:
            raise InvalidShareSessionEpoch("ShareAcknowledge cannot open a share session")
        session = self._find(name)
        if epoch != CLOSE:
            session.check_epoch(epoch)
            session.next_epoch()
        return epoch == CLOSE

    def close(self, name: SessionName) -> list[Place]:
        """Forget a session; return its partitions."""
        session = self._sessions.pop(name, None)
        if session is None:
            return []
        session.close()
        self._partitions -= len(session.places)
        mine = self._by_connection[session.connection]
        del mine[name]
        if not mine:
            del self._by_connection[session.connection]
        self._by_group[name.group_id] -= 1
        if not self._by_group[name.group_id]:
            del self._by_group[name.group_id]
        return list(session.places)

    def of_connection(self, connection: int) -> list[SessionName]:
        """Return the sessions that belong to a connection."""
        return list(self._by_connection.get(connection, ()))

    def _find(self, name: SessionName) -> ServedShareSession:
        if (session := self._sessions.get(name)) is None:
            raise _not_found(name)
        return session

    def _open(self, name: SessionName, connection: int, places: Sequence[Place]) -> ShareFetchTurn:
        replaced = self._sessions.get(name)
        sessions = len(self._sessions) - (replaced is not None)
        partitions = self._partitions - (len(replaced.places) if replaced else 0)
        if sessions >= self._max_sessions or partitions + len(places) > MAX_PARTITIONS:
            raise ShareSessionLimitReached(f"this broker has {len(self._sessions)} share sessions already")
        self.close(name)
        session = ServedShareSession(name, connection, places=dict.fromkeys(places, False))
        self._sessions[name] = session
        self._by_connection.setdefault(connection, {})[name] = None
        self._by_group[name.group_id] = self._by_group.get(name.group_id, 0) + 1
        self._partitions += len(session.places)
        return ShareFetchTurn(session, list(session.places), is_first=True)


def _not_found(name: SessionName) -> ShareSessionNotFound:
    return ShareSessionNotFound(f"member {name.member_id} of group {name.group_id} has no share session")


def _rotated(items: list[A], by: int) -> Iterator[A]:
    """Begin with another item in each request, so that the first one does not take all the room."""
    at = by % len(items) if items else 0
    yield from items[at:]
    yield from items[:at]
